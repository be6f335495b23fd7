"""Closers: what a log that ends in open work still needs. `test_partial_reply.py` has the reply among them."""

from __future__ import annotations

import pytest
from hypothesis import given

from refold_protocol.errors import KINDS, InvalidEventError
from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.closers import closers_of, drafts_as_events, interrupted_turn_closers, open_at_end
from refold_protocol.session.event_data import FORKED, INTERRUPTED
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    CompactEnd,
    CompactStart,
    SessionTitle,
    StepEnd,
    ToolErrorInfo,
    ToolResult,
    TurnEnd,
)
from refold_protocol.session.grammar import fold_turns
from refold_protocol.session.messages import Message, Source, ToolResultBlock, text_content, text_of
from refold_protocol.session.request import rebuild, request_of
from refold_protocol.session.session_state import status_of
from refold_protocol.session.surface import fold_surface
from refold_protocol.verify import pairing_faults
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, Log, call, log_of, spoken

CLOSER = Source("closer")


def _with_calls(*names: str) -> Log:
    log = Log()
    log.turn("run")
    log.step()
    log.reply(*(call(name) for name in names), finish="tool-calls")
    return log


def _asked(log: Log, name: str) -> ApprovalId:
    approval = ApprovalId(f"ap-{name}")
    log.add(ApprovalAsked(approval, CallId(name), "read_file", ApprovalSubject("path", "a.txt")))
    return approval


def _codes(log: Log) -> dict[str, str | None]:
    results = (draft.data for draft in interrupted_turn_closers(log.events))
    return {r.call_id: r.error and r.error.code for r in results if isinstance(r, ToolResult)}


def _compacting(log: Log) -> Log:
    node = log.surface.nodes[0].seq
    log.add(CompactStart("pressure", (node, node), "Sum up.", HEADER.config, log.work.turn))
    return log


def _next_request(log: Log, prompt: str = "go on") -> tuple[Message, ...]:
    log.instance("resume")
    log.turn(prompt)
    log.step()
    request = request_of(log.request_state)
    assert pairing_faults(request) == []
    return tuple(request.history)


def test_a_log_with_nothing_open_needs_no_closers() -> None:
    assert interrupted_turn_closers([]) == ()
    log = Log()
    log.whole_turn()
    assert not open_at_end(log.work)
    assert interrupted_turn_closers(log.events) == ()


def test_everything_that_can_be_open_is_closed_in_the_order_that_is_described() -> None:
    log = Log()
    log.turn()
    _compacting(log)
    log.step()
    log.reply(call("c1"), call("c2"), finish="tool-calls")
    started = log.call("c2").seq
    approvals = [_asked(log, "c2"), _asked(log, "c1")]
    drafts = interrupted_turn_closers(log.events)
    kinds = [type(draft.data) for draft in drafts]
    assert kinds == [ApprovalDecided, ApprovalDecided, ToolResult, ToolResult, CompactEnd, StepEnd, TurnEnd]
    assert [draft.data for draft in drafts[:2]] == [ApprovalDecided(one, "cancelled", "once", CLOSER) for one in approvals]
    assert [draft.data.call_id for draft in drafts if isinstance(draft.data, ToolResult)] == ["c1", "c2"]
    assert [draft.sources for draft in drafts[2:4]] == [None, ((started, started),)]
    assert isinstance(drafts[4].data, CompactEnd)
    assert drafts[4].data.error is not None
    assert drafts[4].data.error.kind in KINDS
    assert [draft.data for draft in drafts[5:]] == [StepEnd(1, 1, "aborted"), TurnEnd(1, INTERRUPTED)]


def test_the_partial_reply_comes_before_all_other_closers() -> None:
    log = Log()
    log.turn()
    _compacting(log)
    log.step()
    log.stream(*spoken("half"))
    types = [event.type for event in log.close()]
    assert types == ["assistant/message", "compact/end", "step/end", "turn/end"]


