"""The meter over random logs: against a naive reading of the whole log, over any split, and where an event is malformed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.errors import RefoldError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.json_text import JsonText
from refold_protocol.session.chunks import assemble
from refold_protocol.session.codec import decode_event
from refold_protocol.session.density import Density
from refold_protocol.session.estimate import estimate_header, estimate_message
from refold_protocol.session.events import (
    AssistantChunk,
    AssistantMessage,
    ContextMessage,
    Event,
    ForeignData,
    Replace,
    RequestHeaderDelta,
    StepEnd,
    UserMessage,
)
from refold_protocol.session.header import fold_header
from refold_protocol.session.header_types import SystemDelta
from refold_protocol.session.messages import Message, text_content
from refold_protocol.session.meter import MeterState, fold_meter, measure, measure_surface, meter_step
from refold_protocol.session.meter_profile import MeterProfile
from refold_protocol.session.projection import derive_message
from refold_protocol.session.surface import cites, fold_surface
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, Log

PROFILE = MeterProfile("engine/chain", 8_192, Density(2))
START = MeterState(PROFILE)


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
    state = START
    for number, event in enumerate(log.events, 1):
        state = meter_step(state, event)
        assert measure(state).tokens == naive(log.events[:number])
        assert measure(state).log_revision == number


@given(logs(), st.data())
def test_any_split_of_the_replay_gives_the_same_answers(log: Log, data: st.DataObject) -> None:
    whole = fold_meter(log.events, START)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log.events)))))
    state = START
    for first, last in zip([0, *cuts], [*cuts, len(log.events)], strict=True):
        state = fold_meter(log.events[first:last], state)
        measure(state, HEADER)  # reading on the way changes nothing
    assert measure(state) == measure(whole)
    assert measure_surface(state) == measure_surface(whole)


@given(logs())
def test_an_older_state_gives_what_it_gave_after_others_went_on_from_it(log: Log) -> None:
    states = [START]
    told = [(measure(START), tuple(measure_surface(START).nodes))]
    for event in log.events:
        states.append(meter_step(states[-1], event))
        told.append((measure(states[-1]), tuple(measure_surface(states[-1]).nodes)))
    assert [(measure(state), tuple(measure_surface(state).nodes)) for state in states] == told


@given(logs())
def test_a_replace_changes_the_total_by_what_it_puts_in_less_what_it_takes_away(log: Log) -> None:
    state = START
    for event in log.events:
        before, nodes = measure(state), {node.seq: node.tokens for node in measure_surface(state).nodes}
        state = meter_step(state, event)
        if isinstance(event.surface_op, Replace):
            left = {node.seq: node.tokens for node in measure_surface(state).nodes}
            change = left[event.seq] - sum(tokens for seq, tokens in nodes.items() if seq not in left)
            assert measure(state).surface - before.surface == change
            anchor = measure(state).anchor
            assert anchor == before.anchor
            if anchor is not None and before.tokens > 0:
                assert measure(state).tokens == max(0, before.tokens + change)


@given(logs())
def test_only_whole_replies_of_the_metered_model_move_the_anchor(log: Log) -> None:
    state = START
    for event in log.events:
        before = state.anchor
        state = meter_step(state, event)
        if anchors(event):
            assert state.anchor is not None
            assert state.anchor.seq == event.seq
        else:
            assert state.anchor is before


@given(logs())
def test_nodes_are_those_of_the_surface_and_their_prices_add_up(log: Log) -> None:
    prices = measure_surface(fold_meter(log.events, START))
    assert [node.seq for node in prices.nodes] == [node.seq for node in log.surface.nodes]
    assert sum(node.tokens for node in prices.nodes) == prices.tokens == surface_tokens(log.events)
    hidden = [node.seq for node in log.surface.nodes if derive_message(node) is None]
    assert [node.seq for node in prices.nodes if not node.tokens] == hidden


@given(logs())
def test_decoded_lines_are_metered_as_the_events_themselves(log: Log) -> None:
    again = fold_meter(map(decode_event, log.lines), START)
    assert measure(again) == measure(fold_meter(log.events, START))


def refusal(state: MeterState, event: Event) -> RefoldError:
    """Give the error of an event that is refused; the state is as it was, and a retry fails the same way."""
    with pytest.raises(RefoldError) as first:
        meter_step(state, event)
    with pytest.raises(RefoldError) as again:
        meter_step(state, event)
    assert type(first.value) is type(again.value)
    assert (first.value.message, first.value.details) == (again.value.message, again.value.details)
    return first.value


def malformed(log: Log) -> list[Event]:
    """Give events that cannot follow a log without an open step."""
    seq = len(log.events)
    summary = UserMessage(text_content("s"), CLIENT)
    delta = RequestHeaderDelta(system=SystemDelta(1, ("Be kind.",), 9))
    foreign = ForeignData(JsonText("1"))
    strange = ContextMessage((), CLIENT, "an-envelope-of-later")
    return [
        Event("step/end", seq, 0, StepEnd(9, 9), None, None, False, b""),
        Event("user/message", seq, 0, summary, Replace(999, 999), ((0, 0),), False, b""),
        Event("request/header-delta", seq, 0, delta, None, None, False, b""),
        Event("plugin/needed", seq, 0, foreign, None, None, False, b""),
        Event("context/message", seq, 0, strange, "append", None, False, b""),
    ]


@given(logs())
def test_a_malformed_next_event_is_refused_on_each_retry_with_its_seq_and_changes_nothing(log: Log) -> None:
    state = fold_meter(log.events, START)
    before = measure(state), measure_surface(state)
    for event in malformed(log):
        error = refusal(state, event)
        assert isinstance(error, SessionCorruptionError | SessionFormatUnsupportedError)
        assert error.details["seq"] == event.seq
    assert (measure(state), measure_surface(state)) == before
    if log.events:
        event = log.events[-1]
        assert refusal(state, event).details["seq"] == len(log.events)  # where something else should stand


def test_after_a_refusal_the_right_event_is_taken() -> None:
    log = Log()
    log.turn()
    state = fold_meter(log.events, START)
    refusal(state, malformed(log)[0])
    log.step()
    assert measure(fold_meter(log.events[2:], state)) == measure(fold_meter(log.events, START))


def test_a_reply_out_of_place_is_refused_before_it_can_anchor() -> None:
    log = Log()
    log.turn()
    log.step()
    log.reply("Because.")
    state = fold_meter(log.events, START)
    again = replace(log.events[-1], seq=len(log.events))
    assert refusal(state, again).details["seq"] == again.seq
    assert state.anchor is None
