"""The work fold: what stands open, and that only well-formed logs get through it. `test_grammar.py` has what it refuses."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.ids import ApprovalId, CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    Event,
    ForeignData,
    InputAccepted,
    InstanceStart,
    Replace,
    RequestHeaderDelta,
    SessionSettings,
    SessionTitle,
    StepStart,
    ToolCall,
    ToolResult,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.grammar import NO_TURN, OpenCall, Route, Stream, TurnState, fold_turns, turn_step
from refold_protocol.session.messages import CallConfig, EpochHeader, TextDelta, ToolCallBlock, text_content
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, Log, call, log_of, spoken

LETTERS = {
    "instance/start": "I",
    "turn/start": "T",
    "turn/end": "E",
    "step/start": "S",
    "step/end": "Z",
    "user/message": "U",
    "context/message": "X",
    "steering/message": "G",
    "request/header": "H",
    "request/sent": "Q",
    "llm/retry": "R",
    "assistant/chunk": "C",
    "assistant/message": "A",
    "tool/call": "t",
    "tool/result": "r",
    "approval/asked": "a",
    "approval/decided": "d",
    "compact/start": "K",
    "compact/end": "k",
}
"""A letter for each type that has a place. A replace is P; what may stand anywhere is left out."""

BETWEEN = "[XGPKk]"
STEP = "S[HRk]*(?:Q[QRCk]*)?(?:A[tradk]*[Xdk]*)?Z"
TURN = f"T{BETWEEN}*U?{BETWEEN}*(?:{STEP}{BETWEEN}*)*E"
LOG = re.compile(f"[IPKk]*(?:{TURN}[IPKk]*)*")
"""Sections 2, 4 and 7 of the log's description as a regular expression, for a log with nothing open."""


def _letter(event: Event) -> str:
    return "P" if isinstance(event.surface_op, Replace) else LETTERS.get(event.type, "")


def _asked(log: Log, name: str, approval: str = "ap") -> ApprovalId:
    log.add(ApprovalAsked(ApprovalId(approval), CallId(name), "read_file", ApprovalSubject("path", "a.txt")))
    return ApprovalId(approval)


def _replied(*names: str) -> Log:
    log = Log()
    log.turn()
    log.step()
    log.reply(*(call(name) for name in names))
    return log


@given(logs())
def test_what_the_grammar_lets_through_is_a_log_as_it_is_described(log: Log) -> None:
    log.close()
    text = "".join(map(_letter, log.events))
    assert LOG.fullmatch(text), text


@given(logs())
def test_turns_steps_and_instances_of_a_log_are_numbered_from_one_without_gaps(log: Log) -> None:
    turns = [event.data.turn for event in log.events if isinstance(event.data, TurnStart)]
    assert turns == list(range(1, len(turns) + 1))
    steps = [(event.data.turn, event.data.step) for event in log.events if isinstance(event.data, StepStart)]
    assert steps == [(turn, step) for turn in turns for step in range(1, Counter(turn for turn, _ in steps)[turn] + 1)]
    instances = [event.data.instance for event in log.events if isinstance(event.data, InstanceStart)]
    assert instances == list(range(1, len(instances) + 1))


@given(logs())
def test_every_call_of_a_balanced_log_has_one_result_in_its_step_and_at_most_one_start_before_it(log: Log) -> None:
    log.close()
    asked: list[tuple[int, int, str]] = []
    told: list[tuple[int, int, str]] = []
    started: list[tuple[int, int, str]] = []
    for event in log.events:
        match event.data:
            case AssistantMessage(turn=turn, step=step, content=content) if event.surface_op == "append":
                asked.extend((turn, step, block.id) for block in content if isinstance(block, ToolCallBlock))
            case ToolCall(turn=turn, step=step, call_id=name):
                assert (turn, step, name) in asked
                assert (turn, step, name) not in told
                started.append((turn, step, name))
            case ToolResult(turn=turn, step=step, call_id=name) if event.surface_op == "append":
                assert (turn, step, name) in asked
                told.append((turn, step, name))
            case _:
                pass
    assert sorted(asked) == sorted(told)
    assert len(set(started)) == len(started)
    assert len(set(told)) == len(told)


@given(logs(), st.integers(0, 60))
def test_folding_a_prefix_and_going_on_equals_folding_all(log: Log, cut: int) -> None:
    whole = fold_turns(log.events)
    assert fold_turns(log.events[cut:], fold_turns(log.events[:cut])) == whole
    assert whole == log.work


def test_an_empty_log_has_nothing_open() -> None:
    assert fold_turns([]) == NO_TURN == TurnState()


def test_a_closed_turn_leaves_counts_and_the_route_behind_and_nothing_open() -> None:
    log = Log()
    log.instance()
    log.whole_turn()
    log.turn()
    log.tool_step("c1")
    log.step()
    log.end_step("error")
    log.end_turn()
    route = Route("engine", "chain")
    assert log.work == TurnState(instance=1, began=0, last_turn=2, route=route)


