"""Owns `session/trouble` for the sessions that a connection has open for writing: what is wrong with a log, and that it is
well again.

It is told once for each kind, not for every attempt. Subscriptions that cannot go on are told of in `event_methods.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from refold_protocol.errors import LogError
from refold_protocol.rpc.notices import SessionTroubleNotice
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

        def look(trouble: LogError | None) -> None:
            nonlocal told
            kind = None if trouble is None else trouble.error_kind
            if kind == told:
                return
            told = kind
            message = "The log can be written again." if trouble is None else trouble.message
            self._notify("session/trouble", SessionTroubleNotice(session.id, kind or "cleared", handle.durable, message))

        handle.watch_trouble(look)
