"""Example of each method's messages, and the golden files that are made from them.

A golden file holds the bodies of a request and its reply, or of a notification, one a line, exactly as they go over the
wire. `schema.json` holds the method table. Run as a program (`make golden`) this writes all of
them anew, and the digest of the table into `initialize.py`; read the diff before you commit it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from msgspec import Raw

from refold_protocol.errors import SessionBusyError
from refold_protocol.ids import ApprovalId, CallId, InputId, SessionId, WriterId
from refold_protocol.json_text import JsonText
from refold_protocol.rpc import initialize as init
from refold_protocol.rpc.envelope import encode_error, encode_notification, encode_request, encode_result
from refold_protocol.rpc.initialize_reply import initialize_result
from refold_protocol.rpc.wire_errors import application_error
from refold_protocol.session.events import ApprovalSubject, CompactionSettings, LimitSettings, SessionSettings
from refold_protocol.session.messages import (
    CallConfig,
    EpochHeader,
    Message,
    Source,
    TextBlock,
    ToolSchema,
    Usage,
    text_content,
)
from refold_protocol.session.request_rows import SentRow
from refold_protocol.session.session_state import PendingInput, Status
from refold_protocol.session.session_totals import UsageTotals
from refold_protocol.session.transcript import TranscriptEntry
from refold_server.plugins.plugin_registry import PluginHealth, SeamTally
from refold_server.rpc import approval_methods as approving
from refold_server.rpc.approval_methods import DENY, ApprovalAnswerParams, ApprovalRequestParams, ApprovalRequestResult
from refold_server.rpc.change_methods import (
    CompactionParams,
    ConfigurePatch,
    InjectSource,
    InputResult,
    InputWithdrawParams,
    LimitParams,
    PermissionParams,
    SessionCompactParams,
    SessionCompactResult,
    SessionConfigureParams,
    SessionConfigureResult,
    SessionInjectParams,
    SessionRenameParams,
)
from refold_server.rpc.event_methods import (
    EventSubscribeParams,
    EventSubscribeResult,
    EventUnsubscribeParams,
    EventUnsubscribeResult,
)
from refold_server.rpc.meta_methods import (
    DaemonHealthResult,
    DaemonSchemaResult,
    LiveHealth,
    MeterReadParams,
    ModelListResult,
    PrefixComposeParams,
    StoreHealth,
    ToolListResult,
    ToolRow,
)
from refold_server.rpc.method import CancelParams, NoParams, ProgressCancelParams, SeqResult, SetTraceParams, TextInput
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.notices import (
    LogTraceNotice,
    ProgressNotice,
    SessionEventsNotice,
    SessionsChangedNotice,
    SessionTroubleNotice,
    WorkDone,
)
from refold_server.rpc.proof_methods import (
    ExplainedCause,
    ExplainedParting,
    ExplainedRequest,
    LogVerifyParams,
    LogVerifyResult,
    Mismatch,
    RequestExplainParams,
    RequestExplainResult,
    RequestListParams,
    RequestListResult,
    RequestRebuildParams,
    RequestRebuildResult,
    StepPlace,
)
from refold_server.rpc.session_methods import (
    Page,
    SessionArchiveParams,
    SessionCloseParams,
    SessionDeleteParams,
    SessionFlushParams,
    SessionFlushResult,
    SessionForkParams,
    SessionForkResult,
    SessionInfo,
    SessionOpenParams,
    SessionOpenResult,
    SessionReadParams,
    SessionReadResult,
    SessionRehomeParams,
    SessionRehomeResult,
)
from refold_server.rpc.turn_methods import (
    TurnInterruptParams,
    TurnInterruptResult,
    TurnStartParams,
    TurnStartResult,
    TurnWaitParams,
)
from refold_server.rpc.wire_schema import schema_digest, schema_of
from refold_server.sessions.session_list import ForkOrigin, SessionListParams, SessionListResult, SessionRow
from refold_server.sessions.session_reports import (
    MeterAnchor,
    MeterNode,
    MeterReadResult,
    ModelRow,
    PrefixComposeResult,
    PrefixContribution,
    ProviderRow,
)
from refold_server.sessions.session_views import SurfaceNode

GOLDEN: Final = Path(__file__).parent.parent / "golden" / "rpc"

SESSION: Final = SessionId("018f0000-0000-7000-8000-000000000001")
FORK: Final = SessionId("018f0000-0000-7000-8000-000000000002")
INPUT: Final = InputId("018f0000-0000-7000-8000-0000000000a1")
APPROVAL: Final = ApprovalId("018f0000-0000-7000-8000-0000000000b1")
WRITER: Final = WriterId("018f0000-0000-7000-8000-0000000000f1.41")
DIGEST: Final = "ab" * 32
LINE: Final = Raw(b'{"type":"turn/end","seq":57,"time":1700000000000,"data":{"turn":3,"reason":{"kind":"completed"}}}')
CHUNK: Final = Raw(
    b'{"type":"assistant/chunk","seq":50,"time":1700000000000,"data":{"turn":3,"step":1,"attempt":1,'
    b'"chunk":{"type":"text-delta","index":0,"text":"\xc3\xa9\xe4\xb8\x96\xf0\x9f\x99\x82"}}}'
)

_INITIALIZE: Final = init.InitializeParams(
    4711,
    init.PeerInfo("an editor", "1.2"),
    init.ClientCapabilities(
        init.GeneralCapabilities(("utf-8", "utf-16")),
        Raw(b'{"synchronization":{},"codeAction":{"codeActionLiteralSupport":{}}}'),
        Raw(b'{"applyEdit":true,"executeCommand":{},"workspaceFolders":true}'),
    ),
    init.InitializationOptions("local/small", "/var/lib/refold", "cancel"),
)
_INFO: Final = SessionInfo(
    "/home/me/work",
    1_700_000_000_000,
    "A title",
    "local/small",
    1_700_000_001_000,
    3,
    UsageTotals(1200, 80, 900, 0),
    ForkOrigin(SESSION, 12, DIGEST),
    True,
)
_HEADER: Final = EpochHeader(
    CallConfig("local", "small", "chat-completions", JsonText('{"tools":true}'), max_tokens=512),
    "Be brief.",
    (ToolSchema("read_file", "Read a file.", JsonText('{"type":"object"}')),),
)
_ENTRY: Final = TranscriptEntry(
    52,
    1_700_000_000_000,
    "tool",
    3,
    1,
    (TextBlock("1\tfirst line"),),
    call_id="call_1",
    tool="read_file",
    arguments='{"path":"a.txt"}',
)
_PENDING: Final = PendingInput(INPUT, 41, "prompt", (TextBlock("Hello?"),), Source("client", "an editor"), "once")

_ROW: Final = SessionRow(
    SESSION, "/work", 1_767_225_500_000, 1_767_225_600_000, 57, 3, "idle", "Spring cleaning", "local/small", archived=True
)

EXAMPLES: Final[dict[str, tuple[Any, Any]]] = {
    "initialize": (_INITIALIZE, initialize_result(_INITIALIZE)),
    "initialized": (Raw(b"{}"), None),
    "shutdown": (None, None),
    "exit": (None, None),
    "$/cancelRequest": (CancelParams("request-9"), None),
    "session/open": (
        SessionOpenParams(
            cwd="/home/me/work",
            title="A title",
            model="local/small",
            permissions=PermissionParams("ask"),
            limits=LimitParams(12),
            compaction=CompactionParams(False),
        ),
        SessionOpenResult(
            SESSION,
            41,
            41,
            _INFO,
            Status("running", 3, 1, (CallId("call_1"),)),
            (_PENDING,),
            2,
            WRITER,
        ),
    ),
    "session/read": (
        SessionReadParams(SESSION, "events", 57, Page(49, 58, 100, 65_536)),
        SessionReadResult(events=(CHUNK, LINE), next=57),
    ),
    "session/flush": (SessionFlushParams(SESSION, 57), SessionFlushResult(57)),
    "session/fork": (SessionForkParams(SESSION, 41, "Another way"), SessionForkResult(FORK, 43)),
    "session/delete": (SessionDeleteParams(SESSION), None),
    "session/archive": (SessionArchiveParams(SESSION, archived=False), None),
    "request/list": (
        RequestListParams(SESSION, 12, 100),
        RequestListResult(
            (
                SentRow(
                    41,
                    1_700_000_000_000,
                    "step",
                    1,
                    "local/small",
                    "chat-completions",
                    1_024,
                    "0" * 64,
                    "1" * 64,
                    3,
                    1,
                    usage=Usage(120, 30, 900),
                    duration_ms=1_250,
                    end="stop",
                ),
            ),
        ),
    ),
    "session/rehome": (SessionRehomeParams(SESSION, "/home/ann/renamed"), SessionRehomeResult("/home/ann/renamed")),
    "session/close": (SessionCloseParams(SESSION, True), None),
    "turn/start": (
        TurnStartParams(SESSION, (TextInput("What does\nmain do? “é”"),), if_running="queue", key="k-1", work_done_token="t"),
        TurnStartResult(INPUT, 41, 3),
    ),
    "turn/interrupt": (
        TurnInterruptParams(SESSION, 3, True),
        TurnInterruptResult(Raw(b'{"kind":"aborted","cause":{"kind":"user"}}')),
    ),
    "turn/wait": (TurnWaitParams(SESSION, input=INPUT), LINE),
    "event/subscribe": (
        EventSubscribeParams(SESSION, 41, WRITER, "live"),
        EventSubscribeResult(1, 57, 52, WRITER),
    ),
    "event/unsubscribe": (EventUnsubscribeParams(1), EventUnsubscribeResult(57)),
    "request/rebuild": (
        RequestRebuildParams(SESSION, 3, 1),
        RequestRebuildResult('{"model":"small","messages":[]}', DIGEST, DIGEST, "equal"),
    ),
    "request/explain": (
        RequestExplainParams(SESSION, 3, 1, StepPlace(2, 1)),
        RequestExplainResult(
            ExplainedRequest(3, 1, 1, 44, 20_480),
            "break",
            (
                ExplainedCause(
                    43, "request/header", "instance", "event 43 request/header, the first of instance 2: tool look added", 2
                ),
            ),
            ("event 43 request/header, the first of instance 2: tool look added",),
            ExplainedRequest(2, 1, 1, 31, 20_400),
            312,
            ExplainedParting(312, "tools", "tool look", '…"name":"read"', '…"name":"look"', 0, "look", 33),
            5_100,
            0,
        ),
    ),
    "prefix/compose": (
        PrefixComposeParams(SESSION),
        PrefixComposeResult(
            "/w",
            True,
            (
                PrefixContribution("refold", "instructions", (Message("user", text_content("Be kind.")),), 65, 10, DIGEST),
                PrefixContribution("refold", "skills"),
            ),
            65,
            10,
            DIGEST,
            True,
        ),
    ),
    "meter/read": (
        MeterReadParams(SESSION, "local/small"),
        MeterReadResult(
            "local/small",
            2_600,
            32_768,
            0.079346,
            310,
            95,
            (MeterNode(12, 40), MeterNode(52, 55)),
            58,
            MeterAnchor(3, 1, 52, 2_545),
        ),
    ),
    "log/verify": (
        LogVerifyParams(SESSION),
        LogVerifyResult(58, 3, 2, 1, Mismatch("request", 44, f"the rebuilt request has {DIGEST}, recorded is another")),
    ),
    "session/list": (
        SessionListParams(50, "/work", "spring", True, "1767225600000.3"),
        SessionListResult((_ROW,), "1767225600000.1"),
    ),
    "session/configure": (
        SessionConfigureParams(
            SESSION,
            ConfigurePatch(
                "local/large",
                "high",
                PermissionParams("deny"),
                LimitParams(9),
                "now",
                CompactionParams(True, 0.7, 4096),
            ),
        ),
        SessionConfigureResult(
            SessionSettings("local/large", "high", None, LimitSettings(9), CompactionSettings(True, 0.7, 4096)), 58
        ),
    ),
    "session/rename": (SessionRenameParams(SESSION, "Spring cleaning"), SeqResult(58)),
    "session/inject": (
        SessionInjectParams(SESSION, (TextInput("a.txt changed"),), InjectSource("file", "a.txt")),
        InputResult(INPUT, 58, 4),
    ),
    "session/compact": (
        SessionCompactParams(SESSION, "Keep the names of files.", "compaction"),
        SessionCompactResult(61, 420, 51_200),
    ),
    "input/withdraw": (InputWithdrawParams(SESSION, INPUT), SeqResult(58)),
    "approval/answer": (
        ApprovalAnswerParams(SESSION, APPROVAL, "allowed", "session"),
        SeqResult(58),
    ),
    "approval/request": (
        ApprovalRequestParams(
            SESSION,
            APPROVAL,
            3,
            CallId("call_1"),
            "write_file",
            ApprovalSubject("diff", "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-“é”\n+🙂\n"),
            approving.approval_options("write_file"),
            DENY,
            600_000,
        ),
        ApprovalRequestResult("once"),
    ),
    "model/list": (
        NoParams(),
        ModelListResult(
            (ModelRow("local/small", "local", "chat-completions", True, 32_768, 4_096),),
            (ProviderRow("local", "chat-completions", "present", "http://127.0.0.1:8080/v1"),),
        ),
    ),
    "tool/list": (
        NoParams(),
        ToolListResult((ToolRow("look", "Look.", Raw(b'{"type":"object"}'), True, "builtin"),)),
    ),
    "daemon/health": (
        NoParams(),
        DaemonHealthResult(
            "0.1.0",
            4711,
            60_000,
            StoreHealth("/var/lib/refold", 0, 122_880, 1 << 40, 98_304, 3, 1),
            (LiveHealth(SESSION, "running", 57, 52, "no space left"),),
            (
                PluginHealth(
                    "notes",
                    "/home/me/notes.py",
                    ("note",),
                    ("notes/taken",),
                    (SeamTally("tools/pre-execute", 12, 0, 3.5, 0.9),),
                ),
            ),
            2,
            512,
        ),
    ),
    "daemon/schema": (NoParams(), DaemonSchemaResult(DIGEST, Raw(b'{"methods":{},"types":{}}'))),
    "window/workDoneProgress/cancel": (ProgressCancelParams("t"), None),
    "$/setTrace": (SetTraceParams("messages"), None),
    "$/logTrace": (LogTraceNotice("turn/start: answered after 1.5 ms", "{}"), None),
    "session/trouble": (SessionTroubleNotice(SESSION, "session.unknown", -1, "there is no such session", 1), None),
    "sessions/changed": (SessionsChangedNotice(SESSION, "running", 57), None),
    "$/progress": (ProgressNotice("t", WorkDone("begin", "refold", "turn", True)), None),
    "session/events": (SessionEventsNotice(1, (CHUNK, LINE), 49, 57, 52, WRITER, True, "waiting for provider"), None),
}
"""Params and result of each method, with every member set that can be."""

VIEWS: Final[dict[str, SessionReadResult]] = {
    "transcript": SessionReadResult(entries=(_ENTRY,)),
    "surface": SessionReadResult(nodes=(SurfaceNode(52, "user/message", Message("user", (TextBlock("Hello?"),))),)),
    "header": SessionReadResult(header=_HEADER),
    "no-header": SessionReadResult(header=None),
    "status": SessionReadResult(status=Status("idle")),
}
"""The other forms of the reply to `session/read`."""


def golden_file(name: str) -> Path:
    """Give the file of a method."""
    return GOLDEN / f"{name.replace('$/', '').replace('/', '-')}.jsonl"


def bodies(name: str) -> bytes:
    """Give a method's messages as they are written today, one a line."""
    given, result = EXAMPLES[name]
    if METHODS[name].kind == "notification":
        return encode_notification(name, given) + b"\n"
    replies = [encode_result(7, result)]
    if name == "session/read":
        replies += [encode_result(7, view) for view in VIEWS.values()]
    if name == "session/close":
        replies += [encode_error(7, application_error(SessionBusyError("turn 3 runs", session=SESSION, turn=3)))]
    return b"\n".join([encode_request(7, name, given), *replies]) + b"\n"


def schema_text() -> str:
    """Give the golden file of the method table."""
    return json.dumps(schema_of(METHODS), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the golden files anew."""
    if schema_digest(METHODS) != init.SCHEMA_DIGEST:
        source = Path(init.__file__)
        source.write_text(source.read_text().replace(init.SCHEMA_DIGEST, schema_digest(METHODS)))
        sys.exit(subprocess.call([sys.executable, "-m", "tests.support.rpc_examples"]))  # with the new digest imported
    for old in GOLDEN.iterdir():
        old.unlink()
    (GOLDEN / "schema.json").write_text(schema_text())
    for name in METHODS:
        golden_file(name).write_bytes(bodies(name))


if __name__ == "__main__":
    main()
