"""Owns the handler of `prefix/compose`: what stands before a session's history."""

from __future__ import annotations

from refold_protocol.rpc.composing import PrefixComposeParams, PrefixComposeResult
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_reports import compose_session


class PrefixMethods:
    """The requests of one connection about prefixes."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def compose(self, params: PrefixComposeParams) -> PrefixComposeResult:
        """prefix/compose."""
        return await compose_session(self._sessions, params.session)
