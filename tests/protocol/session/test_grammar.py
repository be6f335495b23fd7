"""The grammar of the log: what `turn_step` refuses, one test per rule. `test_work.py` holds what it lets through."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError
from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import seal
from refold_protocol.session.event_data import COMPLETED
from refold_protocol.session.events import (
    TYPE_OF_DATA,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    CompactSummary,
    ContextMessage,
    Draft,
    EncoderId,
    Event,
    ForeignData,
    InstanceStart,
    LlmRetry,
    RequestHeader,
    RequestHeaderDelta,
    RequestSent,
    SessionTitle,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    Trigger,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.grammar import turn_step
from refold_protocol.session.messages import TextDelta, text_content
from tests.support.logs import CLIENT, HEADER, LOOP, Log, call

WORDS = text_content("word")
PROMPT = UserMessage(WORDS, CLIENT)
CONTEXT = ContextMessage(WORDS, CLIENT, "context")
STEERING = SteeringMessage(1, WORDS, CLIENT)
TRIGGER = Trigger("message", CLIENT)
CHUNK = AssistantChunk(1, 1, 1, TextDelta(0, "a"))
SENT = RequestSent("step", 1, EncoderId("no-such-dialect", 1), 0, "", "", 1, 1)
RETRY = LlmRetry(1, 1, 1, "provider.timeout", 5)
ASKED = ApprovalAsked(ApprovalId("ap"), CallId("c1"), "read_file", ApprovalSubject("path", "a.txt"))


def refuses(log: Log, data: Any, rule: str, **envelope: Any) -> None:
    """Hold that `data` may not follow, for that reason, and that the error names its seq."""
    with pytest.raises(InvalidEventError, match=rule) as caught:
        log.add(data, **envelope)
    assert caught.value.details["seq"] == len(log.events)


def in_turn() -> Log:
    log = Log()
    log.turn()
    return log


def in_step() -> Log:
    log = in_turn()
    log.step()
    return log


def replied(*names: str) -> Log:
    log = in_step()
    log.reply("Look:", *(call(name) for name in names))
    return log


def after_step() -> Log:
    log = in_step()
    log.reply("Because.")
    log.end_step()
    return log


def test_turns_do_not_nest() -> None:
    refuses(in_turn(), TurnStart(2, TRIGGER), "turn 1 is open")


@pytest.mark.parametrize("turn", [0, 1, 3])
def test_turns_number_from_one_without_gaps(turn: int) -> None:
    log = Log()
    refuses(log, TurnStart(2, TRIGGER), "turn 2 after turn 0")
    log.whole_turn()
    refuses(log, TurnStart(turn, TRIGGER), f"turn {turn} after turn 1")


def test_a_turn_ends_once_under_its_own_number_and_after_its_steps() -> None:
    log = in_turn()
    refuses(log, TurnEnd(2, COMPLETED), "turn 2 is not open")
    refuses(in_step(), TurnEnd(1, COMPLETED), "step 1 is open")
    log.end_turn()
    refuses(log, TurnEnd(1, COMPLETED), "turn 1 is not open")


def test_steps_do_not_nest_and_stand_inside_their_turn() -> None:
    refuses(in_step(), StepStart(1, 2), "a step opens in its turn, outside other steps")
    refuses(in_turn(), StepStart(2, 1), "a step opens in its turn, outside other steps")
    refuses(Log(), StepStart(1, 1), "a step opens in its turn, outside other steps")


@pytest.mark.parametrize("step", [0, 1, 3])
def test_steps_number_from_one_in_each_turn_without_gaps(step: int) -> None:
    refuses(after_step(), StepStart(1, step), f"step {step} after step 1")
    log = after_step()
    log.end_turn()
    log.turn()
    refuses(log, StepStart(2, 2), "step 2 after step 0")
    log.add(StepStart(2, 1))


@pytest.mark.parametrize("data", [CHUNK, RETRY, SENT, StepEnd(1, 1), AssistantMessage(1, 1, (), "e", "c", "stop")])
def test_what_names_a_step_stands_in_that_step(data: Any) -> None:
    append = {"surface_op": "append"} if isinstance(data, AssistantMessage) else {}
    for log in (Log(), in_turn(), after_step()):
        refuses(log, data, r"names step 1\.1; open is", **append)
    second = after_step()
    second.step()
    refuses(second, data, r"names step 1\.1; open is 1\.2", **append)
    other_turn = after_step()
    other_turn.end_turn()
    other_turn.turn()
    other_turn.step()
    refuses(other_turn, data, r"names step 1\.1; open is 2\.1", **append)


def test_a_request_of_a_step_names_it_and_one_for_a_summary_stands_in_a_compaction() -> None:
    nameless = RequestSent("step", 1, EncoderId("no-such-dialect", 1), 0, "", "")
    summary = RequestSent("summary", 1, EncoderId("no-such-dialect", 1), 0, "", "", 1)
    for log in (Log(), in_turn(), in_step()):
        refuses(log, nameless, "names step None.None")
        refuses(log, summary, "no compaction is open")
    log = in_turn()
    log.add(CompactStart("pressure", (1, 1), "Sum up.", HEADER.config, 1))
    refuses(log, RequestSent("summary", 1, EncoderId("no-such-dialect", 1), 0, "", ""), "names turn None; open is 1")
    log.add(summary)


def test_a_request_has_a_header_and_its_attempts_follow_each_other() -> None:
    log = in_turn()
    log.add(StepStart(1, 1))
    refuses(log, SENT, "no header was recorded")
    log = in_step()
    for attempt in (0, 1, 3):
        refuses(log, replace(SENT, attempt=attempt), f"attempt {attempt} after attempt 1")
    log.add(replace(SENT, attempt=2))


def test_chunks_come_of_the_attempt_that_was_sent_last() -> None:
    log = in_turn()
    log.add(StepStart(1, 1))
    refuses(log, CHUNK, "attempt 1, and attempt 0 was sent last")
    refuses(log, replace(CHUNK, attempt=0), "attempt 0, and attempt 0 was sent last")
    log = in_step()
    refuses(log, replace(CHUNK, attempt=2), "attempt 2, and attempt 1 was sent last")
    log.add(CHUNK)
    log.send(2)
    refuses(log, CHUNK, "attempt 1, and attempt 2 was sent last")


def test_a_reply_follows_a_request_and_cites_chunks_of_its_attempt() -> None:
    message = AssistantMessage(1, 1, WORDS, "e", "c", "stop")
    unsent = in_turn()
    unsent.add(StepStart(1, 1))
    refuses(unsent, message, "no request of this step was sent", surface_op="append")
    log = in_step()
    log.add(CHUNK)
    log.send(2)
    first, last = log.add(replace(CHUNK, attempt=2)), log.add(replace(CHUNK, attempt=2))
    for sources in (((0, 0),), ((first.seq - 2, first.seq - 2),), ((first.seq - 1, last.seq),), ((0, 0), (last.seq, last.seq))):
        refuses(log, message, "not chunks of its attempt", surface_op="append", sources=sources)
    log.append(message, sources=((last.seq, last.seq),))


def test_a_result_cites_nothing_of_earlier_steps() -> None:
    log = after_step()
    log.step()
    log.reply(call("c1"))
    result = ToolResult(1, 2, CallId("c1"), WORDS, is_error=False)
    refuses(log, result, "cites event 1, which is not of its step", surface_op="append", sources=((1, 1),))
    started = log.call("c1").seq
    log.append(result, sources=((started, started),))


def test_only_and_all_events_of_surface_types_have_a_surface_op() -> None:
    log = in_step()
    cases: list[tuple[Any, Any, str]] = [
        (AssistantMessage(1, 1, WORDS, "e", "c", "stop"), None, "needs a surfaceOp"),
        (CHUNK, "append", "takes no surfaceOp"),
        (StepEnd(1, 1), "append", "takes no surfaceOp"),
    ]
    for data, op, rule in cases:
        event = Event(TYPE_OF_DATA[type(data)], len(log.events), 0, data, op, None, False, b"")
        with pytest.raises(InvalidEventError, match=rule) as caught:
            turn_step(log.work, event)
        assert caught.value.details["seq"] == len(log.events)
    foreign = Event("acme/note", len(log.events), 0, ForeignData(JsonText("1")), "append", None, True, b"")
    with pytest.raises(InvalidEventError, match="takes no surfaceOp"):
        turn_step(log.work, foreign)


@pytest.mark.parametrize("sources", [((3, 2),), ((1, 1), (1, 2)), ((9, 99),), ((2, 2), (0, 0))])
def test_sources_are_earlier_ascending_and_disjoint_on_events_of_every_type(sources: tuple[tuple[int, int], ...]) -> None:
    log = in_step()
    for data in (CHUNK, SessionTitle("Why", CLIENT), ForeignData(JsonText("1"))):
        event = Event(TYPE_OF_DATA.get(type(data), "acme/note"), len(log.events), 0, data, None, sources, True, b"")
        with pytest.raises(InvalidEventError, match="sources must be ascending, disjoint and before"):
            turn_step(log.work, event)


def test_a_prompt_joins_inside_a_turn_and_never_inside_a_step() -> None:
    refuses(Log(), PROMPT, "one prompt", surface_op="append")
    for log in (in_step(), replied("c1"), replied()):
        refuses(log, PROMPT, "one prompt", surface_op="append")


def test_a_prompt_waits_for_a_turn_of_its_own() -> None:
    refuses(in_turn(), PROMPT, "one prompt", surface_op="append")
    unprompted = Log()
    unprompted.turn(text=None)
    unprompted.step()
    unprompted.reply("Because.")
    unprompted.end_step()
    refuses(unprompted, PROMPT, "one prompt", surface_op="append")
    unprompted.end_turn()
    assert unprompted.turn() == 2


def test_steering_joins_its_own_turn_between_two_steps() -> None:
    for log in (Log(), in_step(), replied("c1"), replied()):
        refuses(log, STEERING, "steering joins before a step of its turn", surface_op="append")
    refuses(after_step(), SteeringMessage(2, WORDS, CLIENT), "steering joins before a step", surface_op="append")
    after_step().append(STEERING)


def test_context_joins_before_a_step_or_after_the_last_result() -> None:
    refuses(Log(), CONTEXT, "context joins inside a turn", surface_op="append")
    refuses(in_step(), CONTEXT, "before a step or after the last result", surface_op="append")
    in_turn().append(CONTEXT)
    after_step().append(CONTEXT)
    replied().append(CONTEXT)


def test_nothing_stands_on_the_surface_between_a_call_and_its_result() -> None:
    log = replied("c1", "c2")
    for name in ("c1", "c2"):
        log.call(name)
        for data in (CONTEXT, STEERING, PROMPT):
            refuses(log, data, "may not stand here", surface_op="append")
        log.result(name)
    log.append(CONTEXT)


def test_a_step_has_one_reply() -> None:
    refuses(replied(), AssistantMessage(1, 1, WORDS, "e", "c", "stop"), "the step has its reply", surface_op="append")


@pytest.mark.parametrize("data", [CHUNK, SENT, RETRY], ids=["chunk", "request", "retry"])
def test_nothing_more_comes_from_the_provider_after_the_reply(data: Any) -> None:
    refuses(replied("c1"), data, "the step has its reply")


@pytest.mark.parametrize("data", [RequestHeader(HEADER, "fallback"), RequestHeaderDelta(config=HEADER.config)])
def test_a_header_stands_in_a_step_before_its_request(data: Any) -> None:
    unsent = in_turn()
    for log in (Log(), unsent, after_step(), in_step(), replied()):
        refuses(log, data, "a header stands in a step, before its request")
    unsent.add(StepStart(1, 1))
    turn_step(unsent.work, seal(Draft(data), len(unsent.events), 0))


def test_no_reply_makes_two_calls_of_one_id() -> None:
    message = AssistantMessage(1, 1, (call("c1"), call("c1")), "e", "c", "tool-calls")
    refuses(in_step(), message, "two calls of one reply have the same id", surface_op="append")


def test_a_call_is_one_of_the_replys_and_starts_once() -> None:
    refuses(in_step(), ToolCall(1, 1, CallId("c1"), "read_file", "{}"), "no call 'c1' waits in this step")
    log = replied("c1")
    refuses(log, ToolCall(1, 1, CallId("c2"), "read_file", "{}"), "no call 'c2' waits in this step")
    refuses(log, ToolCall(1, 2, CallId("c1"), "read_file", "{}"), r"names step 1\.2; open is 1\.1")
    log.call("c1")
    refuses(log, ToolCall(1, 1, CallId("c1"), "read_file", "{}"), "call c1 started before")


def test_a_result_answers_a_call_of_this_step_once() -> None:
    log = replied("c1")
    stray = ToolResult(1, 1, CallId("c9"), WORDS, is_error=False)
    refuses(log, stray, "no call 'c9' waits in this step", surface_op="append")
    late = ToolResult(1, 2, CallId("c1"), WORDS, is_error=False)
    refuses(log, late, r"names step 1\.2; open is 1\.1", surface_op="append")
    log.result("c1")
    second = ToolResult(1, 1, CallId("c1"), WORDS, is_error=False)
    refuses(log, second, "no call 'c1' waits in this step", surface_op="append")


def test_a_step_does_not_end_while_a_call_waits() -> None:
    log = replied("c1", "c2")
    log.result("c2")
    refuses(log, StepEnd(1, 1), "calls wait for their results")


def test_a_step_does_not_end_while_an_approval_waits() -> None:
    log = replied("c1")
    log.add(ASKED)
    log.result("c1")
    refuses(log, StepEnd(1, 1), "approvals wait for a decision")


def test_an_approval_is_asked_for_a_call_that_waits_and_decided_once() -> None:
    log = replied("c1")
    refuses(replied(), ASKED, "no call 'c1' waits in this step")
    decided = ApprovalDecided(ApprovalId("ap"), "allowed", "once", CLIENT)
    refuses(log, decided, "decides ap, which is not open")
    log.add(ASKED)
    log.add(decided)
    refuses(log, decided, "decides ap, which is not open")


def test_a_replace_stands_between_steps() -> None:
    for log in (in_step(), replied("c1")):
        first = log.surface.nodes[0].seq
        with pytest.raises(InvalidEventError, match="a replace stands between steps"):
            log.replace(UserMessage(WORDS, LOOP), first, first)
    for log in (in_turn(), after_step()):
        first = log.surface.nodes[0].seq
        log.replace(UserMessage(WORDS, LOOP), first, first)


def test_a_replace_may_stand_between_turns() -> None:
    log = after_step()
    log.end_turn()
    log.replace(UserMessage(WORDS, LOOP), log.surface.nodes[0].seq, log.surface.nodes[-1].seq)
    assert len(log.surface.nodes) == 1


def test_instances_number_from_one_and_begin_between_turns() -> None:
    log = Log()
    refuses(log, InstanceStart(2, "new"), "instance 2 after 0")
    log.instance()
    refuses(log, InstanceStart(1, "resume"), "instance 1 after 1")
    refuses(in_turn(), InstanceStart(1, "resume"), "turn 1 is open")


def test_a_compaction_begins_between_steps_and_ends_what_began() -> None:
    start = CompactStart("pressure", (1, 1), "Sum up.", HEADER.config, 1)
    refuses(in_step(), start, "a compaction stands between steps")
    refuses(in_turn(), replace(start, turn=None), "names turn None; open is 1")
    refuses(in_turn(), replace(start, range=(1, 7)), "names node 7, which is not on the surface")
    for data in (CompactEnd(), CompactSummary("They asked.", ((1, 1),), 10, "chain", 512)):
        refuses(Log(), data, "no compaction is open")
    log = in_turn()
    log.add(start)
    log.add(start)  # a further attempt is a new start, and an unmatched one is never a lock
    log.add(CompactEnd())
    refuses(log, CompactEnd(), "no compaction is open")
