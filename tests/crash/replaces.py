"""Look at the compactions of a log: each took place whole, in three events behind each other, or changed nothing.

Knows nothing of how the product compacts; goes by events alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold_protocol.session.events import CompactEnd, CompactStart, CompactSummary, Event, Replace, UserMessage
from refold_protocol.session.surface import EMPTY_SURFACE, Surface, surface_step


class _Begun(Struct, frozen=True):
    """A compaction that is open: its event, and the seqs of the surface's nodes when it began."""

    start: Event
    nodes: list[int]


def torn_compactions(events: Sequence[Event], inherited: int = -1, *, closed: bool = False) -> Iterator[str]:
    """Say of each compaction of a whole log what is half done; `closed`: of one without an end as well. A fork may be cut
    inside a landing: of what it inherited, up to the seq `inherited`, only the end is judged."""
    surface = EMPTY_SURFACE
    begun: _Begun | None = None
    for event in events:
        if event.surface_op is not None:
            surface = surface_step(surface, event)
        match event.data:
            case CompactStart():
                if begun is not None:
                    yield f"a compaction began at {event.seq}, and the one of {begun.start.seq} is open"
                begun = _Begun(event, _seqs(surface))
            case CompactEnd():
                if begun is None:
                    yield f"a compaction ended at {event.seq}, and none is open"
                else:
                    yield from _ended(begun, event, events, _seqs(surface))
                begun = None
            case CompactSummary():
                if event.seq > inherited and (begun is None or not _landed(events[event.seq : event.seq + 3])):
                    yield f"the summary at {event.seq} stands without its message and its end"
            case _:
                pass
    if begun is not None and begun.start.seq > inherited and _seqs(surface)[: len(begun.nodes)] != begun.nodes:
        yield f"the compaction of {begun.start.seq} is open, and what it is about has changed"
    if begun is not None and closed:
        yield f"the compaction of {begun.start.seq} has no end"


def _seqs(surface: Surface) -> list[int]:
    return [node.seq for node in surface.nodes]


def _landed(batch: Sequence[Event]) -> bool:
    if len(batch) != 3:
        return False
    message, end = batch[1], batch[2].data
    replaced = isinstance(message.data, UserMessage) and isinstance(message.surface_op, Replace)
    return replaced and isinstance(end, CompactEnd) and end.error is None


def _ended(begun: _Begun, end: Event, events: Sequence[Event], nodes: list[int]) -> Iterator[str]:
    """Hold what the surface is now against what it was when the compaction began."""
    start, before = begun.start, begun.nodes
    assert isinstance(start.data, CompactStart)
    assert isinstance(end.data, CompactEnd)
    if end.data.error is None:
        if not isinstance(events[end.seq - 2].data, CompactSummary):
            yield f"the compaction of {start.seq} took place, and has no summary"
        rest = before[before.index(start.data.range[1]) + 1 :]
        before = [*before[: before.index(start.data.range[0])], end.seq - 1, *rest]
    if nodes[: len(before)] != before:
        yield f"the compaction of {start.seq} ended at {end.seq}, and the surface is {nodes}, was {begun.nodes}"
