"""The meter: how many tokens a session's next request costs one model. A view of the session's state.

A provider's usage is exact for the request that it was reported of. While model and header stay what they were, the total
is that usage and what the surface gained since, by estimate; in any other case the whole request is estimated. Where a part of
the history was replaced, two counted prompts tell what its estimate is worth, and the nearer of them is the one to count from.
Each node is priced once. What may follow what, which nodes there are, which call was counted last: other folds' matter.

The pressure of each request that a log says was sent: what the meter said just before, and what the provider did.

Whether a model can be metered is the caller's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.chunks import assemble
from refold_protocol.session.events import (
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactSummary,
    Event,
    RequestSent,
    SeqRange,
)
from refold_protocol.session.header import canonical_header
from refold_protocol.session.messages import EpochHeader, Message, Usage, text_content
from refold_protocol.session.model_windows import window_of
from refold_protocol.session.projection import derive_message
from refold_protocol.session.request import OpenCompaction, region_nodes
from refold_protocol.session.request_rows import RequestRows, SentRow
from refold_protocol.session.session_state import NO_EVENTS, CountedCall, SessionState, fold_stored
from refold_protocol.session.token_estimate import Density, MeterProfile, estimate_header, estimate_message

Cited: TypeAlias = Callable[[SeqRange], Iterable[Event]]
"""Gives the events of a log from a first to a last seq. Asked for the chunks of a counted reply, once."""


class NodePrice(Struct, frozen=True, gc=False):
    """A surface node, by its seq, and its estimated tokens; 0 for one that the model does not see."""

    seq: int
    tokens: int


class Anchor(Struct, frozen=True, gc=False):
    """A call that a provider counted: `seq` is its reply's, `tokens` its prompt and output, `header` what it was sent with.
    `surface` is the estimate of the surface as that call left it: its prompt's part of it and what the provider put out. Both
    are those of the prompt alone where the first counted call is gone on from."""

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

    nodes: AppendOnlyList[NodePrice]
    tokens: int
    log_revision: int


class Meter:
    """The meter of one log for one model. Prices each node once, also after others were put in place of some."""

    def __init__(self, profile: MeterProfile, cited: Cited) -> None:
        self.profile = profile
        self._cited = cited
        self._price_of_seq: dict[int, int] = {}
        self._nodes: AppendOnlyList[Event] = AppendOnlyList()
        self._prices: AppendOnlyList[NodePrice] = AppendOnlyList()
        self._totals: list[int] = [0]  # of the first n nodes
        self._header: tuple[EpochHeader, EpochHeader, int] | None = None  # as recorded, canonical, its tokens
        self._anchor: Anchor | None = None

    def measure(self, state: SessionState, header: EpochHeader | None = None) -> Pressure:
        """Give what the next request would cost, with `header` (None: the one in force; without one the surface is all).
        O(new nodes); O(nodes) after a replace; O(header) for another header. Raises what reading cited events raises."""
        self._price(state.request_state.surface.nodes)
        surface, profile = self._totals[-1], self.profile
        in_force, header_tokens = self._in_force(state.request_state.header)
        wanted = in_force if header is None else canonical_header(header)
        if wanted is not None and wanted != in_force:
            header_tokens = estimate_header(wanted, profile.density)
        anchor = self._anchor_of(state)
        if anchor is not None and anchor.header != wanted:
            anchor = None
        tokens = header_tokens + surface
        if anchor is not None:
            anchor, worth = self._nearest(state, anchor)
            tokens = max(0, anchor.tokens + round(worth * (surface - anchor.surface)))
        return Pressure(profile.model, profile.window, tokens, header_tokens, surface, anchor, state.revision)

    def measure_surface(self, state: SessionState) -> SurfacePrices:
        """Give the price of each surface node. O(new nodes); O(nodes) after a replace."""
        self._price(state.request_state.surface.nodes)
        return SurfacePrices(self._prices, self._totals[-1], state.revision)

    def price(self, node: Event) -> int:
        """Give the estimated tokens of a node of this log; 0 for one that the model does not see."""
        tokens = self._price_of_seq.get(node.seq)
        if tokens is None:
            tokens = self._price_of_seq[node.seq] = price_of(derive_message(node), self.profile.density)
        return tokens

    def price_summary(self, asked: OpenCompaction) -> int:
        """Give the estimated tokens of the history in a summary's request: its region, and what asks for the summary."""
        asks = price_of(Message("user", text_content(asked.start.instructions)), self.profile.density)
        return sum(map(self.price, region_nodes(asked))) + asks

    def _price(self, nodes: AppendOnlyList[Event]) -> None:
        if not nodes.extends(self._nodes):
            self._nodes, self._prices, self._totals = AppendOnlyList(), AppendOnlyList(), [0]
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
        call = self._counted(state)
        if call is None:
            return None
        if self._anchor is None or self._anchor.seq != call.reply.seq:
            known = self._nodes.extends(call.nodes)
            before = self._totals[len(call.nodes)] if known else sum(map(self.price, call.nodes))
            surface = before + self._output(call)
            self._anchor = Anchor(call.turn, call.step, call.reply.seq, call.tokens, call.header, surface)
        return self._anchor

    def _nearest(self, state: SessionState, last: Anchor) -> tuple[Anchor, float]:
        """Give what to count from, and how many tokens one of an estimate is worth there. After a replace that is the first
        counted prompt with this header, where it is clearly nearer than the last call, by what was counted between them."""
        call = self._counted(state)
        if call is None or state.request_state.surface.nodes.extends(call.nodes):
            return last, 1.0
        first = call.first
        known = Anchor(first.turn, first.step, first.seq, first.tokens, call.header, sum(map(self.price, first.nodes)))
        estimated, counted = last.surface - known.surface, last.tokens - known.tokens
        worth = counted / estimated if estimated >= _TELLING_TOKENS else 1.0
        if not 1 / _MOST_WORTH <= worth <= _MOST_WORTH:
            worth = 1.0
        since_first, since_last = self._strange(state, first.nodes), self._strange(state, (*call.nodes, call.reply))
        return (known if 2 * since_first < since_last else last), worth

    def _strange(self, state: SessionState, counted: Iterable[Event]) -> int:
        """Estimate the tokens that the surface lost and gained since it had the nodes that were counted."""
        then, now = ({node.seq: node for node in nodes} for nodes in (counted, state.request_state.surface.nodes))
        return sum(self.price(one) for seq, one in {**then, **now}.items() if (seq in then) != (seq in now))

    def _counted(self, state: SessionState) -> CountedCall | None:
        return next((call for call in state.counted if call.model == self.profile.model), None)

    def _output(self, call: CountedCall) -> int:
        """Price what the provider put out: the chunks that the reply cites, put together as the loop does; the reply itself
        where it does not say of which chunks it was made."""
        if call.reply.sources is None:
            return self.price(call.reply)
        cited = [event.data for one in call.reply.sources for event in self._cited(one)]
        content = assemble(data.chunk for data in cited if isinstance(data, AssistantChunk)).content
        return price_of(Message("assistant", content) if content else None, self.profile.density)


