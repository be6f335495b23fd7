"""Owns the first metering of a long log: what `meter.py` folds event by event, without what a turn leaves nothing of.

Takes what `turn_skim.py` gives. Only the last anchor counts, so only its chunks are priced, when all is read: until then its
estimate lacks what the provider put out. Reads nothing itself.
"""

from __future__ import annotations

from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError, SessionCorruptionError
from refold_protocol.session.codec import CHUNK, decode_at
from refold_protocol.session.estimate import estimate_header
from refold_protocol.session.events import AssistantChunk, Event
from refold_protocol.session.header import header_step
from refold_protocol.session.meter import MeterState, NodePrice, anchored, bare, meter_step, output_of, price_of
from refold_protocol.session.meter_profile import MeterProfile
from refold_protocol.session.projection import derive_message
from refold_protocol.session.skim import Lines
from refold_protocol.session.skimmed_turns import SkimmedTurns, work_over
from refold_protocol.session.surface import Surface
from refold_protocol.session.turn_skim import Skimmed
from refold_protocol.session.work import Work, stream_step
from refold_protocol.session.work_state import Stream


class MeterSkim:
    """The metering of one log from its event 0 on. `state` is that of the fold, but for what the anchor's provider put out."""

    def __init__(self, profile: MeterProfile) -> None:
        self.state = MeterState(profile)
        self._reply: Event | None = None  # the anchor's, while its chunks are not priced

    def take(self, item: Skimmed) -> None:
        """Fold what comes next. Raises what `meter_step` raises."""
        if isinstance(item, SkimmedTurns):
            self._turns(item)
            return
        before = self.state
        self.state = meter_step(replace(before, log_revision=item.seq), item)
        if self.state.anchor is not before.anchor:  # its chunks were passed by, so nothing was priced yet
            self._reply = item if item.sources else None

    def done(self, lines: Lines) -> MeterState:
        """Give the state as of the last event."""
        state, reply = self.state, self._reply
        if state.anchor is None or reply is None or not reply.sources:
            return state
        stream, first = Stream(), reply.sources[0][0]
        for seq, line in enumerate(lines(first, reply.seq), first):
            if line.startswith(CHUNK):
                data = decode_at(line, seq).data
                if isinstance(data, AssistantChunk):
                    stream = stream_step(stream, data, seq)
        surface = state.anchor.surface + output_of(stream, reply, state.profile.density)
        return replace(state, anchor=replace(state.anchor, surface=surface))

    def _turns(self, passed: SkimmedTurns) -> None:
        state, profile = self.state, self.state.profile
        work = _work_over(state.work, passed)
        header, header_tokens, anchor = state.header, state.header_tokens, state.anchor
        nodes, prices, total = list[Event](), list[NodePrice](), state.surface_tokens
        for event in passed.shaping:
            if event.surface_op is not None:
                tokens = price_of(derive_message(event), profile.density)
                found = anchored(event, profile.model, header, total)
                if found is not None:
                    anchor = replace(found, surface=total + tokens) if event.sources is None else found
                    self._reply = event if event.sources else None
                nodes.append(bare(event))
                prices.append(NodePrice(event.seq, tokens))
                total += tokens
            elif (after := header_step(header, event)) is not header and after is not None:
                header, header_tokens = after, estimate_header(after, profile.density)
        surface = Surface(state.surface.nodes.then(*nodes), state.surface.replace_generation)
        revision = passed.ends[-1] + 1
        self.state = MeterState(
            profile, revision, work, surface, state.prices.then(*prices), total, header, header_tokens, anchor
        )


def _work_over(state: Work, passed: SkimmedTurns) -> Work:
    try:
        return work_over(state, passed)
    except InvalidEventError as error:
        raise SessionCorruptionError(f"the log breaks its own rules: {error.message}", **error.details) from error
