"""Owns the shortening of large tool results: which are large, and what is left of one.

A result that was shortened keeps its beginning, its end and a note with the place of the whole one, which stays in the log.
Pure. Nothing is shortened twice. Where a text may be cut is `boundary.py`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.events import Draft, Event, Replace, ToolResult
from refold_protocol.session.messages import Message, ResultBlock, TextBlock, text_content
from refold_protocol.session.projection import derive_message
from refold_server.compaction.boundary import head_end, tail_start
from refold_server.compaction.policy import Bounds
from refold_server.meters import ModelTokenMeter

_SHARE: Final = 64
"""A result is large that takes more than one in so many tokens of the window."""

_LEAST: Final = 400
"""No result of at most so many tokens is large."""

_READ: Final = 8
"""A piece of a result that is read again takes at most one in so many tokens of the window."""

_KEPT: Final = 3
"""One in so many tokens of what is large is kept."""


class Cut(Struct, frozen=True):
    """A node that can be replaced by a shorter one, and the tokens which that saves."""

    node: Event
    result: ToolResult
    saved: int

    @property
    def draft(self) -> Draft:
        """What does it."""
        seq = self.node.seq
        return Draft(self.result, Replace(seq, seq), ((seq, seq),))


def cuts_of(nodes: Sequence[Event], prices: Sequence[int], meter: ModelTokenMeter) -> tuple[Cut, ...]:
    """Give what can be shortened, in the order of `nodes`; `prices` are theirs. O(characters of what is large)."""
    large = large_of(meter.profile.window)
    return tuple(_cuts(zip(nodes, prices, strict=True), large, meter))


def large_of(window: int) -> int:
    """Give above how many tokens a result is large in a window of so many."""
    return max(_LEAST, window // _SHARE)


def readable(text: str, meter: ModelTokenMeter) -> int:
    """Give how many of a text's first characters a result may hold that stays whole until the model has read it: less than
    what stays at the end of a history."""
    most, count = meter.profile.window // _READ, len(text)
    while count > 1 and (price := meter.estimate_message(Message("user", text_content(text[:count])))) > most:
        count = max(1, count * most // price)
    return count


def before_tail(prices: Sequence[int], retain: int) -> int:
    """Give how many nodes stand before the last ones that together cost at least `retain` tokens."""
    left, count = retain, len(prices)
    while count and left > 0:
        count -= 1
        left -= prices[count]
    return count


def relief(pressure: int, bounds: Bounds) -> int:
    """Give how many tokens must be saved so that shortening is enough by itself for a while."""
    return pressure - (bounds.threshold - bounds.worth)


def _cuts(priced: Iterable[tuple[Event, int]], large: int, meter: ModelTokenMeter) -> Iterator[Cut]:
    for node, price in priced:
        data = node.data
        if price <= large or not isinstance(data, ToolResult) or isinstance(node.surface_op, Replace):
            continue
        characters = sum(len(block.text) for block in data.content if isinstance(block, TextBlock))
        kept = int(characters * (large // _KEPT) / price)
        shorter = replace(data, content=tuple(_shortened(data.content, kept, characters, node.seq)), meta=None)
        message = derive_message(replace(node, data=shorter))
        saved = price - (0 if message is None else meter.estimate_message(message))
        if saved > 0:
            yield Cut(node, shorter, saved)


def _shortened(content: tuple[ResultBlock, ...], kept: int, characters: int, seq: int) -> Iterator[ResultBlock]:
    """Shorten each text by the same share, so that about `kept` of all characters are left."""
    for block in content:
        if isinstance(block, TextBlock) and block.text:
            yield TextBlock(shortened(block.text, kept * len(block.text) // characters, seq))
        else:
            yield block


def shortened(text: str, kept: int, seq: int) -> str:
    """Give about `kept` characters of a text, two thirds from its beginning, around a note that names the event `seq`; the
    text itself where that would be no shorter."""
    kept = min(kept, len(text))
    head = head_end(text, kept * 2 // 3)
    tail = max(tail_start(text, kept // 3), head)
    note = f"\n[… {tail - head:,} characters cut out here to make room; read_result with seq {seq} gives the whole result …]\n"
    return text if tail - head <= len(note) else f"{text[:head]}{note}{text[tail:]}"
