"""The partial reply: what is kept of a stream that did not finish. The loop and the closers write the same one."""

from __future__ import annotations

import pytest
from hypothesis import given

from refold_protocol.session.closers import interrupted_turn_closers, partial_reply
from refold_protocol.session.events import AssistantMessage, Draft, SessionTitle
from refold_protocol.session.grammar import NO_TURN
from refold_protocol.session.messages import (
    BlockStart,
    CallConfig,
    Chunk,
    EpochHeader,
    FinishChunk,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from refold_protocol.session.request import request_of
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, Log, call, spoken

THOUGHT = ReasoningDelta(0, "They want to know why.")


def _streaming(*chunks: Chunk) -> Log:
    log = Log()
    log.turn()
    log.step()
    log.stream(*chunks)
    return log


def _kept(log: Log) -> AssistantMessage:
    draft = partial_reply(log.work)
    assert draft is not None
    assert isinstance(draft.data, AssistantMessage)
    return draft.data


def test_the_text_that_was_delivered_is_kept_and_marked() -> None:
    log = _streaming(BlockStart(0, "text"), TextDelta(0, "Beca"), TextDelta(0, "use"))
    expected = AssistantMessage(1, 1, (TextBlock("Because"),), "engine", "chain", "other", interrupted=True)
    assert _kept(log) == expected


def test_usage_and_reason_are_kept_as_far_as_they_came() -> None:
    kept = _kept(_streaming(UsageChunk(Usage(40, 1)), TextDelta(0, "Be"), UsageChunk(Usage(40, 3)), FinishChunk("length")))
    assert (kept.usage, kept.finish) == (Usage(40, 3), "length")


def test_a_call_is_dropped_even_when_all_of_it_arrived() -> None:
    log = _streaming(
        *spoken("Look:"), BlockStart(1, "tool-call", "c1", "read_file"), ToolCallDelta(1, "{}"), FinishChunk("stop")
    )
    assert _kept(log).content == (TextBlock("Look:"),)
    log.close()
    assert log.work.calls == ()


def test_thinking_alone_is_kept_for_people_and_never_reaches_the_model() -> None:
    """B-03a: only reasoning had arrived."""
    log = _streaming(THOUGHT)
    assert _kept(log).content == (ReasoningBlock("They want to know why."),)
    before = tuple(log.request_state.history)
    assert log.close()[0].type == "assistant/message"
    assert tuple(log.request_state.history) == before


@pytest.mark.parametrize(
    "chunks",
    [(), (UsageChunk(Usage(40, 0)),), (TextDelta(0, " \n"),), (ReasoningDelta(0, "\t"), BlockStart(1, "text"))],
    ids=["nothing", "usage", "blanks", "blank thinking"],
)
def test_nothing_is_recorded_when_nothing_visible_arrived(chunks: tuple[Chunk, ...]) -> None:
    """B-03b: cancelled before the first byte, or before anything that a person could see."""
    log = _streaming(*chunks)
    assert partial_reply(log.work) is None
    assert [event.type for event in log.close()] == ["step/end", "turn/end"]


def test_a_reply_cut_in_its_first_call_leaves_nothing() -> None:
    """A-04c: half a call is neither run nor sent back."""
    log = _streaming(BlockStart(0, "tool-call", "c0", "write"), ToolCallDelta(0, '{"path":"a.txt","text":"lo'))
    assert partial_reply(log.work) is None


def test_failed_attempts_leave_no_message_and_the_next_prompt_is_well_formed() -> None:
    """B-03c: three refusals in a row."""
    log = Log()
    for _ in range(3):
        log.turn("Why?")
        log.step()
        log.end_step("error")
        log.end_turn()
    log.turn("Why?")
    log.step()
    assert [message.role for message in request_of(log.request_state).history] == ["user"] * 4


def test_it_cites_exactly_the_chunks_of_the_last_attempt() -> None:
    log = _streaming(*spoken("half"))
    log.send(2)
    log.stream(TextDelta(0, "who"), attempt=2)
    first = len(log.events) - 1
    log.add(SessionTitle("Why", CLIENT))
    log.stream(TextDelta(0, "le"), attempt=2)
    draft = partial_reply(log.work)
    assert draft is not None
    assert (draft.sources, draft.surface_op) == (((first, first), (first + 2, first + 2)), "append")
    assert _kept(log).content == (TextBlock("whole"),)


def test_it_names_provider_and_model_of_the_header_in_force() -> None:
    log = Log()
    log.whole_turn()
    log.turn()
    log.step(EpochHeader(CallConfig("other", "random", "chat-completions")))
    log.stream(TextDelta(0, "a"))
    kept = _kept(log)
    assert (kept.turn, kept.step, kept.provider, kept.model) == (2, 1, "other", "random")


def test_there_is_none_outside_a_step_or_once_the_step_has_its_reply() -> None:
    assert partial_reply(NO_TURN) is None
    log = _streaming(*spoken("Because."))
    log.reply("Because.", call("c1"))
    assert partial_reply(log.work) is None
    log.result("c1")
    log.end_step()
    assert partial_reply(log.work) is None


@given(logs())
def test_a_crash_leaves_the_same_reply_as_a_cancelled_turn(log: Log) -> None:
    by_the_loop = partial_reply(log.work)
    by_closers = [draft for draft in interrupted_turn_closers(log.events) if isinstance(draft.data, AssistantMessage)]
    if by_the_loop is None:
        assert by_closers == []
    else:
        (closer,) = by_closers
        assert Draft(closer.data, closer.surface_op, closer.sources) == by_the_loop
        assert closer.time == log.events[-1].time