_TELLING_TOKENS: Final = 64
"""From so many estimated tokens on, what a provider counted of them says something about estimates."""

_MOST_WORTH: Final = 2.5
"""No language is further off than that; figures that say so are no counts."""


def price_of(message: Message | None, density: Density) -> int:
    """Estimate the tokens of a node's message; 0 for a node that the model does not see."""
    return 0 if message is None else estimate_message(message, density)


class PressureRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What is known of one `request/sent`, whose seq is `seq`. `model` is the one that it went to, `metered` the one whose
    meter said the rest; where that has no meter, the rest is absent.

    `tokens` is the pressure: exact up to the anchor, the call at `anchor` (the seq of its reply), and estimated from there;
    without an anchor it is `estimate`, which prices the whole request by the characters of its texts. `usage` is what the
    provider reported; absent where it did not. `read`: its count is too small for what was sent, so the server read at most so
    many tokens of it. `pressure`: what it would have cost before its history was shortened. A summary
    has no `turn` and `step` but the seq of its `compact/start`.
    """

    turn: int | None
    step: int | None
    attempt: int
    seq: int
    model: str
    metered: str
    window: int | None = None
    tokens: int | None = None
    estimate: int | None = None
    anchor: int | None = None
    usage: Usage | None = None
    purpose: str = "step"
    compaction: int | None = None
    read: int | None = None
    pressure: int | None = None

    @property
    def reported(self) -> int | None:
        """Tokens of the prompt, as the provider counted them; None where it did not."""
        return None if self.usage is None or self.usage.prompt_tokens <= 0 else self.usage.prompt_tokens

    @property
    def error(self) -> float | None:
        """By what share the pressure was above (or, negative, below) what the provider reported; None where either is not
        known, and where another model's meter said it: models count differently."""
        return self._off(self.tokens)

    @property
    def estimate_error(self) -> float | None:
        """The same of the estimate of the whole request."""
        return self._off(self.estimate)

    def _off(self, said: int | None) -> float | None:
        reported = self.reported
        if said is None or reported is None or self.model != self.metered:
            return None
        return (said - reported) / reported