def test_between_steps_only_the_turn_is_closed() -> None:
    log = Log()
    log.turn()
    assert [draft.data for draft in interrupted_turn_closers(log.events)] == [TurnEnd(1, INTERRUPTED)]
    log.tool_step("c1")
    assert [draft.data for draft in interrupted_turn_closers(log.events)] == [TurnEnd(1, INTERRUPTED)]


def test_a_fork_that_was_cut_in_an_open_turn_is_closed_as_forked() -> None:
    log = _with_calls("c1")
    forked = interrupted_turn_closers(log.events, FORKED)
    assert forked[-1].data == TurnEnd(1, FORKED)
    crashed = interrupted_turn_closers(log.events)
    assert [one.type for one in forked] == [one.type for one in crashed]


def test_a_compaction_that_was_open_between_turns_is_all_that_is_closed() -> None:
    log = Log()
    log.whole_turn()
    _compacting(_compacting(log))
    assert open_at_end(log.work)
    (end,) = log.close()
    assert isinstance(end.data, CompactEnd)
    assert end.data.error is not None
    assert not open_at_end(log.work)


@pytest.mark.parametrize(("behind", "landed"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_fork_cut_inside_a_landing_says_what_became_of_the_history(behind: int, landed: bool) -> None:
    log = Log()
    log.whole_turn()
    nodes = [node.seq for node in log.surface.nodes]
    start = log.compaction(nodes[0], nodes[-1]).seq
    cut = log.events[: start + behind + 1]
    (draft,) = interrupted_turn_closers(cut, FORKED)
    assert isinstance(draft.data, CompactEnd)
    assert (draft.data.error is None) == landed
    assert (len(fold_surface(cut).nodes) == 1) == landed
    again = Log()
    again.whole_turn()
    again.compaction(nodes[0], nodes[-1])
    left = again.surface.nodes[0].seq
    again.add(CompactStart("user", (left, left), "Sum up.", HEADER.config))
    (draft,) = interrupted_turn_closers(again.events)
    assert isinstance(draft.data, CompactEnd)
    assert draft.data.error is not None, "the one before landed, this one did not"


def test_killed_after_one_of_two_results_the_next_request_has_a_stand_in_for_the_other() -> None:
    """B-01, killed: both calls, the real result, the stand-in, then the new prompt."""
    log = _with_calls("c1", "c2")
    log.call("c1")
    log.call("c2")
    log.result("c1", "one")
    log.close()
    run, asked, one, two, go_on = _next_request(log)
    assert (run, go_on) == (Message("user", text_content("run")), Message("user", text_content("go on")))
    assert asked == Message("assistant", (call("c1"), call("c2")))
    assert one == Message("user", (ToolResultBlock("c1", text_content("one"), False),))
    (stand_in,) = two.content
    assert isinstance(stand_in, ToolResultBlock)
    assert (stand_in.tool_call_id, stand_in.is_error) == ("c2", True)
    assert "interrupted" in text_of(stand_in.content)


def test_killed_before_any_result_each_call_gets_a_stand_in_in_the_order_of_the_calls() -> None:
    """B-01, no result at all."""
    log = _with_calls("c1", "c2")
    log.close()
    blocks = [block for message in _next_request(log) for block in message.content]
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    assert [(one.tool_call_id, one.is_error) for one in results] == [("c1", True), ("c2", True)]


def test_the_stand_in_is_the_same_bytes_before_and_after_a_restart() -> None:
    """B-01: it follows from the log alone."""
    log = _with_calls("c1", "c2")
    log.result("c1")
    again = log_of(list(log.events))
    assert [event.line for event in log.close()] == [event.line for event in again.close()]
    assert _next_request(log) == _next_request(again)


def test_a_result_that_arrives_after_the_closers_is_not_a_second_one() -> None:
    """B-01, the real result arrives late; and a result for an unknown id is left out."""
    log = _with_calls("c1")
    log.close()
    _next_request(log)
    for name in ("c1", "c9"):
        with pytest.raises(InvalidEventError, match="no call"):
            log.append(ToolResult(*log.here(), CallId(name), text_content("late"), is_error=False))


def test_a_call_that_never_started_is_told_apart_from_one_whose_outcome_is_unknown() -> None:
    log = _with_calls("c1", "c2")
    log.call("c2")
    assert _codes(log) == {"c1": "TOOL_NOT_STARTED", "c2": "TOOL_OUTCOME_UNKNOWN"}


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (None, "TOOL_NOT_STARTED"),
        ("denied", "TOOL_NOT_STARTED"),
        ("cancelled", "TOOL_NOT_STARTED"),
        ("allowed", "TOOL_OUTCOME_UNKNOWN"),
    ],
)
@pytest.mark.parametrize("started", [True, False])
def test_a_call_may_have_run_only_if_it_started_and_its_approval_was_granted(
    outcome: str | None, code: str, started: bool
) -> None:
    log = _with_calls("c1")
    if started:
        log.call("c1")
    approval = _asked(log, "c1")
    if outcome is not None:
        log.add(ApprovalDecided(approval, outcome, "once", CLIENT))
    assert _codes(log) == {"c1": code if started else "TOOL_NOT_STARTED"}


