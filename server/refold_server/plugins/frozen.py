"""Owns the way of a plugin's values into refold: each becomes a copy of its own, frozen all the way down, or is refused.

A plugin may hand over structs that hold lists, or that it keeps and changes later. A value is written as JSON and read
back as its type, so the copy shares nothing with it and is lossless JSON, as everything that can reach the log must be.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from refold_protocol.json_text import check_json
from refold_protocol.session.header import canonical_config
from refold_protocol.session.header_types import CallConfig, ToolSchema
from refold_protocol.session.messages import Message
from refold_server.plugins.payloads import Accept, Assembled, Block, Context, Deny, GoOn, Stop, Submit
from refold_server.tools.execute import ToolAnswer

T = TypeVar("T")


def frozen(value: object, shape: type[T]) -> T:
    """Give a copy of `value` that is deeply immutable. Raises ValueError or TypeError for what is not of that shape."""
    try:
        return cast("T", _decoder(shape).decode(msgspec.json.encode(value)))
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        raise ValueError(f"what it gave is no {getattr(shape, '__name__', shape)}: {error}") from None


def frozen_messages(value: object) -> tuple[Message, ...]:
    """Give a prefix: messages of users and assistants with something in them."""
    messages = frozen(_listed(value), tuple[Message, ...])
    for message in messages:
        if message.role not in ("user", "assistant"):
            raise ValueError(f"a message of the prefix has the role {message.role!r}; it is user or assistant")
        if not message.content:
            raise ValueError("a message of the prefix is empty")
        if message.replay is not None:
            check_json(message.replay.data)
    return messages


def frozen_config(value: object) -> CallConfig:
    """Give a call config in its canonical form."""
    _instance(value, CallConfig)
    config = frozen(value, CallConfig)
    for text in (config.dialect_options, config.extra):
        if text is not None:
            check_json(text)
    return canonical_config(config)


def frozen_assembled(value: object) -> Assembled:
    """Give a system text and tools whose names differ."""
    _instance(value, Assembled)
    assembled = frozen(value, Assembled)
    names = [tool.name for tool in assembled.tools]
    if len(set(names)) != len(names):
        raise ValueError(f"two tools have the same name: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    for tool in assembled.tools:
        check_json(tool.parameters)
    return assembled


def frozen_answer(value: object) -> ToolAnswer:
    """Give an answer of a tool with something in it."""
    _instance(value, ToolAnswer)
    answer = frozen(value, ToolAnswer)
    if not answer.content:
        raise ValueError("an answer is empty; say so in words")
    if answer.meta is not None:
        check_json(answer.meta)
    return answer


def frozen_contexts(value: object) -> tuple[Context, ...]:
    """Give context, or none for None."""
    return () if value is None else frozen(_listed(value), tuple[Context, ...])


def frozen_decision(value: object, *shapes: type[Any]) -> Any:
    """Give a decision of one of `shapes`, or None for None."""
    if value is None:
        return None
    _instance(value, *shapes)
    decision = frozen(value, type(value))
    if isinstance(decision, Accept) and decision.answer is not None:
        frozen_answer(decision.answer)
    if isinstance(decision, Submit) and decision.content is not None and not decision.content:
        raise ValueError("a prompt cannot be empty")
    if isinstance(decision, Block | Deny | Stop) and not decision.reason.strip():
        raise ValueError(f"{type(decision).__name__} needs a reason")
    if isinstance(decision, GoOn) and not decision.context:
        raise ValueError("GoOn needs context: a request must not end with the model's own reply")
    return decision


def frozen_tool(schema: ToolSchema) -> ToolSchema:
    """Give a tool's schema; its parameters are strict JSON."""
    copy = frozen(schema, ToolSchema)
    check_json(copy.parameters)
    return copy


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def _listed(value: object) -> list[object]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"expects a list, got {type(value).__name__}")
    return list(cast("Iterable[object]", value))


def _instance(value: object, *shapes: type[Any]) -> None:
    if not isinstance(value, shapes):
        expected = " or ".join(shape.__name__ for shape in shapes)
        raise TypeError(f"expects {expected}, got {type(value).__name__}")
