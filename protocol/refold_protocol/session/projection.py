"""Surface projection: what the model sees of one event. Part of FORMAT_VERSION 0.

The result for a recorded event never changes: a golden file per type holds it. Other words need a new `envelope`
value. Placeholders such as "(no output)" are recorded in events, never added here. An event is projected without
looking at any other one.

Escaping for the inside of an envelope such as `<context source="…">…</context>`: nothing that closes it.

A file or a program must not be able to end the envelope and go on as somebody else. The projection puts the envelope around
what is recorded, and never changes; so this is applied where content comes in. A text without a closing tag keeps its bytes.
Pure.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec.structs import replace

from refold_protocol.errors import SessionFormatUnsupportedError
from refold_protocol.session.events import AssistantMessage, ContextMessage, Event, SteeringMessage, ToolResult, UserMessage
from refold_protocol.session.messages import Block, InputBlock, Message, Source, TextBlock, ToolCallBlock, ToolResultBlock


def derive_message(event: Event) -> Message | None:
    """Give the message that a surface event becomes, or None for one that the model does not see.

    A reply without visible text and without a call yields nothing: strict providers refuse such messages for ever. Raises
    SessionFormatUnsupportedError for an envelope of a later release: its words are not known here.
    """
    match event.data:  # the most frequent ones first
        case AssistantMessage(content=content, replay=replay) if is_visible(content):
            return Message("assistant", content, replay)
        case ToolResult(call_id=call_id, content=content, is_error=is_error):
            return Message("user", (ToolResultBlock(call_id, content, is_error),))
        case UserMessage(content=content):
            return Message("user", content)
        case ContextMessage(content=content, envelope="raw"):
            return Message("user", content)
        case ContextMessage(content=content, source=source, envelope="context"):
            return Message("user", _enclosed("context", source, content))
        case ContextMessage(envelope=envelope):
            raise SessionFormatUnsupportedError(
                f"event {event.seq} has the envelope {envelope!r}, which this release does not know; use a later one",
                seq=event.seq,
            )
        case SteeringMessage(content=content, source=source):
            return Message("user", _enclosed("steering", source, content))
        case _:
            return None


def is_visible(content: tuple[Block, ...]) -> bool:
    """Tell whether a reply holds text that is not blank, or a call."""
    return any(
        isinstance(block, ToolCallBlock) or (isinstance(block, TextBlock) and not block.text.isspace() and block.text)
        for block in content
    )


def _enclosed(tag: str, source: Source, content: tuple[InputBlock, ...]) -> tuple[Block, ...]:
    name = source.kind if source.name is None else f"{source.kind}:{source.name}"
    opening, closing = f'<{tag} source="{_escaped(name)}">\n', f"\n</{tag}>"
    if all(isinstance(block, TextBlock) for block in content):
        text = "\n".join(block.text for block in content if isinstance(block, TextBlock))
        return (TextBlock(f"{opening}{text}{closing}"),)
    return (TextBlock(opening), *content, TextBlock(closing))


def _escaped(name: str) -> str:
    return name.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def enclosed_text(tag: str, text: str) -> str:
    """Give a text for the inside of an envelope: the `<` of each closing tag of `tag` becomes `&lt;`. Idempotent.

    A closing tag is what HTML takes for one: `</`, the name in any case, then a space, `/`, `>` or the end of the text.
    """
    return _closing(tag).sub("&lt;", text) if "</" in text else text


def enclosed_content(tag: str, content: tuple[InputBlock, ...]) -> tuple[InputBlock, ...]:
    """Give content for the inside of an envelope; the same blocks where nothing closes it. Between two blocks the projection
    puts a line end, which no closing tag begins with."""
    return tuple(_enclosed_block(tag, block) if isinstance(block, TextBlock) else block for block in content)


def _enclosed_block(tag: str, block: TextBlock) -> TextBlock:
    text = enclosed_text(tag, block.text)
    return block if text is block.text or text == block.text else replace(block, text=text)


@cache
def _closing(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<(?=/{re.escape(tag)}(?:[\s/>]|\Z))", re.IGNORECASE | re.ASCII)
