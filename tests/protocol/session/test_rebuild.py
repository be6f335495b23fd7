"""The reconstruction boundary: which request follows from a log, and that it only ever grows at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import InvariantError, SessionFormatUnsupportedError, TurnMismatchError
from refold_protocol.ids import CallId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import (
    ContextMessage,
    Event,
    ForeignData,
    Replace,
    RequestHeader,
    StepStart,
    ToolResult,
    UserMessage,
)
from refold_protocol.session.header import fold_header
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, text_content
from refold_protocol.session.projection import derive_message
from refold_protocol.session.request import NO_REQUESTS, RequestState, horizon_step, rebuild, request_of, sent_requests
from refold_protocol.session.surface import fold_surface
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, LOOP, Log, call

OTHER = EpochHeader(CallConfig("engine", "random", "chat-completions"), "Be thorough.")


def _watched(events: Iterator[Event]) -> Iterator[Event]:
    yield from events


def _texts(log: Log, turn: int, step: int) -> list[str]:
    request = rebuild(log.events, turn, step)
    return [str(block) for message in request.history for block in message.content]


def _horizon(events: list[Event], state: RequestState = NO_REQUESTS) -> RequestState:
    for event in events:
        state = horizon_step(state, event)
    return state


def _boundary(log: Log, sent: Event) -> int:
    """The seq of the step/start that belongs to a request/sent, found by looking back."""
    return max(event.seq for event in log.events[: sent.seq] if isinstance(event.data, StepStart))


def test_the_messages_are_those_of_the_surface_strictly_before_the_steps_start() -> None:
    log = Log()
    log.turn("Why?")
    log.step()
    log.reply("Look:", call("c1"))
    log.result("c1", "one")
    log.end_step()
    log.append(ContextMessage(text_content("two"), CLIENT, "raw"))
    log.step()
    assert tuple(rebuild(log.events, 1, 1).history) == (Message("user", text_content("Why?")),)
    asked, answered, told = tuple(rebuild(log.events, 1, 2).history)[1:]
    assert (asked.role, answered.role, told.content) == ("assistant", "user", text_content("two"))


def test_context_after_the_last_result_joins_the_next_request_and_not_this_steps_retry() -> None:
    log = Log()
    log.turn("Why?")
    log.step()
    log.reply(call("c1"))
    log.result("c1")
    log.append(ContextMessage(text_content("late"), CLIENT, "raw"))
    log.end_step()
    log.step()
    assert "late" not in str(_texts(log, 1, 1))
    assert "late" in _texts(log, 1, 2)[-1]


def test_the_header_is_the_one_that_the_step_itself_recorded() -> None:
    log = Log()
    log.whole_turn()
    log.turn()
    log.step(OTHER)
    log.reply("Because.")
    log.end_step()
    log.step(HEADER)
    assert [rebuild(log.events, *place).header for place in ((1, 1), (2, 1), (2, 2))] == [HEADER, OTHER, HEADER]


def test_a_step_without_a_header_of_its_own_has_the_last_one() -> None:
    log = Log()
    log.whole_turn()
    log.turn()
    log.step()
    assert sum(isinstance(event.data, RequestHeader) for event in log.events) == 1
    assert rebuild(log.events, 2, 1).header == HEADER


def test_a_retry_sends_the_same_request_again() -> None:
    log = Log()
    log.turn()
    log.step()
    log.stream(attempt=1)
    log.send(2)
    first, second = (request for _, _, request in sent_requests(log.events))
    assert first == second == rebuild(log.events, 1, 1) == request_of(log.request_state)


def test_a_replace_makes_the_next_request_from_the_new_surface() -> None:
    log = Log()
    log.whole_turn("Why?", "Because.")
    nodes = log.surface.nodes
    log.replace(UserMessage(text_content("A summary."), LOOP), nodes[0].seq, nodes[-1].seq)
    log.turn("And?")
    log.step()
    assert [message.content for message in rebuild(log.events, 2, 1).history] == [
        text_content("A summary."),
        text_content("And?"),
    ]
    assert [message.content for message in rebuild(log.events, 1, 1).history] == [text_content("Why?")]


def test_what_the_model_does_not_see_stays_unseen_after_a_replace() -> None:
    log = Log()
    log.whole_turn("Why?", " ")
    prompt = log.surface.nodes[0].seq
    log.replace(UserMessage(text_content("A summary."), LOOP), prompt, prompt)
    log.turn("And?")
    log.step()
    assert [message.role for message in rebuild(log.events, 2, 1).history] == ["user", "user"]


def test_pruning_changes_one_message_and_keeps_its_place() -> None:
    log = Log()
    log.turn()
    log.tool_step("c1", "c2")
    old = log.surface.nodes[2]
    log.replace(ToolResult(1, 1, CallId("c1"), text_content("(cut)"), is_error=False), old.seq, old.seq)
    log.step()
    before = [derive_message(event) for event in log.events if event.surface_op == "append"]
    after = list(rebuild(log.events, 1, 2).history)
    assert [one == two for one, two in zip(before, after, strict=True)] == [True, True, False, True]


@pytest.mark.parametrize(("turn", "step"), [(1, 2), (2, 1), (3, 1), (0, 1), (1, 0)])
def test_a_step_that_never_was_or_made_no_request_is_a_mismatch(turn: int, step: int) -> None:
    log = Log()
    log.whole_turn()
    log.turn()
    log.add(StepStart(2, 1))
    log.end_step("aborted")
    log.step()
    with pytest.raises(TurnMismatchError, match=rf"no request of step {turn}\.{step} "):
        rebuild(log.events, turn, step)


def test_rebuilding_reads_no_further_than_the_request() -> None:
    log = Log()
    log.turn()
    log.step()
    sent = list(log.events)
    log.close()
    reader = iter(log.events)
    assert rebuild(_watched(reader), 1, 1) == rebuild(sent, 1, 1)
    assert next(reader).seq == len(sent)


def test_rebuilding_a_step_that_made_no_request_stops_at_its_end() -> None:
    log = Log()
    log.turn()
    log.add(StepStart(1, 1))
    end = log.end_step("aborted").seq
    log.close()
    reader = iter(log.events)
    with pytest.raises(TurnMismatchError):
        rebuild(_watched(reader), 1, 1)
    assert next(reader).seq == end + 1


def test_a_log_with_an_unknown_event_is_refused_unless_it_may_be_skipped() -> None:
    for ignorable in (True, False):
        log = Log()
        log.add(ForeignData(JsonText("{}")), type="plugin/surface", ignorable=ignorable)
        log.turn()
        log.step()
        if ignorable:
            assert rebuild(log.events, 1, 1) == next(sent_requests(log.events))[2]
        else:
            with pytest.raises(SessionFormatUnsupportedError, match="plugin/surface"):
                rebuild(log.events, 1, 1)
            with pytest.raises(SessionFormatUnsupportedError, match="plugin/surface"):
                list(sent_requests(log.events))


def test_there_is_no_request_outside_a_step_or_before_any_header() -> None:
    log = Log()
    log.turn()
    log.add(StepStart(1, 1))
    with pytest.raises(InvariantError, match="no header was recorded"):
        request_of(log.request_state)
    log.add(RequestHeader(HEADER, "initial"))
    assert request_of(log.request_state).header == HEADER
    log.end_step()
    with pytest.raises(InvariantError, match="no step is open"):
        request_of(log.request_state)


def test_a_request_for_a_summary_is_no_request_of_a_step() -> None:
    log = Log()
    log.turn()
    log.step()
    log.end_step("overflow")
    log.compaction(1, 1, None)
    log.add(StepStart(1, 2))
    assert [(sent.turn, sent.step) for _, sent, _ in sent_requests(log.events)] == [(1, 1)]
    with pytest.raises(TurnMismatchError):
        rebuild(log.events, 1, 2)


def test_a_request_that_was_made_never_changes_when_the_log_goes_on() -> None:
    log = Log()
    log.turn()
    log.step()
    request = request_of(log.request_state)
    as_it_was = tuple(request.history)
    log.reply("Because.")
    log.end_step()
    log.replace(UserMessage(text_content("A summary."), LOOP), log.surface.nodes[0].seq, log.surface.nodes[0].seq)
    log.step()
    assert tuple(request.history) == as_it_was


@given(logs(), st.integers(0, 60))
def test_folding_a_prefix_and_going_on_equals_folding_all(log: Log, cut: int) -> None:
    assert _horizon(log.events[cut:], _horizon(log.events[:cut])) == _horizon(log.events) == log.request_state


@given(logs())
def test_every_request_is_the_projected_surface_before_its_step_under_the_header_at_its_dispatch(log: Log) -> None:
    for event, sent, request in sent_requests(log.events):
        derived = map(derive_message, fold_surface(log.events[: _boundary(log, event)]).nodes)
        assert list(request.history) == [message for message in derived if message is not None]
        assert request.header == fold_header(log.events[: event.seq])
        assert sent.turn is not None
        assert sent.step is not None
        assert rebuild(log.events, sent.turn, sent.step) == request


@given(logs())
def test_without_a_replace_between_them_a_request_begins_with_the_messages_of_the_one_before(log: Log) -> None:
    start, before, its_messages = 0, NO_REQUESTS.history, tuple[Message, ...]()
    for event, _, request in sent_requests(log.events):
        behind, start = start, _boundary(log, event)
        if not any(isinstance(one.surface_op, Replace) for one in log.events[behind:start]):
            assert tuple(request.history)[: len(its_messages)] == its_messages
            assert request.history.extends(before)  # so that encoders and digests go on from where they were
        before, its_messages = request.history, tuple(request.history)
