"""Table of methods: the rows of all families, and their handlers for one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from refold_protocol.ids import SessionId
from refold_protocol.rpc.initialize import InitializeParams, InitializeResult
from refold_protocol.session.messages import Source
from refold_server.rpc import (
    approval_methods,
    change_methods,
    event_methods,
    meta_methods,
    notices,
    proof_methods,
    session_methods,
    turn_methods,
)
from refold_server.rpc import (
    progress as progress_methods,
)
from refold_server.rpc.approval_methods import ApprovalMethods
from refold_server.rpc.change_methods import ChangeMethods
from refold_server.rpc.connection import Endpoint
from refold_server.rpc.dispatch import Handler
from refold_server.rpc.event_methods import EventMethods
from refold_server.rpc.meta_methods import MetaMethods
from refold_server.rpc.method import CancelParams, Method, notification_row, request_row
from refold_server.rpc.progress import Progress
from refold_server.rpc.proof_methods import ProofMethods
from refold_server.rpc.session_methods import SessionMethods
from refold_server.rpc.turn_methods import TurnMethods
from refold_server.services import Services
from refold_server.sessions.session_registry import Sessions

AskAgain: TypeAlias = Callable[[SessionId], None]


def handlers(
    sessions: Sessions,
    shared: Services,
    events: EventMethods,
    endpoint: Endpoint,
    progress: Progress,
    ask_again: AskAgain,
    source: Source,
) -> Mapping[str, Handler]:
    """Give the handlers by method name; `source` is who the connection's inputs come from, `ask_again` asks once more what
    is open in a session."""
    return {
        **SessionMethods(sessions, source, events.settle, ask_again).handlers(),
        **ChangeMethods(sessions, source, progress).handlers(),
        **TurnMethods(sessions, source, progress).handlers(),
        **ApprovalMethods(sessions, source).handlers(),
        **events.handlers(),
        **ProofMethods(sessions).handlers(),
        **MetaMethods(sessions, shared, lambda: endpoint.unsent, METHODS).handlers(),
    }


_OWN: Final = (
    request_row("initialize", InitializeParams, InitializeResult, "Begin a connection."),
    notification_row("initialized", "to-daemon", None, "The client has read the answer to `initialize`."),
    request_row("shutdown", None, None, "Take no further requests; the process goes on until `exit`."),
    notification_row("exit", "to-daemon", None, "End the process: code 0 after `shutdown`, else 1."),
    notification_row("$/cancelRequest", "both", CancelParams, "Cancel a request; never a turn."),
)

METHODS: Final[dict[str, Method]] = {
    row.name: row
    for rows in (
        _OWN,
        session_methods.METHODS,
        change_methods.METHODS,
        turn_methods.METHODS,
        approval_methods.METHODS,
        event_methods.METHODS,
        proof_methods.METHODS,
        meta_methods.METHODS,
        notices.METHODS,
        progress_methods.METHODS,
    )
    for row in rows
}
"""Every method of the native protocol, by name."""
