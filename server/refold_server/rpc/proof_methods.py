"""Owns the handlers of `request/rebuild`, `request/explain` and `log/verify`: what was sent, why, and whether it is proved."""

from __future__ import annotations

from refold_protocol.rpc.explaining import RequestExplainParams, RequestExplainResult
from refold_protocol.rpc.params import LogVerifyParams, RequestRebuildParams
from refold_protocol.rpc.results import LogVerifyResult, Mismatch, RequestRebuildResult
from refold_protocol.session.cache_report import RequestHistory
from refold_protocol.verify import Report
from refold_server.requests.offline_check import RebuiltRequest, check_log, rebuilt_request, rebuilt_summary, request_history
from refold_server.rpc.explained import explain_result
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_views import examining, read_whole, reading
from refold_storage.interface import Handle


class ProofMethods:
    """The requests of one connection that prove something."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def rebuild(self, params: RequestRebuildParams) -> RequestRebuildResult:
        """request/rebuild."""

        async def rebuild() -> RebuiltRequest:
            async with reading(self._sessions, params.session) as (handle, _):
                return await _rebuilt(handle, params)

        rebuilt = await read_whole(rebuild)
        return RequestRebuildResult(rebuilt.body.decode(), rebuilt.sha256, rebuilt.request_sha256, rebuilt.verdict)

    async def explain(self, params: RequestExplainParams) -> RequestExplainResult:
        """request/explain."""

        async def look() -> RequestHistory:
            async with reading(self._sessions, params.session) as (handle, _):
                return await request_history(handle)

        history = await read_whole(look)
        against = None if params.against is None else (params.against.turn, params.against.step)
        found = history.explain((params.turn, params.step), against)
        return explain_result(found.row, found.against, found.state)

    async def verify(self, params: LogVerifyParams) -> LogVerifyResult:
        """log/verify."""

        async def check() -> Report:
            async with examining(self._sessions, params.session) as handle:
                return await check_log(handle)

        report = await read_whole(check)
        first = report.differences[0] if report.differences else None
        mismatch = None if first is None else Mismatch(first.check, first.seq, first.message, first.last)
        return LogVerifyResult(report.events, report.requests, report.equal, report.not_shipped, mismatch)


async def _rebuilt(handle: Handle, params: RequestRebuildParams) -> RebuiltRequest:
    if params.compact is not None:
        return await rebuilt_summary(handle, params.compact)
    assert params.turn is not None  # the params' own check: a step is named then
    assert params.step is not None
    return await rebuilt_request(handle, params.turn, params.step)
