"""Owns the blocks of one chat-completions reply: which delta belongs to which block, and when a block opens and ends.

The wire has no blocks; they are made here, numbered in order of appearance. Text and thinking take turns: when one
begins, the other's block ends. Calls stay open until the end, because their pieces may come interleaved. Servers disagree
about how a call's pieces name their call; the rules for that stand in `_call_of`. Knows no JSON and no end of stream.
"""

from __future__ import annotations

from typing import Final

from refold_protocol.dialects.chat_completions_wire import CallDelta, arguments_text
from refold_protocol.dialects.sse import TextRepair
from refold_protocol.json_text import repair_surrogates
from refold_protocol.session.messages import BlockEnd, BlockStart, Chunk, ReasoningDelta, TextDelta, ToolCallDelta

TEXT: Final = "text"
REASONING: Final = "reasoning"


class ReplyBlocks:
    """The blocks of one reply as far as it came. All methods append chunks to the list that they are given."""

    __slots__ = ("_calls", "_calls_by_index", "_count", "_index", "_kind", "_repair")

    def __init__(self) -> None:
        self._count = 0
        self._kind: str | None = None  # of the open block of text or thinking
        self._index = 0  # of the same
        self._repair = TextRepair()
        self._calls: list[_CallParts] = []
        self._calls_by_index: dict[int, _CallParts] = {}

    @property
    def has_calls(self) -> bool:
        """Whether a call has started."""
        return any(call.block is not None for call in self._calls)

    @property
    def is_empty(self) -> bool:
        """Whether no block has started."""
        return self._count == 0

    def add_text(self, kind: str, text: str, clean: bool, chunks: list[Chunk]) -> None:
        """Add text that is not empty to the block of `kind` (TEXT or REASONING); `clean` text has no lone surrogates."""
        if kind != self._kind:
            self._end_text(chunks)
            self._kind = kind
            self._index = self._open(chunks, kind)
        if not clean or self._repair.pending:
            text = self._repair.feed(text)
            if not text:
                return
        chunks.append(TextDelta(self._index, text) if kind == TEXT else ReasoningDelta(self._index, text))

    def add_call(self, entry: CallDelta, chunks: list[Chunk]) -> None:
        """Add one entry of `delta.tool_calls`. A call opens with its name; what came before the name waits for it."""
        function = entry.function
        name = repair_surrogates(function.name) if function is not None and function.name else None
        call = self._call_of(entry, name)
        if call.id is None and entry.id:
            call.id = repair_surrogates(entry.id)
        if function is not None and function.arguments:
            call.early.append(arguments_text(function.arguments))
        if call.block is None:
            if name is None:
                return
            self._end_text(chunks)
            call.block = self._open(chunks, "tool-call", call.id, name)
        for text in call.early:
            if not text.isascii() or call.repair.pending:
                text = call.repair.feed(text)
            if text:
                chunks.append(ToolCallDelta(call.block, text))
        call.early.clear()

    def close(self, chunks: list[Chunk]) -> None:
        """End every open block, in the order of their numbers as far as they are open."""
        ends: list[int] = []
        for call in self._calls:
            if call.block is not None:
                if rest := call.repair.close():
                    chunks.append(ToolCallDelta(call.block, rest))
                ends.append(call.block)
        if self._kind is not None:
            self._close_repair(chunks)
            ends.append(self._index)
            self._kind = None
        chunks.extend(BlockEnd(index) for index in sorted(ends))

    def _call_of(self, entry: CallDelta, name: str | None) -> _CallParts:
        """Find the call that an entry belongs to, or make one.

        By index where there is one, else by id, else the last one unless the entry has a name. An index that comes back
        with another id and a name is a further call of a server that gives them all the same index; with another id and
        no name it is a server that draws an id for each piece.
        """
        call: _CallParts | None = None
        if entry.index is not None:
            call = self._calls_by_index.get(entry.index)
        elif entry.id:
            call = next((known for known in reversed(self._calls) if known.id == entry.id), None)
        if call is None and entry.index is None and name is None and self._calls:
            call = self._calls[-1]
        if call is not None and name and entry.id and call.block is not None and call.id not in (None, entry.id):
            call = None
        if call is None:
            call = _CallParts()
            self._calls.append(call)
            if entry.index is not None:
                self._calls_by_index[entry.index] = call
        return call

    def _open(self, chunks: list[Chunk], block: str, id: str | None = None, name: str | None = None) -> int:  # noqa: A002
        index = self._count
        self._count += 1
        chunks.append(BlockStart(index, block, id, name))
        return index

    def _end_text(self, chunks: list[Chunk]) -> None:
        if self._kind is not None:
            self._close_repair(chunks)
            chunks.append(BlockEnd(self._index))
            self._kind = None

    def _close_repair(self, chunks: list[Chunk]) -> None:
        if rest := self._repair.close():
            chunks.append(TextDelta(self._index, rest) if self._kind == TEXT else ReasoningDelta(self._index, rest))


class _CallParts:
    """One call. `block` is its number once its name is known; `early` holds arguments that are not yet told."""

    __slots__ = ("block", "early", "id", "repair")

    def __init__(self) -> None:
        self.id: str | None = None
        self.block: int | None = None
        self.early: list[str] = []
        self.repair = TextRepair()
