"""Owns the handler of `session/compact`. It is answered when the summary is in place on disk, or nothing was changed."""

from __future__ import annotations

from refold_protocol.rpc.compacting import SessionCompactParams, SessionCompactResult
from refold_protocol.rpc.wire_errors import WireError, request_cancelled
from refold_server.compaction.compaction_run import CompactionOutcome
from refold_server.rpc.progress import Progress
from refold_server.sessions.session_registry import Sessions, compact_session


class CompactMethods:
    """The compactions that one connection asks for."""

    def __init__(self, sessions: Sessions, progress: Progress) -> None:
        self._sessions = sessions
        self._progress = progress

    async def compact(self, params: SessionCompactParams) -> SessionCompactResult:
        """session/compact."""
        session, token = self._sessions.writable(params.session), params.work_done_token
        if token is None:
            return _result(await compact_session(session, params.instructions))
        landed: list[CompactionOutcome] = []
        with self._progress.task(token, "session/compact", session):
            landed.append(await compact_session(session, params.instructions))
        if not landed:  # it was cancelled by its token
            raise WireError(request_cancelled("session/compact"))
        return _result(landed[0])


def _result(landed: CompactionOutcome) -> SessionCompactResult:
    return SessionCompactResult(landed.seq, landed.tokens, landed.shadowed)
