"""Owns the handler of `meter/read`: how full a model's window is."""

from __future__ import annotations

from refold_protocol.rpc.metering import MeterReadParams, MeterReadResult
from refold_server.requests.session_log import load
from refold_server.requests.session_meters import MeteredLog
from refold_server.services import Services
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_reports import LoadedLog, read_meter
from refold_server.sessions.session_views import reading


class MeterMethods:
    """The requests of one connection about meters."""

    def __init__(self, sessions: Sessions, shared: Services) -> None:
        self._sessions = sessions
        self._shared = shared

    async def read(self, params: MeterReadParams) -> MeterReadResult:
        """meter/read."""
        async with reading(self._sessions, params.session) as (handle, _):
            live = self._sessions.live(params.session)
            log: MeteredLog = (
                live.session_log
                if live is not None and live.session_log.handle is handle
                else LoadedLog(handle, await load(handle, handle.tail))
            )
            return await read_meter(self._shared.meters, self._shared.config, log, handle.record, params.model)
