"""The notification `session/trouble` for the sessions that a connection has open for writing: what is wrong with a log, that it
is well again, and a model whose window nobody stated.

Each is sent once for each kind, not for every attempt. Subscriptions that cannot go on are told of in `event_methods.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refold_protocol.errors import LogError
from refold_protocol.rpc.notices import SessionTroubleNotice
from refold_protocol.session.events import Event, TurnStart
from refold_server.sessions.session import Session

Notify = Callable[[str, object], None]
"""Sends a notification."""


class TroubleNotices:
    """Watches sessions for one connection."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify

    def watch(self, session: Session) -> None:
        """Tell this session's troubles from now on, until its handle is closed."""
        handle = session.session_log.handle
        told: str | None = None
        named = False

        def look(trouble: LogError | None) -> None:
            nonlocal told
            kind = None if trouble is None else trouble.error_kind
            if kind == told:
                return
            told = kind
            message = "The log can be written again." if trouble is None else trouble.message
            self._notify("session/trouble", SessionTroubleNotice(session.id, kind or "cleared", handle.durable, message))

        def accepted(events: Sequence[Event]) -> None:
            nonlocal named
            if named or not any(isinstance(event.data, TurnStart) for event in events):
                return
            message = session.instance.model.unmetered()
            if message is not None:
                named = True
                self._notify("session/trouble", SessionTroubleNotice(session.id, "model.unconfigured", handle.durable, message))

        handle.watch_trouble(look)
        handle.observe(accepted)
