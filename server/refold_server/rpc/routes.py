"""Owns which handler answers which method of one connection, once its sessions and its store are there."""

from __future__ import annotations

from collections.abc import Mapping

from refold_protocol.ids import SessionId
from refold_protocol.rpc.lineage import SessionDeleteParams
from refold_protocol.rpc.params import EventSubscribeParams, SessionCloseParams, SessionOpenParams
from refold_protocol.session.messages import Source
from refold_server.rpc.approval_requests import ApprovalMethods, ApprovalRequests
from refold_server.rpc.catalog_methods import CatalogMethods
from refold_server.rpc.change_methods import ChangeMethods
from refold_server.rpc.compact_methods import CompactMethods
from refold_server.rpc.connection import Endpoint
from refold_server.rpc.dispatch import Followed, Handler
from refold_server.rpc.event_methods import EventMethods
from refold_server.rpc.lineage_methods import LineageMethods
from refold_server.rpc.meter_methods import MeterMethods
from refold_server.rpc.prefix_methods import PrefixMethods
from refold_server.rpc.progress import Progress
from refold_server.rpc.proof_methods import ProofMethods
from refold_server.rpc.session_methods import SessionMethods
from refold_server.rpc.turn_methods import TurnMethods
from refold_server.services import Services
from refold_server.sessions.session_registry import Sessions


def routes(
    sessions: Sessions,
    shared: Services,
    events: EventMethods,
    endpoint: Endpoint,
    asking: ApprovalRequests,
    source: Source,
) -> Mapping[str, Handler]:
    """Give the handlers by method name; `source` is who the connection's inputs come from."""
    proof, change = ProofMethods(sessions), ChangeMethods(sessions, source)
    progress = Progress(endpoint.notify)
    turn = TurnMethods(sessions, source, progress)
    catalog = CatalogMethods(sessions, shared, lambda: endpoint.unsent)
    return {
        **_session_routes(sessions, events, asking, source),
        **_lineage_routes(sessions, events, source),
        "session/list": catalog.sessions,
        "session/configure": change.configure,
        "session/compact": CompactMethods(sessions, progress).compact,
        "session/rename": change.rename,
        "session/inject": change.inject,
        "input/withdraw": change.withdraw,
        "turn/start": turn.start,
        "turn/wait": turn.wait,
        "turn/interrupt": turn.interrupt,
        "window/workDoneProgress/cancel": turn.cancel,
        "approval/answer": ApprovalMethods(sessions, source).answer,
        "event/unsubscribe": events.unsubscribe,
        "request/rebuild": proof.rebuild,
        "request/explain": proof.explain,
        "log/verify": proof.verify,
        "prefix/compose": PrefixMethods(sessions).compose,
        "meter/read": MeterMethods(sessions, shared).read,
        "model/list": catalog.models,
        "tool/list": catalog.tools,
        "daemon/health": catalog.health,
        "daemon/schema": catalog.schema,
    }


def _session_routes(
    sessions: Sessions, events: EventMethods, asking: ApprovalRequests, source: Source
) -> Mapping[str, Handler]:
    session = SessionMethods(sessions, source)

    def ask_again(name: SessionId) -> None:
        """Whoever opens or follows a session anew has not seen what was asked in it before."""
        live = sessions.live(name)
        if live is not None:
            asking.ask_again(live)

    async def open_session(params: SessionOpenParams) -> Followed:
        result = await session.open(params)
        if result.writer is None:
            return Followed(result, lambda: None)
        await events.settle(result.session)
        return Followed(result, lambda: ask_again(result.session))

    async def subscribe(params: EventSubscribeParams) -> Followed:
        followed = await events.subscribe(params)

        def then() -> None:
            followed.then()
            ask_again(params.session)

        return Followed(followed.result, then)

    async def close(params: SessionCloseParams) -> None:
        try:
            await session.close(params)
        finally:  # also when the last flush failed
            await events.settle(params.session)

    return {
        "session/open": open_session,
        "session/read": session.read,
        "session/flush": session.flush,
        "session/close": close,
        "event/subscribe": subscribe,
    }


def _lineage_routes(sessions: Sessions, events: EventMethods, source: Source) -> Mapping[str, Handler]:
    lineage = LineageMethods(sessions, source)

    async def delete(params: SessionDeleteParams) -> None:
        try:
            await lineage.delete(params)
        finally:  # also when it was closed and could not be deleted then
            await events.settle(params.session)

    return {"session/fork": lineage.fork, "session/delete": delete, "session/archive": lineage.archive}
