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
from refold_protocol.rpc import (
    approving,
    compacting,
    composing,
    explaining,
    lineage,
    listing,
    metering,
    params,
    results,
    settings_params,
)
from refold_protocol.rpc import initialize as init
from refold_protocol.rpc.envelope import encode_error, encode_notification, encode_request, encode_result
from refold_protocol.rpc.initialize_reply import initialize_result
from refold_protocol.rpc.methods import METHODS
from refold_protocol.rpc.notices import (
    LogTraceNotice,
    ProgressNotice,
    SessionEventsNotice,
    SessionsChangedNotice,
    SessionTroubleNotice,
    WorkDone,
)
from refold_protocol.rpc.schema import schema_digest, schema_of
from refold_protocol.rpc.wire_errors import application_error
from refold_protocol.session.events import ApprovalSubject, CompactionSettings, LimitSettings, SessionSettings
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, Source, TextBlock, ToolSchema, text_content
from refold_protocol.session.session_state import PendingInput, Status
from refold_protocol.session.session_totals import UsageTotals
from refold_protocol.session.transcript import TranscriptEntry

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
_INFO: Final = results.SessionInfo(
    "/home/me/work",
    1_700_000_000_000,
    "A title",
    "local/small",
    1_700_000_001_000,
    3,
    UsageTotals(1200, 80, 900, 0),
    results.ForkOrigin(SESSION, 12, DIGEST),
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

_ROW: Final = listing.SessionRow(
    SESSION, "/work", 1_767_225_500_000, 1_767_225_600_000, 57, 3, "idle", "Spring cleaning", "local/small", archived=True
)

EXAMPLES: Final[dict[str, tuple[Any, Any]]] = {
    "initialize": (_INITIALIZE, initialize_result(_INITIALIZE)),
    "initialized": (Raw(b"{}"), None),
    "shutdown": (None, None),
    "exit": (None, None),
    "$/cancelRequest": (params.CancelParams("request-9"), None),
    "session/open": (
        params.SessionOpenParams(
            cwd="/home/me/work",
            title="A title",
            model="local/small",
            permissions=params.PermissionParams("ask"),
            limits=params.LimitParams(12),
            compaction=settings_params.CompactionParams(False),
        ),
        results.SessionOpenResult(
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
        params.SessionReadParams(SESSION, "events", 57, params.Page(49, 58, 100, 65_536)),
        results.SessionReadResult(events=(CHUNK, LINE), next=57),
    ),
    "session/flush": (params.SessionFlushParams(SESSION, 57), results.SessionFlushResult(57)),
    "session/fork": (lineage.SessionForkParams(SESSION, 41, "Another way"), lineage.SessionForkResult(FORK, 43)),
    "session/delete": (lineage.SessionDeleteParams(SESSION), None),
    "session/archive": (lineage.SessionArchiveParams(SESSION, archived=False), None),
    "session/close": (params.SessionCloseParams(SESSION, True), None),
    "turn/start": (
        params.TurnStartParams(
            SESSION, (params.TextInput("What does\nmain do? “é”"),), if_running="queue", key="k-1", work_done_token="t"
        ),
        results.TurnStartResult(INPUT, 41, 3),
    ),
    "turn/interrupt": (
        params.TurnInterruptParams(SESSION, 3, True),
        results.TurnInterruptResult(Raw(b'{"kind":"aborted","cause":{"kind":"user"}}')),
    ),
    "turn/wait": (params.TurnWaitParams(SESSION, input=INPUT), LINE),
    "event/subscribe": (
        params.EventSubscribeParams(SESSION, 41, WRITER, "live"),
        results.EventSubscribeResult(1, 57, 52, WRITER),
    ),
    "event/unsubscribe": (params.EventUnsubscribeParams(1), results.EventUnsubscribeResult(57)),
    "request/rebuild": (
        params.RequestRebuildParams(SESSION, 3, 1),
        results.RequestRebuildResult('{"model":"small","messages":[]}', DIGEST, DIGEST, "equal"),
    ),
    "request/explain": (
        explaining.RequestExplainParams(SESSION, 3, 1, explaining.StepPlace(2, 1)),
        explaining.RequestExplainResult(
            explaining.ExplainedRequest(3, 1, 1, 44, 20_480),
            "break",
            (
                explaining.ExplainedCause(
                    43, "request/header", "instance", "event 43 request/header, the first of instance 2: tool look added", 2
                ),
            ),
            ("event 43 request/header, the first of instance 2: tool look added",),
            explaining.ExplainedRequest(2, 1, 1, 31, 20_400),
            312,
            explaining.ExplainedParting(312, "tools", "tool look", '…"name":"read"', '…"name":"look"', 0, "look", 33),
            5_100,
            0,
        ),
    ),
    "prefix/compose": (
        composing.PrefixComposeParams(SESSION),
        composing.PrefixComposeResult(
            "/w",
            True,
            (
                composing.PrefixContribution(
                    "refold", "instructions", (Message("user", text_content("Be kind.")),), 65, 10, DIGEST
                ),
                composing.PrefixContribution("refold", "skills"),
            ),
            65,
            10,
            DIGEST,
            True,
        ),
    ),
    "meter/read": (
        metering.MeterReadParams(SESSION, "local/small"),
        metering.MeterReadResult(
            "local/small",
            2_600,
            32_768,
            0.079346,
            310,
            95,
            (metering.MeterNode(12, 40), metering.MeterNode(52, 55)),
            58,
            metering.MeterAnchor(3, 1, 52, 2_545),
        ),
    ),
    "log/verify": (
        params.LogVerifyParams(SESSION),
        results.LogVerifyResult(
            58, 3, 2, 1, results.Mismatch("request", 44, f"the rebuilt request has {DIGEST}, recorded is another")
        ),
    ),
    "session/list": (
        params.SessionListParams(50, "/work", "spring", True, "1767225600000.3"),
        listing.SessionListResult((_ROW,), "1767225600000.1"),
    ),
    "session/configure": (
        params.SessionConfigureParams(
            SESSION,
            params.ConfigurePatch(
                "local/large",
                "high",
                params.PermissionParams("deny"),
                params.LimitParams(9),
                "now",
                settings_params.CompactionParams(True, 0.7, 4096),
            ),
        ),
        listing.SessionConfigureResult(
            SessionSettings("local/large", "high", None, LimitSettings(9), CompactionSettings(True, 0.7, 4096)), 58
        ),
    ),
    "session/rename": (params.SessionRenameParams(SESSION, "Spring cleaning"), listing.SeqResult(58)),
    "session/inject": (
        params.SessionInjectParams(SESSION, (params.TextInput("a.txt changed"),), params.InjectSource("file", "a.txt")),
        listing.InputResult(INPUT, 58, 4),
    ),
    "session/compact": (
        compacting.SessionCompactParams(SESSION, "Keep the names of files.", "compaction"),
        compacting.SessionCompactResult(61, 420, 51_200),
    ),
    "input/withdraw": (params.InputWithdrawParams(SESSION, INPUT), listing.SeqResult(58)),
    "approval/answer": (
        approving.ApprovalAnswerParams(SESSION, APPROVAL, "allowed", "session"),
        listing.SeqResult(58),
    ),
    "approval/request": (
        approving.ApprovalRequestParams(
            SESSION,
            APPROVAL,
            3,
            CallId("call_1"),
            "write_file",
            ApprovalSubject("diff", "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-“é”\n+🙂\n"),
            approving.approval_options("write_file"),
            approving.DENY,
            600_000,
        ),
        approving.ApprovalRequestResult("once"),
    ),
    "model/list": (
        params.NoParams(),
        listing.ModelListResult(
            (listing.ModelRow("local/small", "local", "chat-completions", True, 32_768, 4_096),),
            (listing.ProviderRow("local", "chat-completions", "present", "http://127.0.0.1:8080/v1"),),
        ),
    ),
    "tool/list": (
        params.NoParams(),
        listing.ToolListResult((listing.ToolRow("look", "Look.", Raw(b'{"type":"object"}'), True, "builtin"),)),
    ),
    "daemon/health": (
        params.NoParams(),
        listing.DaemonHealthResult(
            "0.1.0",
            4711,
            60_000,
            listing.StoreHealth("/var/lib/refold", 0, 122_880, 1 << 40, 98_304, 3, 1),
            (listing.LiveHealth(SESSION, "running", 57, 52, "no space left"),),
            (
                listing.PluginHealth(
                    "notes",
                    "/home/me/notes.py",
                    ("note",),
                    ("notes/taken",),
                    (listing.SeamTally("tools/pre-execute", 12, 0, 3.5, 0.9),),
                ),
            ),
            2,
            512,
        ),
    ),
    "daemon/schema": (params.NoParams(), listing.DaemonSchemaResult(DIGEST, Raw(b'{"methods":{},"types":{}}'))),
    "window/workDoneProgress/cancel": (params.ProgressCancelParams("t"), None),
    "$/setTrace": (params.SetTraceParams("messages"), None),
    "$/logTrace": (LogTraceNotice("turn/start: answered after 1.5 ms", "{}"), None),
    "session/trouble": (SessionTroubleNotice(SESSION, "session.unknown", -1, "there is no such session", 1), None),
    "sessions/changed": (SessionsChangedNotice(SESSION, "running", 57), None),
    "$/progress": (ProgressNotice("t", WorkDone("begin", "refold", "turn", True)), None),
    "session/events": (SessionEventsNotice(1, (CHUNK, LINE), 49, 57, 52, WRITER, True, "waiting for provider"), None),
}
"""Params and result of each method, with every member set that can be."""

VIEWS: Final[dict[str, results.SessionReadResult]] = {
    "transcript": results.SessionReadResult(entries=(_ENTRY,)),
    "surface": results.SessionReadResult(
        nodes=(results.SurfaceNode(52, "user/message", Message("user", (TextBlock("Hello?"),))),)
    ),
    "header": results.SessionReadResult(header=_HEADER),
    "no-header": results.SessionReadResult(header=None),
    "status": results.SessionReadResult(status=Status("idle")),
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
    return json.dumps(schema_of(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the golden files anew."""
    if schema_digest() != init.SCHEMA_DIGEST:
        source = Path(init.__file__)
        source.write_text(source.read_text().replace(init.SCHEMA_DIGEST, schema_digest()))
        sys.exit(subprocess.call([sys.executable, "-m", "tests.support.rpc_examples"]))  # with the new digest imported
    for old in GOLDEN.iterdir():
        old.unlink()
    (GOLDEN / "schema.json").write_text(schema_text())
    for name in METHODS:
        golden_file(name).write_bytes(bodies(name))


if __name__ == "__main__":
    main()
