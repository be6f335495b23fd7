"""What plugins give back: each value is read as its type, frozen all the way down, or refused.

A plugin may hand over structs that hold lists, numbers where texts belong, or things that it keeps and changes later. A value
is written as JSON and read back as its type, so it is lossless JSON, as everything that can reach the log must be, and shares
nothing that can change. Refused is also what would be recorded once and then turn every later request into one that no
provider takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec

from refold_protocol.json_text import check_json, is_json_object
from refold_protocol.session.event_data import is_foreign_end
from refold_protocol.session.header import canonical_config
from refold_protocol.session.messages import (
    CallConfig,
    Chunk,
    ImageBlock,
    InputBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    Usage,
    UsageChunk,
)
from refold_server.plugins.hook_table import Accept, Assembled, Block, Context, Deny, GoOn, Stop, Submit, Summary
from refold_server.tools.tool_runner import ToolAnswer

T = TypeVar("T")
_KEPT: Final = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)
"""Types that would become text without a word; the writer of JSON refuses them."""

_MAX_WHOLE: Final = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exactly."""


def frozen(value: object, shape: type[T]) -> T:
    """Give a copy of `value` that is deeply immutable. Raises ValueError or TypeError for what is not of that shape."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=_text)
        return cast("T", _decoder(shape).decode(json.dumps(plain, allow_nan=False)))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"what it gave is no {getattr(shape, '__name__', shape)}: {error}") from None


def _text(value: object) -> str:
    """Give the plain text of a class of text, as libraries have them, whatever its methods say."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"there is no JSON for a {type(value).__name__}")


def frozen_messages(value: object) -> tuple[Message, ...]:
    """Give a prefix: messages of users and assistants with something in them, each call answered by the next message."""
    messages = frozen(_listed(value), tuple[Message, ...])
    waiting: list[str] = []
    for message in messages:
        allowed = _SPOKEN.get(message.role)
        if allowed is None:
            raise ValueError(f"a message of the prefix has the role {message.role!r}; it is user or assistant")
        for block in message.content:
            if not isinstance(block, allowed):
                raise ValueError(f"a message of the {message.role} in the prefix holds a {type(block).__name__}")
        if not any(not isinstance(block, TextBlock | ReasoningBlock) or block.text.strip() for block in message.content):
            raise ValueError("a message of the prefix is blank")
        if message.replay is not None:
            check_json(message.replay.data)
        answers = [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]
        if sorted(answers) != sorted(waiting):
            raise ValueError("calls in the prefix are not all answered by the message behind them")
        waiting = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
    if waiting:
        raise ValueError("the prefix ends with calls that are not answered")
    return messages


_SPOKEN: Final[dict[str, tuple[type, ...]]] = {
    "user": (TextBlock, ToolResultBlock),
    "assistant": (TextBlock, ReasoningBlock, ToolCallBlock),
}


def frozen_config(value: object) -> CallConfig:
    """Give a call config in its canonical form."""
    _instance(value, CallConfig)
    config = frozen(value, CallConfig)
    for text in (config.dialect_options, config.extra):
        if text is not None:
            check_json(text)
    if config.max_tokens is not None and not 0 < config.max_tokens <= _MAX_WHOLE:
        raise ValueError("max_tokens is no number of tokens")
    return canonical_config(config)