class PressureRows:
    """Gathers the rows of a log, of which `cited` gives events once more. `profiles` are those of the models that can be
    metered; each request is measured by the meter of its own model, or by that of `as_model`."""

    def __init__(self, profiles: Iterable[MeterProfile], cited: Cited, as_model: str | None = None) -> None:
        self.rows: list[PressureRow] = []
        self._state: SessionState = NO_EVENTS
        self._meters = {profile.model: Meter(profile, cited) for profile in profiles}
        self._as_model = as_model
        self._requests = RequestRows()
        self._pressure: int | None = None

    def feed(self, event: Event) -> None:
        """Take the next event. Raises what `fold_stored` raises."""
        if event.surface_op not in (None, "append") and self._pressure is None and self.rows:
            meter = self._meters.get(self._as_model or self.rows[-1].model)
            self._pressure = None if meter is None else meter.measure(self._state).tokens
        self._state = fold_stored(self._state, event)
        self._requests.feed(event)
        sent = self._requests.rows
        if isinstance(event.data, RequestSent):
            self.rows.append(self._row(sent[-1]))
        elif isinstance(event.data, AssistantMessage | CompactSummary | CompactEnd):
            self._report(sent)
            cut = next((one for one in self._state.windows if one.seq == event.seq), None)
            if cut is not None and self.rows:
                self.rows[-1] = replace(self.rows[-1], read=cut.read)

    def _report(self, sent: Sequence[SentRow]) -> None:
        """Take over what was reported of the latest requests."""
        for place in range(len(sent) - 1, -1, -1):
            row, usage = self.rows[place], sent[place].usage
            if row.usage is usage and row.compaction is None:
                break
            self.rows[place] = replace(row, usage=usage)

    def _row(self, sent: SentRow) -> PressureRow:
        metered = self._as_model or sent.model
        meter = self._meters.get(metered)
        step, compaction = (sent.step if sent.purpose == "step" else None), self._state.request_state.compaction
        turn = sent.turn if sent.purpose == "step" else None
        row = PressureRow(
            turn, step, sent.attempt, sent.seq, sent.model, metered, purpose=sent.purpose, compaction=sent.compaction
        )
        if meter is None:
            return row
        found = meter.measure(self._state)
        anchor = None if found.anchor is None else found.anchor.seq
        other = 0 if sent.purpose == "step" or compaction is None else meter.price_summary(compaction) - found.surface
        estimate, tokens = found.header + found.surface + other, found.tokens + other
        shown = window_of(self._state.windows, metered).shown
        window = found.window if shown is None else min(found.window, shown)
        pressure, self._pressure = self._pressure, None
        return replace(row, window=window, tokens=tokens, estimate=estimate, anchor=anchor, pressure=pressure)
