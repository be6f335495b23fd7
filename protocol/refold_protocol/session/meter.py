"""Owns the meter: how many tokens a session's next request costs one model, folded from the log event by event.

A provider's usage is exact for the request that it was reported of. While model and header stay what they were, the total
is that usage and what the surface gained or lost since, by estimate; in any other case the whole request is estimated.
Each node is priced once. States are immutable: an event that is refused leaves the state as it was, and is refused the
same way again. Log.md section 9. What may follow what, which nodes there are, which header is in force: other folds' matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError, SessionCorruptionError
from refold_protocol.session.chunks import assemble
from refold_protocol.session.codec import refuse_foreign
from refold_protocol.session.density import Density
from refold_protocol.session.estimate import estimate_header, estimate_message
from refold_protocol.session.events import AssistantMessage, Event, Replace, ToolResult, UserMessage
from refold_protocol.session.header import canonical_header, header_step
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Chunk, Message, Source, ToolCallBlock
from refold_protocol.session.meter_profile import MeterProfile
from refold_protocol.session.projection import derive_message
from refold_protocol.session.surface import EMPTY_SURFACE, Surface, cites, shadowed_positions, surface_step
from refold_protocol.session.tape import Tape
from refold_protocol.session.work import NO_WORK, Stream, Work, work_step


class NodePrice(Struct, frozen=True, gc=False):
    """A surface node, by its seq, and its estimated tokens; 0 for one that the model does not see."""

    seq: int
    tokens: int


class Anchor(Struct, frozen=True, gc=False):
    """A call that a provider counted: `seq` is its reply's, `tokens` its prompt and output, `header` what it was sent with.
    `surface` is the estimate of the surface as that call left it: its prompt's part of it and what the provider put out."""

    turn: int
    step: int
    seq: int
    tokens: int
    header: EpochHeader
    surface: int


class Pressure(Struct, frozen=True, gc=False):
    """What the next request costs in `tokens`, prompt alone; `anchor` is None where all of it is estimated. `header` and
    `surface` are the estimates of the two parts. `log_revision` counts the events that were consumed."""

    model: str
    window: int
    tokens: int
    header: int
    surface: int
    anchor: Anchor | None
    log_revision: int

    @property
    def ratio(self) -> float:
        """The share of the window that the request takes; above 1 when it does not fit."""
        return self.tokens / self.window


class SurfacePrices(Struct, frozen=True):
    """The nodes of the surface, in its order, each with its price; `tokens` is their sum. Shared, and never seen to change."""

    nodes: Tape[NodePrice]
    tokens: int
    log_revision: int


class MeterState(Struct, frozen=True):
    """State of the fold. `log_revision` counts the events so far. Nodes of `surface` have lost their texts."""

    profile: MeterProfile
    log_revision: int = 0
    work: Work = NO_WORK
    surface: Surface = EMPTY_SURFACE
    prices: Tape[NodePrice] = Tape()
    surface_tokens: int = 0
    header: EpochHeader | None = None
    header_tokens: int = 0
    anchor: Anchor | None = None


def meter_step(state: MeterState, event: Event) -> MeterState:
    """Fold one event. O(event), but for a replace, which is O(nodes).

    Raises SessionCorruptionError for an event that cannot follow, SessionFormatUnsupportedError for one that this release
    cannot read; both name its `seq`.
    """
    if event.seq != state.log_revision:
        raise SessionCorruptionError(f"event {event.seq} stands where {state.log_revision} should", seq=state.log_revision)
    try:
        refuse_foreign(event)
        work = work_step(state.work, event)
        surface = state.surface if event.surface_op is None else surface_step(state.surface, bare(event))
    except InvalidEventError as error:
        raise SessionCorruptionError(f"the log breaks its own rules: {error.message}", seq=event.seq) from error
    header = header_step(state.header, event)
    if event.surface_op is None:
        priced = replace(state, log_revision=event.seq + 1, work=work)
        if header is not state.header and header is not None:
            return replace(priced, header=header, header_tokens=estimate_header(header, state.profile.density))
        return priced
    tokens = price_of(derive_message(event), state.profile.density)
    prices, gained = _priced(state, event, NodePrice(event.seq, tokens))
    return MeterState(
        state.profile,
        event.seq + 1,
        work,
        surface,
        prices,
        state.surface_tokens + gained,
        header,
        state.header_tokens,
        _anchor(state, event, tokens) or state.anchor,
    )


