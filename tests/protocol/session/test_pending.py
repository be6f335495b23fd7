"""Pending inputs: accepted, and neither consumed by a message nor settled. Forks begin without any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.ids import InputId
from refold_protocol.session.events import (
    ContextMessage,
    InputAccepted,
    InputSettled,
    InstanceStart,
    SteeringMessage,
    UserMessage,
)
from refold_protocol.session.messages import text_content
from refold_protocol.session.session_state import PendingInput, fold_all
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, LOOP, Log

WORDS = text_content("word")
ONE, TWO = InputId("one"), InputId("two")


def _names(log: Log) -> list[str]:
    return [waiting.input for waiting in fold_all(log.events).pending]


def _accepted(*names: str) -> Log:
    log = Log()
    for name in names:
        log.accept(name)
    return log


def test_an_accepted_input_waits_with_everything_that_came_with_it() -> None:
    log = Log()
    log.instance()
    seq = log.add(InputAccepted(ONE, "steer", WORDS, CLIENT, "key-1")).seq
    assert fold_all(log.events).pending == (PendingInput(ONE, seq, "steer", WORDS, CLIENT, "key-1"),)


def test_inputs_wait_in_the_order_in_which_they_were_accepted() -> None:
    assert _names(_accepted("two", "one", "three")) == ["two", "one", "three"]


def test_a_prompt_waits_until_its_message_joins_not_until_its_turn_starts() -> None:
    log = _accepted("one", "two")
    log.turn(text=None, given=ONE)
    assert _names(log) == ["one", "two"]
    log.append(UserMessage(WORDS, CLIENT, ONE))
    assert _names(log) == ["two"]


def test_an_injection_and_a_steering_are_consumed_by_their_messages() -> None:
    log = _accepted("one", "two")
    log.turn()
    log.append(ContextMessage(WORDS, CLIENT, "context", TWO))
    assert _names(log) == ["one"]
    log.append(SteeringMessage(1, WORDS, CLIENT, ONE))
    assert _names(log) == []


def test_messages_without_an_input_consume_none() -> None:
    log = _accepted("one")
    log.whole_turn()
    log.replace(UserMessage(text_content("A summary."), LOOP), log.surface.nodes[0].seq, log.surface.nodes[0].seq)
    assert _names(log) == ["one"]


@pytest.mark.parametrize("how", ["withdrawn", "blocked", "aborted"])
def test_a_settled_input_waits_no_longer(how: str) -> None:
    log = _accepted("one", "two")
    log.add(InputSettled(ONE, how))
    assert _names(log) == ["two"]
    log.add(InputSettled(InputId("nobody's"), how))
    assert _names(log) == ["two"]


def test_a_resume_keeps_what_waits_and_a_fork_begins_without() -> None:
    log = _accepted("one")
    log.instance("resume")
    assert _names(log) == ["one"]
    log.instance("fork")
    assert _names(log) == []
    log.accept("two")
    assert _names(log) == ["two"]


@given(logs(), st.integers(0, 60))
def test_folding_a_prefix_and_going_on_equals_folding_all(log: Log, cut: int) -> None:
    assert fold_all(log.events[cut:], fold_all(log.events[:cut])) == fold_all(log.events)


@given(logs())
def test_pending_is_accepted_minus_consumed_minus_settled(log: Log) -> None:
    gone = {
        event.data.input: event.seq
        for event in log.events
        if isinstance(event.data, UserMessage | ContextMessage | SteeringMessage | InputSettled)
    }
    forks = [e.seq for e in log.events if isinstance(e.data, InstanceStart) and e.data.reason == "fork"]
    fork = forks[-1] if forks else -1
    accepted = [event for event in log.events if isinstance(event.data, InputAccepted)]
    waiting = [
        event.seq
        for event in accepted
        if isinstance(event.data, InputAccepted) and event.seq > max(fork, gone.get(event.data.input, -1))
    ]
    assert [one.seq for one in fold_all(log.events).pending] == waiting
