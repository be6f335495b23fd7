"""The blocks of one chat-completions reply: which delta belongs to which block, and when a block opens and ends.

The wire has no blocks; they are made here, numbered in order of appearance. Text and thinking take turns: when one
begins, the other's block ends. Calls stay open until the end, because their pieces may come interleaved. Servers disagree
about how a call's pieces name their call; the rules for that stand in `_call_of`. What may repeat an earlier call is kept
back until the end shows whether it does. Knows no JSON of events and no end of stream.
"""

from __future__ import annotations

from typing import Final, cast

from refold_protocol.dialects.call_parts import CallParts
from refold_protocol.dialects.chat_completions_wire import CallDelta, arguments_text, bad_stream
from refold_protocol.dialects.sse import TextRepair
from refold_protocol.json_text import repair_surrogates
from refold_protocol.session.messages import BlockEnd, BlockStart, Chunk, ReasoningDelta, TextDelta, ToolCallDelta

TEXT: Final = "text"
REASONING: Final = "reasoning"

PIECE_SIZE: Final = 32
"""What a piece counts beside its characters: what keeping it takes, about."""

MAX_CALLS: Final = 1024
"""How many calls one reply may have."""


class ReplyBlocks:
    """The blocks of one reply as far as it came. All methods append chunks to the list that they are given."""

    __slots__ = ("_calls", "_calls_by_index", "_count", "_index", "_kind", "_repair", "is_blank", "size")

    def __init__(self) -> None:
        self._count = 0
        self._kind: str | None = None  # of the open block of text or thinking
        self._index = 0  # of the same
        self._repair = TextRepair()
        self._calls: list[CallParts] = []
        self._calls_by_index: dict[int, CallParts] = {}
        self.size = 0
        """Characters of text, thinking and arguments so far, and PIECE_SIZE for each piece."""
        self.is_blank = True
        """Whether no text or thinking came that is more than white space."""

    @property
    def has_calls(self) -> bool:
        """Whether a call has a name."""
        return any(call.name is not None for call in self._calls)

    @property
    def calls_are_whole(self) -> bool:
        """Whether the arguments of each call are a JSON object."""
        return all(call.is_whole for call in self._calls if call.name is not None or call.parts)

    @property
    def has_nameless_call(self) -> bool:
        """Whether arguments came that belong to no name."""
        return any(call.name is None and call.twin is None and "".join(call.parts).strip() for call in self._calls)

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
        if self.is_blank and not text.isspace():
            self.is_blank = False
        self.size += PIECE_SIZE + len(text)
        if not clean or self._repair.pending:
            text = self._repair.feed(text)
            if not text:
                return
        chunks.append(TextDelta(self._index, text) if kind == TEXT else ReasoningDelta(self._index, text))

    def add_call(self, entry: CallDelta, chunks: list[Chunk]) -> None:
        """Add one entry of `delta.tool_calls`. A call opens with its name; what came before the name waits for it."""
        function = entry.function
        if function is None:
            name, text = None, ""
        else:
            name = function.name or None
            text = arguments_text(function.arguments) if function.arguments else ""
            self.size += PIECE_SIZE + len(text)
            call = self._calls_by_index.get(-1 if entry.index is None else entry.index)
            if call is not None and call.takes(entry.id, name, text):  # a plain piece of a call that is told already
                chunks.append(ToolCallDelta(cast("int", call.block), text))
                return
            name = None if name is None else repair_surrogates(name)
        call = self._call_of(entry, name, text)
        if call.id is None and entry.id:
            call.id = repair_surrogates(entry.id)
        if call.name is None and name is not None:
            call.name = name
        if text:
            call.add(text)
        if call.twin is None and call.name is not None:
            self._tell(call, chunks)

    def close(self, chunks: list[Chunk]) -> None:
        """End every open block, in the order of their numbers as far as they are open."""
        for call in self._calls:
            self._settle(call, chunks)
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

    def _tell(self, call: CallParts, chunks: list[Chunk]) -> None:
        if call.block is None:
            self._end_text(chunks)
            call.block = self._open(chunks, "tool-call", call.id, call.name)
        for text in call.ready():
            chunks.append(ToolCallDelta(call.block, text))

    def _settle(self, call: CallParts, chunks: list[Chunk]) -> None:
        """Give what was kept back of a call, now that all has come: nothing where it repeats an earlier one."""
        call.unwrap()
        first = call.twin
        if first is None:
            if call.name is not None:
                call.release()
                self._tell(call, chunks)
        elif not call.repeats(first):
            if call.name is None or not call.parts:  # arguments for no name: with the first one's they make no call that runs
                first.join(call)
                self._tell(first, chunks)
            else:
                call.release()
                self._tell(call, chunks)

    def _call_of(self, entry: CallDelta, name: str | None, text: str) -> CallParts:
        """Find the call that an entry belongs to, or make one.

        By index where there is one, else by id, else the last one unless the entry has a name. An index that comes back is
        a further call where the name is another one, or where name and id are there and the id is another one (a server that
        gives all calls the same index). With another id and no name it is a server that draws an id for each piece. What
        begins anew after whole arguments, or comes under a new index with a known id, may repeat a call.
        """
        call: CallParts | None = None
        first: CallParts | None = None
        if entry.index is not None:
            call = self._calls_by_index.get(entry.index)
            if call is None and entry.id:
                first = self._with_id(entry.id)
        elif entry.id:
            call = self._with_id(entry.id)
        if call is None and first is None and entry.index is None and name is None and self._calls:
            call = self._calls[-1]
        if first is not None and name is not None and name != first.name:
            first = None
        if call is not None:
            if name is not None and call.is_another(entry.id, name):
                call = None
            elif text and call.parts and call.ends_before(text):
                if call.is_withheld_braces:
                    call.clear()
                else:
                    call, first = None, call
        return self._new_call(entry, first) if call is None else call

    def _new_call(self, entry: CallDelta, first: CallParts | None) -> CallParts:
        if len(self._calls) >= MAX_CALLS:
            raise bad_stream(f"more than {MAX_CALLS:,} tool calls")
        call = CallParts(None if first is None else first.twin or first)
        self._calls.append(call)
        if entry.index is not None:
            self._calls_by_index[entry.index] = call
        return call

    def _with_id(self, name: str) -> CallParts | None:
        return next((known for known in reversed(self._calls) if known.id == name), None)

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
