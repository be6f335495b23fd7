"""Assembler: chunks of one attempt to the content of a reply, whole or partial.

The same pure functions serve the loop, which assembles what it streamed, and the closers, which assemble what a dead
process streamed; so both write the same bytes. Knows nothing of providers: their quirks end in the dialect's decoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from refold_protocol.json_text import repair_surrogates
from refold_protocol.session.messages import (
    Block,
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)

NO_FINISH: Final = "other"
"""The `finish` of a reply whose stream gave no reason."""


class Reply(Struct, frozen=True, gc=False):
    """What a stream's chunks amount to. `finish` is None when the stream gave no positive end. Call ids may be empty."""

    content: tuple[Block, ...]
    finish: str | None
    usage: Usage | None


class _Open:
    """A block while it is put together."""

    __slots__ = ("closed", "id", "kind", "name", "parts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.id = ""
        self.name = ""
        self.parts: list[str] = []
        self.closed = False


def assemble(chunks: Iterable[Chunk]) -> Reply:
    """Put chunks of one attempt together, in the order in which blocks first appeared.

    A block's kind and name are set once; deltas after its end are ignored; the last usage wins.
    """
    blocks: dict[int, _Open] = {}
    finish: str | None = None
    usage: Usage | None = None
    for chunk in chunks:
        match chunk:
            case UsageChunk(usage=known):
                usage = known
            case FinishChunk(reason=reason):
                finish = reason
            case BlockStart(index=index, block=kind):
                block = blocks.setdefault(index, _Open(kind))
                block.id = block.id or chunk.id or ""
                block.name = block.name or chunk.name or ""
            case BlockEnd(index=index):
                if index in blocks:
                    blocks[index].closed = True
            case TextDelta(index=index, text=part):
                _add(blocks, index, "text", part)
            case ReasoningDelta(index=index, text=part):
                _add(blocks, index, "reasoning", part)
            case ToolCallDelta(index=index, arguments=part):
                _add(blocks, index, "tool-call", part)
    content = (_finished(block) for block in blocks.values())
    return Reply(tuple(block for block in content if block is not None), finish, usage)


def partial_content(content: tuple[Block, ...]) -> tuple[Block, ...] | None:
    """Give what is kept of a reply that did not finish: text and reasoning; None when nothing visible remains.

    Calls are dropped, because half a call must neither run nor be sent back.
    """
    kept = without_calls(content)
    if any(isinstance(block, TextBlock | ReasoningBlock) and block.text.strip() for block in kept):
        return kept
    return None


def without_calls(content: tuple[Block, ...]) -> tuple[Block, ...]:
    """Give `content` without its tool-call blocks."""
    return tuple(block for block in content if not isinstance(block, ToolCallBlock))


def with_call_ids(content: tuple[Block, ...], turn: int, step: int, used: Callable[[str], bool]) -> tuple[Block, ...]:
    """Give `content` in which each call has an id that no earlier call of the session has.

    A missing or used id becomes `call_<turn>_<step>_<n>`, n counting the reply's calls from 1.
    """
    named: list[Block] = []
    taken: set[str] = set()
    number = 0
    for block in content:
        if isinstance(block, ToolCallBlock):
            number += 1
            if not block.id or block.id in taken or used(block.id):
                block = ToolCallBlock(_free_id(turn, step, number, taken, used), block.name, block.arguments)
            taken.add(block.id)
        named.append(block)
    return tuple(named)


def repaired_arguments(text: str) -> str:
    """Apply the named repairs to a call's arguments: nothing at all or `null` means `{}`; lone surrogates become U+FFFD,
    those that stand as escapes inside the JSON text included."""
    if text.strip() in ("", "null"):
        return "{}"
    return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], repair_surrogates(text))


_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def _add(blocks: dict[int, _Open], index: int, kind: str, part: str) -> None:
    block = blocks.get(index)
    if block is None:
        block = blocks[index] = _Open(kind)
    if not block.closed and block.kind == kind:
        block.parts.append(part)


def _finished(block: _Open) -> Block | None:
    text = "".join(block.parts)
    if block.kind == "tool-call":
        return ToolCallBlock(block.id, block.name, repaired_arguments(text))
    if not text:
        return None
    return ReasoningBlock(text) if block.kind == "reasoning" else TextBlock(text)


def _free_id(turn: int, step: int, number: int, taken: set[str], used: Callable[[str], bool]) -> str:
    name = f"call_{turn}_{step}_{number}"
    while name in taken or used(name):
        name += "_"
    return name
