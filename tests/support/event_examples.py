"""Example of each event type, and the golden lines that are made from them.

A golden line is the form in which a log of FORMAT_VERSION 0 holds that example: it changes only if the format does, and
then every log that exists is unreadable. Run as a program (`make golden`) this writes them anew.
"""

from __future__ import annotations

from pathlib import Path

from refold_protocol.ids import ApprovalId, CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import seal
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    AssistantChunk,
    AssistantMessage,
    ClientInfo,
    CompactEnd,
    CompactStart,
    CompactSummary,
    ContextMessage,
    Draft,
    EncoderId,
    Event,
    InputAccepted,
    InputSettled,
    InstanceStart,
    LimitSettings,
    LlmRetry,
    ModelWindow,
    PermissionSettings,
    PluginFailed,
    Replace,
    RequestHeader,
    RequestHeaderDelta,
    RequestSent,
    SessionSettings,
    SessionTitle,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolErrorInfo,
    ToolResult,
    Trigger,
    TurnEnd,
    TurnEndReason,
    TurnError,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.messages import (
    CallConfig,
    EpochHeader,
    ImageBlock,
    Message,
    ReasoningBlock,
    Replay,
    Source,
    SystemDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolSchema,
    ToolsDelta,
    Usage,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "events"
SEQ = 12
TIME = 1_790_000_000_123

_INPUT = InputId("0198f3a2-0000-7000-8000-000000000001")
_CLIENT = Source("client", "nvim")
_CONFIG = CallConfig(
    "engine",
    "chain",
    "chat-completions",
    dialect_options=JsonText('{"reasoning":"drop"}'),
    temperature=0.5,
    top_p=1.0,
    max_tokens=1024,
    stop=("END",),
    reasoning_effort="low",
    extra=JsonText('{"seed": 7}'),
)
_TOOL = ToolSchema("read_file", "Reads a file.", JsonText('{"type":"object"}'))
_HEADER = EpochHeader(_CONFIG, "Be brief.\nAnswer in English.", (_TOOL,), (Message("user", (TextBlock("House rules"),)),))
_IMAGE = ImageBlock("image/png", "5f" * 32)
_REPLY = AssistantMessage(
    2,
    3,
    (ReasoningBlock("hm"), TextBlock("那🙂"), ToolCallBlock("call_2_3_0", "read_file", '{"path":"a.txt"}')),
    "engine",
    "chain",
    "tool-calls",
    usage=Usage(11, 5, 3, 0, 2),
    interrupted=True,
    replay=Replay("engine", "chain", JsonText('{"signature":"c2ln"}')),
)

EXAMPLES: dict[str, Draft] = {
    "instance/start": Draft(InstanceStart(2, "resume", ClientInfo("nvim", "0.11"))),
    "session/settings": Draft(
        SessionSettings("engine/chain", "low", PermissionSettings("ask"), LimitSettings(40)),
    ),
    "input/accepted": Draft(InputAccepted(_INPUT, "prompt", (TextBlock("Why?\u2028"), _IMAGE), _CLIENT, "key-1")),
    "input/settled": Draft(InputSettled(_INPUT, "blocked", "not on a Friday")),
    "turn/start": Draft(TurnStart(2, Trigger("message", _CLIENT, _INPUT))),
    "turn/end": Draft(
        TurnEnd(2, TurnEndReason("error", error=TurnError("provider.timeout", "No answer in 60 s.", 3, 504, 2000, "req-9")))
    ),
    "step/start": Draft(StepStart(2, 3)),
    "step/end": Draft(StepEnd(2, 3, "overflow")),
    "user/message": Draft(UserMessage((TextBlock("A summary."),), Source("loop"), _INPUT), Replace(4, 9), ((4, 4), (6, 9))),
    "context/message": Draft(
        ContextMessage((TextBlock("CI is red."),), Source("plugin", "ci"), "context", _INPUT, JsonText('{"run":1}')), "append"
    ),
    "steering/message": Draft(SteeringMessage(2, (TextBlock("Stop at ten."),), _CLIENT, _INPUT), "append"),
    "assistant/chunk": Draft(AssistantChunk(2, 3, 1, TextDelta(0, "Bec\u0085ause"))),
    "assistant/message": Draft(_REPLY, "append", ((7, 11),)),
    "tool/call": Draft(ToolCall(2, 3, CallId("call_2_3_0"), "read_file", '{"path":"a.txt"}')),
    "tool/result": Draft(
        ToolResult(
            2,
            3,
            CallId("call_2_3_0"),
            (TextBlock("No such file: a.txt"),),
            is_error=True,
            error=ToolErrorInfo("FileNotFoundError", "TOOL_FAILED"),
            meta=JsonText("[]"),
        ),
        "append",
        ((11, 11),),
    ),
    "request/header": Draft(RequestHeader(_HEADER, "initial")),
    "plugin/failed": Draft(
        PluginFailed("notes", "agent/pre-step", "ValueError: no such note", 2, 1),
    ),
    "request/header-delta": Draft(
        RequestHeaderDelta(SystemDelta(1, ("Answer in Welsh.",), 0), ToolsDelta(("edit_file",), (_TOOL,), ()), _CONFIG, ())
    ),
    "request/sent": Draft(RequestSent("step", 1, EncoderId("chat-completions", 1), 812, "ab" * 32, "cd" * 32, 2, 3)),
    "llm/retry": Draft(LlmRetry(2, 3, 1, "provider.overloaded", 1500)),
    "model/window": Draft(ModelWindow("local", "small", 8192, "props")),
    "approval/asked": Draft(
        ApprovalAsked(ApprovalId("ap-1"), CallId("call_2_3_0"), "run_command", ApprovalSubject("command", "rm -r build"))
    ),
    "approval/decided": Draft(ApprovalDecided(ApprovalId("ap-1"), "denied", "once", _CLIENT)),
    "compact/start": Draft(CompactStart("pressure", (1, 9), "Sum up.", _CONFIG, 2)),
    "compact/summary": Draft(CompactSummary("They asked why.", ((1, 4), (6, 9)), 5200, "chain", 512, Usage(900, 40))),
    "compact/end": Draft(CompactEnd(TurnError("provider.refused", "The model would not sum up."))),
    "session/title": Draft(SessionTitle("Why the build is red", _CLIENT)),
}
"""One draft for each row of EVENT_TYPES, with as many fields set as make sense together."""


def example(name: str) -> Event:
    """Give the example of an event type, sealed at SEQ and TIME."""
    return seal(EXAMPLES[name], SEQ, TIME)


def golden_file(name: str) -> Path:
    """Give the file that holds the golden line of an event type."""
    return GOLDEN / f"{name.replace('/', '.')}.json"


def main() -> None:
    """Write every golden line."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in EXAMPLES:
        golden_file(name).write_bytes(example(name).line + b"\n")


if __name__ == "__main__":
    main()
