"""Owns the region of a compaction: which nodes, from the surface's head on, one summary may stand for.

A region never divides a call from its result: the request behind it would begin with a result that nobody asked for, and
providers refuse that for ever. Pure; what a node costs comes in as a figure. When to compact is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold_protocol.session.events import Event, SeqRange, ToolResult, UserMessage
from refold_protocol.session.messages import Source
from refold_protocol.session.surface import calls_of

COMPACTION = Source("loop", "compaction")
"""Whose the message is that stands for a region."""


class Region(Struct, frozen=True, gc=False):
    """The first `count` nodes of a surface: their seqs at both edges, and what they cost together in tokens."""

    first: int
    last: int
    count: int
    tokens: int


def region_of(nodes: Sequence[Event], prices: Sequence[int], retain: int, most: int | None = None) -> Region | None:
    """Give the largest region that leaves at least `retain` tokens behind it and costs at most `most` (None: any).

    `prices` has the tokens of each node, in the surface's order. None where no such region is worth a summary: there is no
    place to cut, or what could be summed up is one summary. O(nodes).
    """
    behind, tokens, found = sum(prices), 0, 0
    for cut, price in _cuts(nodes, prices):
        if behind - price < retain or (most is not None and price > most):
            break
        found, tokens = cut, price
    if found == 0 or (found == 1 and is_summary(nodes[0])):
        return None
    return Region(nodes[0].seq, nodes[found - 1].seq, found, tokens)


def is_summary(node: Event) -> bool:
    """Tell whether a node is a message that a compaction put in place of a region."""
    return isinstance(node.data, UserMessage) and node.data.source == COMPACTION


def ranges_of(seqs: Sequence[int]) -> tuple[SeqRange, ...]:
    """Give seqs, in any order, as ascending ranges."""
    ranges: list[SeqRange] = []
    for seq in sorted(seqs):
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return tuple(ranges)


def _cuts(nodes: Sequence[Event], prices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Iterate over the places between two nodes where no call waits for its result: how many nodes stand before it, and
    their price. The last one is the surface's end."""
    waiting, price = 0, 0
    for position, node in enumerate(nodes):
        price += prices[position]
        waiting += len(calls_of(node)) - isinstance(node.data, ToolResult)
        if not waiting:
            yield position + 1, price
