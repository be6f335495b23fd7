"""Examples of surface events and what the model sees of each: the golden files of the surface projection.

A golden file holds an event's line and the message that it becomes (null: none). For a recorded event that message never
changes, or every request that was ever sent could no longer be proven. A new wording needs a new `envelope` value and
a new example. Run as a program (`make golden`) this writes the files anew; read the diff before you commit it.
"""

from __future__ import annotations

from pathlib import Path

from refold_protocol.ids import CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import seal
from refold_protocol.session.events import (
    AssistantMessage,
    ContextMessage,
    Draft,
    Event,
    Replace,
    SteeringMessage,
    ToolErrorInfo,
    ToolResult,
    UserMessage,
)
from refold_protocol.session.messages import (
    Block,
    ImageBlock,
    InputBlock,
    ReasoningBlock,
    Replay,
    ResultBlock,
    Source,
    TextBlock,
    ToolCallBlock,
    encode_compact,
)
from refold_protocol.session.projection import derive_message

GOLDEN = Path(__file__).parents[1] / "golden" / "projection"
_SEQ, _TIME = 12, 1_790_000_000_123

_CLIENT = Source("client", "nvim")
_IMAGE = ImageBlock("image/png", "5f" * 32)
_CALL = ToolCallBlock("c1", "read_file", '{"path":"a.txt"}')
_TEXT = TextBlock("那🙂 <b>&amp;</b>\n")


def _user(*content: InputBlock) -> Draft:
    return Draft(UserMessage(content, _CLIENT, InputId("in")), "append")


def _context(source: Source, *content: InputBlock, envelope: str = "context") -> Draft:
    return Draft(ContextMessage(content, source, envelope, InputId("in"), JsonText('{"run":1}')), "append")


def _steering(source: Source, *content: InputBlock) -> Draft:
    return Draft(SteeringMessage(2, content, source, InputId("in")), "append")


def _assistant(*content: Block, interrupted: bool = False, replay: Replay | None = None) -> Draft:
    message = AssistantMessage(2, 3, content, "engine", "chain", "stop", interrupted=interrupted, replay=replay)
    return Draft(message, "append", ((4, 9),))


def _result(*content: ResultBlock, error: ToolErrorInfo | None = None) -> Draft:
    return Draft(ToolResult(2, 3, CallId("c1"), content, error is not None, error, JsonText("[]")), "append")


EXAMPLES: dict[str, Draft] = {
    "user.text": _user(_TEXT),
    "user.image": _user(TextBlock("What is this?"), _IMAGE),
    "user.summary": Draft(UserMessage((TextBlock("They asked why."),), Source("loop")), Replace(3, 9), ((3, 3), (9, 9))),
    "context.named": _context(Source("plugin", "ci"), _TEXT),
    "context.unnamed": _context(Source("cli"), TextBlock("CI is red.")),
    "context.escaped": _context(Source("file", 'a & b/<c>/"d".txt'), TextBlock('1 < 2 & "3"')),
    "context.blank": _context(Source("plugin", "ci"), TextBlock("")),
    "context.several": _context(Source("plugin", "ci"), TextBlock("CI is red."), TextBlock("Again.")),
    "context.image": _context(Source("plugin", "ci"), TextBlock("CI is red:"), _IMAGE, TextBlock("Again.")),
    "context.raw": _context(Source("plugin", "ci"), _TEXT, _IMAGE, envelope="raw"),
    "steering.named": _steering(_CLIENT, TextBlock("Stop at ten.")),
    "steering.unnamed": _steering(Source("cli"), _TEXT),
    "steering.escaped": _steering(Source("client", '<"&">'), TextBlock("</steering>")),
    "steering.image": _steering(_CLIENT, _IMAGE),
    "assistant.text": _assistant(_TEXT),
    "assistant.empty": _assistant(),
    "assistant.blank": _assistant(TextBlock(" \n\u2003"), TextBlock("")),
    "assistant.reasoning-only": _assistant(ReasoningBlock("They want to know why.")),
    "assistant.reasoning-and-text": _assistant(ReasoningBlock("Why?"), TextBlock(""), TextBlock("Because.")),
    "assistant.calls-only": _assistant(_CALL, ToolCallBlock("c2", "read_file", '{"path":"lo')),
    "assistant.reasoning-and-call": _assistant(ReasoningBlock("Why?"), _CALL),
    "assistant.interrupted": _assistant(TextBlock("Beca"), interrupted=True),
    "assistant.interrupted-thinking": _assistant(ReasoningBlock("Beca"), interrupted=True),
    "assistant.replay": _assistant(TextBlock("Because."), replay=Replay("engine", "chain", JsonText('{"signature":"c2ln"}'))),
    "tool.result": _result(TextBlock("1\tone\n"), TextBlock("2\ttwo")),
    "tool.empty": _result(),
    "tool.image": _result(_IMAGE),
    "tool.error": _result(TextBlock("No such file: a.txt"), error=ToolErrorInfo("FileNotFoundError", "TOOL_FAILED")),
    "tool.pruned": Draft(ToolResult(2, 3, CallId("c1"), (TextBlock("(cut)"),), False), Replace(9, 9), ((9, 9),)),
}
"""A draft for each way in which the projection treats a surface type."""


def event(name: str) -> Event:
    """Give an example as the event of a log."""
    return seal(EXAMPLES[name], _SEQ, _TIME)


def golden_file(name: str) -> Path:
    """Give the file that holds an example and its message."""
    return GOLDEN / f"{name}.json"


def golden_bytes(name: str) -> bytes:
    """Give what the file of an example would hold if it were written today."""
    recorded = event(name)
    return b'{"event":' + recorded.line + b',\n"message":' + encode_compact(derive_message(recorded)) + b"}\n"


def main() -> None:
    """Write every golden file."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in EXAMPLES:
        golden_file(name).write_bytes(golden_bytes(name))


if __name__ == "__main__":
    main()
