"""Owns `sessions/changed`: the status words of the sessions that this daemon writes, for status lines and pickers.

A word is told once what it follows from is durable, and only when it is another one than before. `broken` is told at
once: it is about the log, not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from refold_protocol.rpc.notices import SessionsChangedNotice
from refold_protocol.session.events import Event
from refold_server.sessions.session import Session

Notify = Callable[[str, object], None]
"""Sends a notification."""

MOVERS: Final = frozenset(
    {"input/accepted", "turn/start", "turn/end", "approval/asked", "approval/decided", "compact/start", "compact/end"}
)
"""Event types that can change the status word."""


class StatusNotices:
    """Watches sessions for one connection."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify

    def watch(self, session: Session) -> None:
        """Tell this session's status from now on, until its handle is closed."""
        handle = session.session_log.handle
        told = "idle"
        moved = -1

        def accepted(events: Sequence[Event]) -> None:
            nonlocal moved
            for event in events:
                if event.type in MOVERS:
                    moved = event.seq

        def look() -> None:
            nonlocal told
            word = session.status().status
            if word != told and (word == "broken" or moved <= handle.durable):
                told = word
                self._notify("sessions/changed", SessionsChangedNotice(session.id, word, handle.durable))

        handle.observe(accepted)
        handle.watch_durable(lambda _: look())
        handle.watch_trouble(lambda _: look())
        session.turns.watch(look)