def test_the_open_turn_and_step_are_told_by_their_numbers() -> None:
    log = Log()
    log.whole_turn()
    log.turn()
    assert (log.work.turn, log.work.step) == (2, None)
    log.step()
    assert (log.work.turn, log.work.step) == (2, 1)


def test_the_stream_holds_the_chunks_of_the_last_attempt_and_their_seqs() -> None:
    log = Log()
    log.turn()
    log.step()
    log.stream(*spoken("half"))
    log.send(2)
    log.stream(TextDelta(0, "whole"), attempt=2)
    first = len(log.events) - 1
    log.add(SessionTitle("Why", CLIENT))
    log.stream(TextDelta(0, "!"), TextDelta(0, "?"), attempt=2)
    deltas = (TextDelta(0, "whole"), TextDelta(0, "!"), TextDelta(0, "?"))
    assert (log.work.stream.attempt, tuple(log.work.stream.chunks)) == (2, deltas)
    assert log.work.stream.ranges == ((first, first), (first + 2, first + 3))


def test_the_stream_is_empty_once_there_is_a_reply_or_the_step_is_over() -> None:
    log = Log()
    log.turn()
    for _ in range(2):
        log.step()
        log.stream(*spoken("Because."))
        log.end_step("error")
        assert log.work.stream == Stream()
    log.step()
    log.stream(*spoken("Because."))
    log.reply("Because.")
    assert log.work.stream == Stream()


def test_calls_wait_in_the_order_of_the_reply_until_their_results() -> None:
    log = _replied("c1", "c2", "c3")
    started = log.call("c2").seq
    waiting = [OpenCall(CallId(name), "read_file", "{}") for name in ("c1", "c2", "c3")]
    assert log.work.calls == (waiting[0], OpenCall(CallId("c2"), "read_file", "{}", started), waiting[2])
    log.result("c2")
    assert log.work.calls == (waiting[0], waiting[2])


@pytest.mark.parametrize("outcome", ["allowed", "denied", "cancelled"])
def test_a_call_knows_how_its_approval_stands(outcome: str) -> None:
    log = _replied("c1", "c2", "c3")
    other, approval = _asked(log, "c3", "ap3"), _asked(log, "c2")
    assert log.work.approvals == ((other, CallId("c3")), (approval, CallId("c2")))
    assert [one.approval for one in log.work.calls] == [None, "asked", "asked"]
    log.add(ApprovalDecided(approval, outcome, "once", CLIENT))
    assert log.work.approvals == ((other, CallId("c3")),)
    assert [one.approval for one in log.work.calls] == [None, outcome, "asked"]


def test_an_approval_that_is_decided_after_the_result_changes_no_other_call() -> None:
    log = _replied("c1", "c2")
    approvals = [_asked(log, "c1", "ap1"), _asked(log, "c2", "ap2")]
    log.result("c1")
    log.add(ApprovalDecided(approvals[0], "denied", "once", CLIENT))
    assert log.work.approvals == ((approvals[1], CallId("c2")),)
    assert [one.approval for one in log.work.calls] == ["asked"]


def test_the_route_follows_the_header_in_force() -> None:
    log = Log()
    log.turn()
    log.step(EpochHeader(CallConfig("engine", "random", "chat-completions")))
    assert log.work.route == Route("engine", "random")
    log.end_step()
    log.add(StepStart(1, 2))
    delta = Event("request/header-delta", len(log.events), 0, RequestHeaderDelta(config=HEADER.config), None, None, False, b"")
    assert turn_step(log.work, delta).route == Route("engine", "chain")
    tools = Event("request/header-delta", len(log.events), 0, RequestHeaderDelta(), None, None, False, b"")
    assert turn_step(log.work, tools).route == Route("engine", "random")


def test_a_compaction_is_open_from_its_last_start_to_its_end() -> None:
    log = Log()
    log.whole_turn()
    start = CompactStart("pressure", (1, 1), "Sum up.", HEADER.config)
    log.add(start)
    assert log.add(start).seq == log.work.compaction
    log.add(CompactEnd())
    assert log.work.compaction is None


def test_a_replace_and_a_foreign_event_change_nothing_of_what_stands_open() -> None:
    log = Log()
    log.turn()
    work = log.work
    log.add(ForeignData(JsonText("{}")), type="plugin/note", ignorable=True)
    log.replace(UserMessage(text_content("A summary."), CLIENT), log.surface.nodes[0].seq, log.surface.nodes[0].seq)
    assert log.work == work


@pytest.mark.parametrize(
    "data",
    [
        InputAccepted(InputId("in"), "steer", text_content("word"), CLIENT),
        SessionSettings("engine/chain"),
        SessionTitle("Why", CLIENT),
    ],
)
def test_what_is_not_execution_may_stand_anywhere(data: Any) -> None:
    whole = Log()
    whole.turn()
    whole.tool_step("c1")
    whole.end_turn()
    for cut in range(len(whole.events) + 1):
        log = log_of(whole.events[:cut])
        log.add(data)
        assert log.work == fold_turns(whole.events[:cut])
