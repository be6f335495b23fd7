"""Owns the handlers of `session/fork`, `session/delete` and `session/archive`."""

from __future__ import annotations

from refold_protocol.rpc.lineage import SessionArchiveParams, SessionDeleteParams, SessionForkParams, SessionForkResult
from refold_protocol.session.messages import Source
from refold_server.sessions.session_registry import Sessions, fork_session


class LineageMethods:
    """What one connection does to sessions as a whole. `source` is who gives a fork its title."""

    def __init__(self, sessions: Sessions, source: Source) -> None:
        self._sessions = sessions
        self._source = source

    async def fork(self, params: SessionForkParams) -> SessionForkResult:
        """session/fork."""
        made = await fork_session(self._sessions, params.session, params.at, params.title, self._source)
        return SessionForkResult(made.session, made.tail)

    async def delete(self, params: SessionDeleteParams) -> None:
        """session/delete."""
        await self._sessions.delete(params.session)

    async def archive(self, params: SessionArchiveParams) -> None:
        """session/archive."""
        await self._sessions.store.set_archived(params.session, params.archived)