def frozen_assembled(value: object) -> Assembled:
    """Give a system text and tools whose names differ."""
    _instance(value, Assembled)
    assembled = frozen(value, Assembled)
    names = [tool.name for tool in assembled.tools]
    if len(set(names)) != len(names):
        raise ValueError(f"two tools have the same name: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    for tool in assembled.tools:
        _check_tool(tool)
    return assembled


def frozen_answer(value: object) -> ToolAnswer:
    """Give an answer of a tool with something in it."""
    _instance(value, ToolAnswer)
    return _checked_answer(frozen(value, ToolAnswer))


def _checked_answer(answer: ToolAnswer) -> ToolAnswer:
    if not any(isinstance(block, ImageBlock) or block.text.strip() for block in answer.content):
        raise ValueError("an answer is blank; say so in words")
    if answer.meta is not None:
        check_json(answer.meta)
    return answer


def frozen_summary(value: object) -> Summary:
    """Give a summary with something in it."""
    _instance(value, Summary)
    summary = frozen(value, Summary)
    if not summary.text.strip() or not summary.model.strip():
        raise ValueError("a summary needs a text, and the name of who wrote it")
    _check_usage(summary.usage)
    return summary


def frozen_chunk(value: object) -> Chunk:
    """Give a chunk of a reply."""
    chunk = frozen(value, cast("type[Chunk]", Chunk))
    if isinstance(chunk, UsageChunk):
        _check_usage(chunk.usage)
    return chunk


def frozen_contexts(value: object) -> tuple[Context, ...]:
    """Give context, or none for None."""
    return () if value is None else _checked_contexts(frozen(_listed(value), tuple[Context, ...]))


def _checked_contexts(contexts: tuple[Context, ...]) -> tuple[Context, ...]:
    for context in contexts:
        _check_said("context", context.content)
    return contexts


def frozen_decision(value: object, *shapes: type[Any]) -> Any:
    """Give a decision of one of `shapes`, or None for None."""
    if value is None:
        return None
    decision = frozen(value, _instance(value, *shapes))
    if isinstance(decision, Accept | Submit | GoOn):
        _checked_contexts(decision.context)
    if isinstance(decision, Accept) and decision.answer is not None:
        _checked_answer(decision.answer)
    if isinstance(decision, Submit) and decision.content is not None:
        _check_said("a prompt", decision.content)
    if isinstance(decision, Block | Deny | Stop) and not decision.reason.strip():
        raise ValueError(f"{type(decision).__name__} needs a reason")
    if isinstance(decision, Stop):
        _check_end(decision)
    if isinstance(decision, GoOn) and not decision.context:
        raise ValueError("GoOn needs context: a request must not end with the model's own reply")
    return decision


def frozen_tool(schema: ToolSchema) -> ToolSchema:
    """Give a tool's schema; its parameters are strict JSON."""
    copy = frozen(schema, ToolSchema)
    _check_tool(copy)
    return copy


def _check_end(stop: Stop) -> None:
    if stop.kind is not None and not is_foreign_end(stop.kind):
        raise ValueError(f"a turn's end of a plugin's own is named vendor/name, not {stop.kind!r}")
    if stop.payload is not None:
        if stop.kind is None:
            raise ValueError("a payload needs a kind of the plugin's own")
        check_json(stop.payload)


def _check_usage(usage: Usage | None) -> None:
    if usage is not None and not usage.is_possible:
        raise ValueError("its usage has a number that is no count of tokens")


def _check_tool(tool: ToolSchema) -> None:
    if not tool.name.strip():
        raise ValueError("a tool has no name")
    if not is_json_object(tool.parameters):
        raise ValueError(f"the parameters of the tool {tool.name} are no JSON object")


def _check_said(what: str, content: Iterable[InputBlock]) -> None:
    """Raise for what strict providers refuse for ever: text that is all blank, and images, whose bytes nobody keeps yet."""
    if any(isinstance(block, ImageBlock) for block in content):
        raise ValueError(f"{what} of a plugin is text; an image stands in it")
    if not any(isinstance(block, TextBlock) and block.text.strip() for block in content):
        raise ValueError(f"{what} is blank")


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def _listed(value: object) -> object:
    if not isinstance(value, list | tuple):  # an iterator may never end
        raise TypeError(f"expects a list, got {type(value).__name__}")
    return cast("object", value)


def _instance(value: object, *shapes: type[Any]) -> type[Any]:
    """Give the one of `shapes` that `value` is an instance of: never a class of the plugin's own."""
    for shape in shapes:
        if isinstance(value, shape):
            return shape
    expected = " or ".join(shape.__name__ for shape in shapes)
    raise TypeError(f"expects {expected}, got {type(value).__name__}")
