"""Owns the one table of methods: name, direction, kind, types, and a line of what it does.

Dispatch, the client, the schema and the tests read this table; nothing else declares a method. Decoding follows the
types of a row; meaning is given by whoever handles it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from refold_protocol.rpc import (
    approving,
    compacting,
    composing,
    explaining,
    initialize,
    lineage,
    listing,
    metering,
    notices,
    params,
    results,
)
from refold_protocol.rpc.wire_errors import WireError, invalid_params

Direction: TypeAlias = Literal["to-daemon", "to-client", "both"]
Kind: TypeAlias = Literal["request", "notification"]


class Method(Struct, frozen=True, gc=False):
    """A row of the table. `params` is None where they are not read, `result` None where it is null."""

    name: str
    direction: Direction
    kind: Kind
    params: Any
    result: Any
    doc: str


def decode_params(method: Method, given: Raw | None) -> Any:
    """Give the params as the row's type; absent ones count as `{}`. Raises WireError (−32602) naming the path."""
    if method.params is None:
        return None
    try:
        return _decoder(method.params).decode(b"{}" if given is None else given)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(invalid_params(method.name, error)) from None


def decode_result(method: Method, given: Raw) -> Any:
    """Give a result as the row's type. Raises msgspec.DecodeError: the peer broke the contract."""
    return None if method.result is None else _decoder(method.result).decode(given)


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def _request(name: str, params: Any, result: Any, doc: str) -> Method:
    return Method(name, "to-daemon", "request", params, result, doc)


def _notification(name: str, direction: Direction, params: Any, doc: str) -> Method:
    return Method(name, direction, "notification", params, None, doc)


_ROWS: Final = (
    _request("initialize", initialize.InitializeParams, initialize.InitializeResult, "Begin a connection."),
    _notification("initialized", "to-daemon", None, "The client has read the answer to `initialize`."),
    _request("shutdown", None, None, "Take no further requests; the process goes on until `exit`."),
    _notification("exit", "to-daemon", None, "End the process: code 0 after `shutdown`, else 1."),
    _notification("$/cancelRequest", "both", params.CancelParams, "Cancel a request; never a turn."),
    _request("session/open", params.SessionOpenParams, results.SessionOpenResult, "Open a session, or begin one."),
    _request("session/read", params.SessionReadParams, results.SessionReadResult, "Read a view of a session's log."),
    _request("session/flush", params.SessionFlushParams, results.SessionFlushResult, "Wait until events are durable."),
    _request("session/close", params.SessionCloseParams, None, "Give a session back; refused while a turn runs."),
    _request("session/fork", lineage.SessionForkParams, lineage.SessionForkResult, "Begin a session with another's events."),
    _request("session/delete", lineage.SessionDeleteParams, None, "Delete a session for good."),
    _request("session/archive", lineage.SessionArchiveParams, None, "Leave a session out of lists, or bring it back."),
    _request("session/list", params.SessionListParams, listing.SessionListResult, "List sessions, the latest active first."),
    _request("session/compact", compacting.SessionCompactParams, compacting.SessionCompactResult, "Sum up the history."),
    _request("session/configure", params.SessionConfigureParams, listing.SessionConfigureResult, "Change settings."),
    _request("session/rename", params.SessionRenameParams, listing.SeqResult, "Give a session a title."),
    _request("session/inject", params.SessionInjectParams, listing.InputResult, "Tell the model something; asks nothing."),
    _request("turn/start", params.TurnStartParams, results.TurnStartResult, "Accept a prompt; answered once on disk."),
    _request("turn/interrupt", params.TurnInterruptParams, results.TurnInterruptResult, "Stop a turn; idempotent."),
    _request("turn/wait", params.TurnWaitParams, Raw, "Wait for a turn's end; answers the `turn/end` event itself."),
    _request("input/withdraw", params.InputWithdrawParams, listing.SeqResult, "Take back an input that waits."),
    _request("approval/answer", approving.ApprovalAnswerParams, listing.SeqResult, "Say whether a call may run."),
    _request("event/subscribe", params.EventSubscribeParams, results.EventSubscribeResult, "Follow a session's log."),
    _request("event/unsubscribe", params.EventUnsubscribeParams, results.EventUnsubscribeResult, "Stop following."),
    _request("request/rebuild", params.RequestRebuildParams, results.RequestRebuildResult, "Rebuild a request."),
    _request("request/explain", explaining.RequestExplainParams, explaining.RequestExplainResult, "Say what broke a prefix."),
    _request("log/verify", params.LogVerifyParams, results.LogVerifyResult, "Prove a log against its own records."),
    _request("prefix/compose", composing.PrefixComposeParams, composing.PrefixComposeResult, "Say what begins each request."),
    _request("meter/read", metering.MeterReadParams, metering.MeterReadResult, "Say how full a model's window is."),
    _request("model/list", params.NoParams, listing.ModelListResult, "List the configured models and providers."),
    _request("tool/list", params.NoParams, listing.ToolListResult, "List the tools that models are told of."),
    _request("daemon/health", params.NoParams, listing.DaemonHealthResult, "Tell how the daemon and its store are."),
    _request("daemon/schema", params.NoParams, listing.DaemonSchemaResult, "Give this table as JSON Schema."),
    _notification("window/workDoneProgress/cancel", "to-daemon", params.ProgressCancelParams, "Interrupt a turn by its token."),
    _notification("$/setTrace", "to-daemon", params.SetTraceParams, "How much to tell of what the daemon does."),
    _notification("$/logTrace", "to-client", notices.LogTraceNotice, "What the daemon did, for a client that asked."),
    _notification("session/events", "to-client", notices.SessionEventsNotice, "The next events of a subscription."),
    _notification("sessions/changed", "to-client", notices.SessionsChangedNotice, "A session's status is another one."),
    _notification("session/trouble", "to-client", notices.SessionTroubleNotice, "What is wrong with a session's log."),
    _notification("$/progress", "to-client", notices.ProgressNotice, "How a turn with a `workDoneToken` goes on."),
    Method(
        "approval/request",
        "to-client",
        "request",
        approving.ApprovalRequestParams,
        approving.ApprovalRequestResult,
        "Ask a person whether a call may run.",
    ),
)

METHODS: Final[dict[str, Method]] = {row.name: row for row in _ROWS}
"""Every method of this release, by name. `schema.py` writes it out for other languages."""

_LANGUAGE_ROWS: Final = (
    _notification("textDocument/didOpen", "to-daemon", Raw, "A document is open; its text is the client's from now on."),
    _notification("textDocument/didChange", "to-daemon", Raw, "The text of an open document changed."),
    _notification("textDocument/didSave", "to-daemon", Raw, "The text of an open document is on disk."),
    _notification("textDocument/didClose", "to-daemon", Raw, "A document is closed; its text is that on disk."),
    _notification("workspace/didChangeWorkspaceFolders", "to-daemon", Raw, "Folders came and went."),
    _request("textDocument/codeAction", Raw, Raw, "Say what can be done with a selection."),
    _request("workspace/executeCommand", Raw, Raw, "Do it; docs/selections.md has the commands and their arguments."),
)

LANGUAGE_METHODS: Final[dict[str, Method]] = {row.name: row for row in _LANGUAGE_ROWS}
"""The methods of LSP 3.17 that the language-server side serves, by name. Their types are LSP's own, so params and results
pass here as they came."""
