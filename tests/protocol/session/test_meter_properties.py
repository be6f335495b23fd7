"""The meter over random logs: against a naive reading of the whole log, whenever it is read, and loaded.

Invariant: The meter's total is what a naive reading of the whole log gives, after each event, over any split; only whole
replies of its own model anchor it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.chunks import assemble
from refold_protocol.session.events import AssistantChunk, AssistantMessage, Event, Replace
from refold_protocol.session.header import fold_header
from refold_protocol.session.messages import Message
from refold_protocol.session.meter import Meter
from refold_protocol.session.projection import derive_message
from refold_protocol.session.session_state import NO_EVENTS, fold
from refold_protocol.session.surface import cites, fold_surface
from refold_protocol.session.token_estimate import Density, MeterProfile, estimate_header, estimate_message
from tests.support.loading import loaded
from tests.support.log_strategies import logs
from tests.support.logs import HEADER, Log
from tests.support.metering import Metering

PROFILE = MeterProfile("engine/chain", 8_192, Density(2))


def surface_tokens(events: Sequence[Event]) -> int:
    """Price the surface from nothing."""
    messages = (derive_message(node) for node in fold_surface(events).nodes)
    return sum(estimate_message(message, PROFILE.density) for message in messages if message is not None)


def output_tokens(events: Sequence[Event], reply: Event) -> int:
    """Price what a reply cites, from nothing."""
    if reply.sources is None:
        message = derive_message(reply)
        return 0 if message is None else estimate_message(message, PROFILE.density)
    chunks = [e.data.chunk for e in events if isinstance(e.data, AssistantChunk) and cites(reply.sources, e.seq)]
    content = assemble(chunks).content
    return estimate_message(Message("assistant", content), PROFILE.density) if content else 0


def anchors(event: Event) -> bool:
    """Tell whether a reply was counted for the metered model."""
    reply = event.data
    return (
        isinstance(reply, AssistantMessage)
        and event.surface_op == "append"
        and (reply.provider, reply.model) == ("engine", "chain")
        and not reply.interrupted
        and reply.usage is not None
        and reply.usage.prompt_tokens > 0
    )


def naive(events: Sequence[Event]) -> int:
    """Give the pressure by reading everything anew."""
    header = fold_header(events)
    now = surface_tokens(events)
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        if not anchors(event):
            continue
        if fold_header(events[:place]) != header:
            break
        assert isinstance(event.data, AssistantMessage)
        assert event.data.usage is not None
        was = surface_tokens(events[:place]) + output_tokens(events, event)
        return max(0, event.data.usage.total_tokens + now - was)
    return now + (0 if header is None else estimate_header(header, PROFILE.density))


@given(logs())
def test_the_total_is_what_a_naive_reading_of_the_whole_log_gives_after_each_event(log: Log) -> None:
    metering = Metering(PROFILE)
    for number, event in enumerate(log.events, 1):
        metering.feed(event)
        assert metering.measure().tokens == naive(log.events[:number])
        assert metering.measure().log_revision == number


@given(logs(), st.data())
def test_reading_on_the_way_changes_nothing(log: Log, data: st.DataObject) -> None:
    whole, metering = Metering(PROFILE, log.events), Metering(PROFILE)
    cuts = set(data.draw(st.lists(st.integers(0, len(log.events)))))
    for number, event in enumerate(log.events):
        if number in cuts:
            metering.measure(HEADER)
            metering.measure_surface()
        metering.feed(event)
    assert metering.measure() == whole.measure()
    assert metering.measure_surface() == whole.measure_surface()


@given(logs(), st.data())
def test_a_state_gives_what_it_gave_whichever_others_were_measured_in_between(log: Log, data: st.DataObject) -> None:
    states, told = [NO_EVENTS], [Metering(PROFILE).measure()]
    for number in range(1, len(log.events) + 1):
        metering = Metering(PROFILE, log.events[:number])
        states.append(metering.state)
        told.append(metering.measure())
    meter = Meter(PROFILE, lambda cited: log.events[cited[0] : cited[1] + 1])
    for place in data.draw(st.lists(st.integers(0, len(log.events)), max_size=8)):
        assert meter.measure(states[place]) == told[place]
        assert [node.seq for node in meter.measure_surface(states[place]).nodes] == [
            node.seq for node in states[place].request_state.surface.nodes
        ]


@given(logs())
def test_a_replace_changes_the_surface_by_what_it_puts_in_less_what_it_takes_away_and_a_counted_call_is_gone_on_from(
    log: Log,
) -> None:
    metering = Metering(PROFILE)
    for event in log.events:
        before, nodes = metering.measure(), {node.seq: node.tokens for node in metering.measure_surface().nodes}
        metering.feed(event)
        if isinstance(event.surface_op, Replace):
            left = {node.seq: node.tokens for node in metering.measure_surface().nodes}
            change = left[event.seq] - sum(tokens for seq, tokens in nodes.items() if seq not in left)
            found = metering.measure()
            assert found.surface - before.surface == change
            assert (found.anchor is None) == (before.anchor is None)
            if found.anchor is not None and found.tokens > 0:
                off, estimated = found.tokens - found.anchor.tokens, found.surface - found.anchor.surface
                low, high = sorted((estimated / 2.5, estimated * 2.5))
                assert low - 1 <= off <= high + 1


@given(logs())
def test_only_whole_replies_of_the_metered_model_move_its_last_counted_call(log: Log) -> None:
    state = NO_EVENTS
    for event in log.events:
        before = {call.model: call for call in state.counted}.get("engine/chain")
        state = fold(state, event)
        now = {call.model: call for call in state.counted}.get("engine/chain")
        if anchors(event):
            assert now is not None
            assert now.reply.seq == event.seq
        else:
            assert now is before


@given(logs())
def test_nodes_are_those_of_the_surface_and_their_prices_add_up(log: Log) -> None:
    prices = Metering(PROFILE, log.events).measure_surface()
    assert [node.seq for node in prices.nodes] == [node.seq for node in log.surface.nodes]
    assert sum(node.tokens for node in prices.nodes) == prices.tokens == surface_tokens(log.events)
    hidden = [node.seq for node in log.surface.nodes if derive_message(node) is None]
    assert [node.seq for node in prices.nodes if not node.tokens] == hidden


@given(logs(), st.integers(0, 10_000))
def test_a_log_that_was_loaded_is_metered_as_one_that_was_folded(log: Log, end: int) -> None:
    events = log.events[: end % (len(log.events) + 1)]
    meter = Meter(PROFILE, lambda cited: events[cited[0] : cited[1] + 1])
    state = loaded([event.line for event in events])
    assert meter.measure(state) == Metering(PROFILE, events).measure()
    assert meter.measure_surface(state) == Metering(PROFILE, events).measure_surface()
