"""Surface fold: which events the model sees now, in which order, and the rules of replacing them.

A node's identity is its event's seq. An append goes to the tail; a replace takes the positional closed range between two
current nodes and puts the new node there, after which seqs on the surface need not ascend. There is no delete: removing
is replacing. Where the surface may grow is `grammar.py`'s matter; what a node says to the model is `projection.py`'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from refold_protocol.errors import InvalidEventError
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import AssistantMessage, Event, Replace, SeqRange, ToolResult
from refold_protocol.session.messages import ToolCallBlock


class Surface(Struct, frozen=True):
    """State of the fold: the nodes' events in surface order, and how many replaces there were.

    While `replace_generation` is unchanged a derived projection is extended; when it rose, it is built anew.
    """

    nodes: AppendOnlyList[Event] = AppendOnlyList()
    replace_generation: int = 0


EMPTY_SURFACE = Surface()

_BEYOND: Final = 1 << 63
"""Above every seq."""


def surface_step(state: Surface, event: Event) -> Surface:
    """Fold one event. O(1) for an append, O(nodes) for a replace. Raises InvalidEventError for a replace that breaks a rule."""
    op = event.surface_op
    if op is None:
        return state
    if op == "append":
        return Surface(state.nodes.then(event), state.replace_generation)
    start, end = shadowed_positions(state, op, event.seq)
    shadowed = state.nodes[start : end + 1]
    _check_cited(event, shadowed)
    _check_kind(event, shadowed)
    nodes = AppendOnlyList((*state.nodes[:start], event, *state.nodes[end + 1 :]))
    return Surface(nodes, state.replace_generation + 1)


def fold_surface(events: Iterable[Event], state: Surface = EMPTY_SURFACE) -> Surface:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = surface_step(state, event)
    return state


def shadowed_positions(state: Surface, op: Replace, seq: int) -> tuple[int, int]:
    """Give the first and last position of the nodes that `op` takes away. Raises InvalidEventError."""
    return positions_of(state, (op.start, op.end), seq)


def positions_of(state: Surface, edges: SeqRange, seq: int) -> tuple[int, int]:
    """Give the positions of the first and the last node of the range that the event `seq` names. Raises InvalidEventError."""
    positions = {node.seq: position for position, node in enumerate(state.nodes) if node.seq in edges}
    for edge in edges:
        if edge not in positions:
            raise InvalidEventError(f"event {seq} names node {edge}, which is not on the surface", seq=seq)
    start, end = positions[edges[0]], positions[edges[1]]
    if start > end:
        raise InvalidEventError(f"event {seq} names the nodes from {edges[0]} back to {edges[1]}", seq=seq)
    return start, end


def cites(sources: tuple[SeqRange, ...] | None, seq: int) -> bool:
    """Tell whether `seq` lies in one of the ranges, which ascend. O(log ranges): a compaction has one for each node."""
    if not sources:
        return False
    place = bisect_right(sources, (seq, _BEYOND)) - 1
    return place >= 0 and seq <= sources[place][1]


def calls_of(node: Event) -> list[str]:
    """Give the ids of the calls of a reply, in their order; none for any other node."""
    if not isinstance(node.data, AssistantMessage):
        return []
    return [block.id for block in node.data.content if isinstance(block, ToolCallBlock)]


def _check_cited(event: Event, shadowed: tuple[Event, ...]) -> None:
    for node in shadowed:
        if not cites(event.sources, node.seq):
            raise InvalidEventError(f"event {event.seq} replaces node {node.seq} without citing it", seq=event.seq)


def _check_kind(event: Event, shadowed: tuple[Event, ...]) -> None:
    lone = shadowed[0].data if len(shadowed) == 1 else None
    new = event.data
    if not isinstance(new, ToolResult):
        _check_whole_calls(event, shadowed)
    elif not (isinstance(lone, ToolResult) and lone.call_id == new.call_id):
        raise InvalidEventError(f"event {event.seq} puts a tool result in place of something else", seq=event.seq)


def _check_whole_calls(event: Event, shadowed: tuple[Event, ...]) -> None:
    """A call and its result go together: half of a pair makes every later request one that providers refuse."""
    waiting: list[str] = []
    for node in shadowed:
        waiting.extend(calls_of(node))
        if isinstance(node.data, ToolResult):
            if node.data.call_id not in waiting:
                message = f"event {event.seq} takes the result of call {node.data.call_id} away"
                raise InvalidEventError(message, seq=event.seq)
            waiting.remove(node.data.call_id)
    if waiting != calls_of(event):
        raise InvalidEventError(f"event {event.seq} changes which calls wait for the results behind it", seq=event.seq)