def test_a_stand_in_is_an_error_that_names_its_step_and_its_class() -> None:
    log = _with_calls("c1")
    stand_in = next(draft for draft in interrupted_turn_closers(log.events) if isinstance(draft.data, ToolResult))
    assert isinstance(stand_in.data, ToolResult)
    assert (stand_in.data.turn, stand_in.data.step, stand_in.surface_op) == (1, 1, "append")
    assert stand_in.data.error == ToolErrorInfo("Interrupted", "TOOL_NOT_STARTED")


def test_closers_have_the_time_of_the_last_event_whatever_the_clock_says() -> None:
    log = _with_calls("c1")
    log.add(SessionTitle("Why", CLIENT))
    last = log.events[-1].time
    closers = log.close()
    assert len(closers) == 3
    assert {event.time for event in closers} == {last}


def test_a_cold_read_synthesises_the_very_events_that_the_next_writer_appends() -> None:
    log = _with_calls("c1", "c2")
    log.call("c1")
    tail = len(log.events) - 1
    synthesised = drafts_as_events(interrupted_turn_closers(log.events), tail)
    assert [event.line for event in synthesised] == [event.line for event in log.close()]
    assert synthesised[0].seq == tail + 1


@given(logs())
def test_after_its_closers_every_prefix_of_a_log_is_balanced_and_its_next_request_pairs(log: Log) -> None:
    for cut in range(len(log.events) + 1):
        part = log_of(log.events[:cut])
        needed = open_at_end(part.work)
        closers = part.close()
        assert bool(closers) == needed
        assert not open_at_end(part.work)
        assert status_of(part.work).status == "idle"
        assert interrupted_turn_closers(part.events) == ()
        assert fold_turns(part.events) == part.work
        history = _next_request(part)
        assert tuple(rebuild(part.events, *part.here()).history) == history


@given(logs())
def test_closers_follow_from_the_fold_and_from_the_events_alike(log: Log) -> None:
    time = log.events[-1].time if log.events else 0
    assert closers_of(log.work, time) == interrupted_turn_closers(log.events)
    again = tuple(draft.time for draft in interrupted_turn_closers(list(log.events)))
    assert set(again) <= {time}


def test_a_call_that_a_fork_was_cut_in_says_so_and_names_no_crash() -> None:
    log = _with_calls("ran", "waited")
    log.call("ran")
    told = {
        str(draft.data.call_id): (text_of(draft.data.content), draft.data.error)
        for draft in interrupted_turn_closers(log.events, FORKED)
        if isinstance(draft.data, ToolResult)
    }
    assert told["ran"][1] == ToolErrorInfo("Forked", "TOOL_OUTCOME_UNKNOWN")
    assert told["waited"][1] == ToolErrorInfo("Forked", "TOOL_NOT_STARTED")
    assert "The session was forked while this tool ran" in told["ran"][0]
    assert "forked before the tool started" in told["waited"][0]
    assert not any("interrupted" in text for text, _ in told.values())
