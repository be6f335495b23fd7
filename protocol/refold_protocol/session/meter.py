"""The meter: how many tokens a session's next request costs one model. A view of the session's state.

A provider's usage is exact for the request that it was reported of. While model and header stay what they were, the total
is that usage and what the surface gained or lost since, by estimate; in any other case the whole request is estimated.
Each node is priced once. What may follow what, which nodes there are, which call was counted last: other folds' matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Struct

from refold_protocol.session.chunks import assemble
from refold_protocol.session.density import Density
from refold_protocol.session.estimate import estimate_header, estimate_message
from refold_protocol.session.events import AssistantChunk, Event, SeqRange
from refold_protocol.session.header import canonical_header
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Message
from refold_protocol.session.meter_profile import MeterProfile
from refold_protocol.session.projection import derive_message
from refold_protocol.session.session_state import CountedCall, SessionState
from refold_protocol.session.tape import Tape

Cited: TypeAlias = Callable[[SeqRange], Iterable[Event]]
"""Gives the events of a log from a first to a last seq. Asked for the chunks of a counted reply, once."""


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


class Meter:
    """The meter of one log for one model. Prices each node once, also after others were put in place of some."""

    def __init__(self, profile: MeterProfile, cited: Cited) -> None:
        self.profile = profile
        self._cited = cited
        self._price_of_seq: dict[int, int] = {}
        self._nodes: Tape[Event] = Tape()
        self._prices: Tape[NodePrice] = Tape()
        self._totals: list[int] = [0]  # of the first n nodes
        self._header: tuple[EpochHeader, EpochHeader, int] | None = None  # as recorded, canonical, its tokens
        self._anchor: Anchor | None = None

    def measure(self, state: SessionState, header: EpochHeader | None = None) -> Pressure:
        """Give what the next request would cost, with `header` (None: the one in force; without one the surface is all).
        O(new nodes); O(nodes) after a replace; O(header) for another header. Raises what reading cited events raises."""
        self._price(state.horizon.surface.nodes)
        surface, profile = self._totals[-1], self.profile
        in_force, header_tokens = self._in_force(state.horizon.header)
        wanted = in_force if header is None else canonical_header(header)
        if wanted is not None and wanted != in_force:
            header_tokens = estimate_header(wanted, profile.density)
        anchor = self._anchor_of(state)
        if anchor is not None and anchor.header != wanted:
            anchor = None
        tokens = header_tokens + surface
        if anchor is not None:
            tokens = max(0, anchor.tokens + surface - anchor.surface)
        return Pressure(profile.model, profile.window, tokens, header_tokens, surface, anchor, state.revision)

    def measure_surface(self, state: SessionState) -> SurfacePrices:
        """Give the price of each surface node. O(new nodes); O(nodes) after a replace."""
        self._price(state.horizon.surface.nodes)
        return SurfacePrices(self._prices, self._totals[-1], state.revision)

    def price(self, node: Event) -> int:
        """Give the estimated tokens of a node of this log; 0 for one that the model does not see."""
        tokens = self._price_of_seq.get(node.seq)
        if tokens is None:
            tokens = self._price_of_seq[node.seq] = price_of(derive_message(node), self.profile.density)
        return tokens

    def _price(self, nodes: Tape[Event]) -> None:
        if not nodes.extends(self._nodes):
            self._nodes, self._prices, self._totals = Tape(), Tape(), [0]
        for node in nodes.since(len(self._nodes)):
            tokens = self.price(node)
            self._prices = self._prices.then(NodePrice(node.seq, tokens))
            self._totals.append(self._totals[-1] + tokens)
        self._nodes = nodes

    def _in_force(self, header: EpochHeader | None) -> tuple[EpochHeader | None, int]:
        if header is None:
            return None, 0
        if self._header is None or self._header[0] is not header:
            self._header = header, canonical_header(header), estimate_header(header, self.profile.density)
        return self._header[1:]

    def _anchor_of(self, state: SessionState) -> Anchor | None:
        call = next((call for call in state.counted if call.model == self.profile.model), None)
        if call is None:
            return None
        if self._anchor is None or self._anchor.seq != call.reply.seq:
            known = self._nodes.extends(call.nodes)
            before = self._totals[len(call.nodes)] if known else sum(map(self.price, call.nodes))
            surface = before + self._output(call)
            self._anchor = Anchor(call.turn, call.step, call.reply.seq, call.tokens, call.header, surface)
        return self._anchor

    def _output(self, call: CountedCall) -> int:
        """Price what the provider put out: the chunks that the reply cites, put together as the loop does; the reply itself
        where it does not say of which chunks it was made."""
        if call.reply.sources is None:
            return self.price(call.reply)
        cited = [event.data for one in call.reply.sources for event in self._cited(one)]
        content = assemble(data.chunk for data in cited if isinstance(data, AssistantChunk)).content
        return price_of(Message("assistant", content) if content else None, self.profile.density)


def price_of(message: Message | None, density: Density) -> int:
    """Estimate the tokens of a node's message; 0 for a node that the model does not see."""
    return 0 if message is None else estimate_message(message, density)