def fold_meter(events: Iterable[Event], state: MeterState) -> MeterState:
    """Fold `events`, going on from `state`. Raises what `meter_step` raises; the events before are lost then."""
    for event in events:
        state = meter_step(state, event)
    return state


def measure(state: MeterState, header: EpochHeader | None = None) -> Pressure:
    """Give what the next request would cost, with `header` (None: the one in force; without one the surface is all). O(1)
    for the header in force, O(header) for another."""
    in_force = None if state.header is None else canonical_header(state.header)
    wanted = in_force if header is None else canonical_header(header)
    header_tokens = state.header_tokens
    if wanted is not None and wanted != in_force:
        header_tokens = estimate_header(wanted, state.profile.density)
    anchor = state.anchor
    if anchor is not None and anchor.header != wanted:
        anchor = None
    tokens = header_tokens + state.surface_tokens
    if anchor is not None:
        tokens = max(0, anchor.tokens + state.surface_tokens - anchor.surface)
    profile = state.profile
    return Pressure(profile.model, profile.window, tokens, header_tokens, state.surface_tokens, anchor, state.log_revision)


def measure_surface(state: MeterState) -> SurfacePrices:
    """Give the price of each surface node. O(1): the nodes are shared."""
    return SurfacePrices(state.prices, state.surface_tokens, state.log_revision)


def price_of(message: Message | None, density: Density) -> int:
    """Estimate the tokens of a node's message; 0 for a node that the model does not see."""
    return 0 if message is None else estimate_message(message, density)


def _priced(state: MeterState, event: Event, node: NodePrice) -> tuple[Tape[NodePrice], int]:
    """Give the prices with those of a new node, and by how many tokens the surface changed."""
    op = event.surface_op
    if not isinstance(op, Replace):
        return state.prices.then(node), node.tokens
    start, end = shadowed_positions(state.surface, op, event.seq)
    shadowed = state.prices[start : end + 1]
    prices = Tape((*state.prices[:start], node, *state.prices[end + 1 :]))
    return prices, node.tokens - sum(one.tokens for one in shadowed)


def _anchor(state: MeterState, event: Event, tokens: int) -> Anchor | None:
    """Give the anchor that a reply is, with what its provider put out: its own price where it does not say of which chunks
    it was made."""
    anchor = anchored(event, state.profile.model, state.header, state.surface_tokens)
    if anchor is None:
        return None
    output = tokens if event.sources is None else output_of(state.work.stream, event, state.profile.density)
    return replace(anchor, surface=anchor.surface + output)


def anchored(event: Event, model: str, header: EpochHeader | None, surface: int) -> Anchor | None:
    """Give the anchor that a reply is which came when `surface` was the estimate of the surface, without what its provider
    put out. A copy of an old reply, an interrupted one, another model's, one without usage is none; nor is one with a prompt
    of no tokens, which providers say that do not count, or with figures that count nothing."""
    reply = event.data
    if not isinstance(reply, AssistantMessage) or event.surface_op != "append" or reply.interrupted:
        return None
    if reply.usage is None or reply.usage.prompt_tokens <= 0 or not reply.usage.is_possible or header is None:
        return None
    if f"{reply.provider}/{reply.model}" != model:
        return None
    return Anchor(reply.turn, reply.step, event.seq, reply.usage.total_tokens, canonical_header(header), surface)


def output_of(stream: Stream, event: Event, density: Density) -> int:
    """Price what the provider put out: the chunks of its stream that the reply cites, put together as the loop does."""
    chunks: Iterable[Chunk] = stream.chunks
    if event.sources != stream.ranges:
        seqs = (seq for first, last in stream.ranges for seq in range(first, last + 1))
        chunks = [chunk for seq, chunk in zip(seqs, stream.chunks, strict=True) if cites(event.sources, seq)]
    content = assemble(chunks).content
    return price_of(Message("assistant", content) if content else None, density)


def bare(event: Event) -> Event:
    """Give a surface event without its texts: they are in the log, and each meter of a session has a surface."""
    data = event.data
    if isinstance(data, AssistantMessage):
        calls = tuple(ToolCallBlock(block.id, "", "") for block in data.content if isinstance(block, ToolCallBlock))
        data = replace(data, content=calls, replay=None)
    elif isinstance(data, ToolResult):
        data = replace(data, content=(), meta=None)
    else:
        data = _PLAIN
    return replace(event, data=data, line=b"")


_PLAIN: Final = UserMessage((), Source(""))
"""Stands for every node that is neither a reply nor a result: the rules of replacing tell no more kinds apart."""
