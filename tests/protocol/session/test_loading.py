"""Loading a log is folding each of its events, wherever it ends and whichever way its turns went.

Invariant: Loading a log is folding each of its events, wherever the log ends and however its lines come.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.errors import SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.ids import ApprovalId, CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session import loading
from refold_protocol.session.codec import CHUNK, seal
from refold_protocol.session.events import (
    EVENT_TYPES,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    CompactEnd,
    CompactStart,
    ContextMessage,
    Draft,
    ForeignData,
    InputSettled,
    SessionSettings,
    SteeringMessage,
    StepEnd,
    ToolResult,
    UserMessage,
)
from refold_protocol.session.loading import Loading
from refold_protocol.session.messages import EpochHeader, Usage, text_content
from refold_protocol.session.session_state import fold_all
from tests.support.loading import loaded
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, Log, call, spoken
from tests.support.turn_sorts import talks


@given(logs(), st.integers(0, 10_000), st.lists(st.integers(0, 10_000), max_size=3))
def test_loading_is_folding_each_event_wherever_the_log_and_its_slices_end(log: Log, end: int, cuts: list[int]) -> None:
    events = log.events[: end % (len(log.events) + 1)]
    places = sorted(cut % (len(events) + 1) for cut in cuts)
    assert loaded([event.line for event in events], *places) == fold_all(events)


@given(talks(), st.integers(0, 10_000))
def test_loading_is_folding_each_event_of_turns_of_every_sort(log: Log, end: int) -> None:
    events = log.events[: end % (len(log.events) + 1)]
    assert loaded([event.line for event in events]) == fold_all(events)


def test_chunks_of_turns_that_are_over_are_not_looked_at_and_those_of_an_open_one_are_read_whole() -> None:
    log = Log()
    log.whole_turn()
    over = len(log.events)
    log.turn()
    log.step()
    log.stream(*spoken("Half"))
    reading = Loading()
    given_events = reading.take([CHUNK if line.startswith(CHUNK) else line for line in log.lines])
    assert reading.revision == over
    assert {event.type for event in given_events} == {
        "turn/start",
        "user/message",
        "request/header",
        "assistant/message",
        "turn/end",
    }
    assert reading.finish(log.lines[over:]) == log.events[over:]
    assert reading.state.work.stream.chunks == log.work.stream.chunks


def test_a_line_of_other_origin_is_loaded_as_one_of_ours() -> None:
    log = Log()
    log.whole_turn()
    log.whole_turn("And?")
    lines = [line.replace(b'{"type":', b'{ "type":') for line in log.lines]
    state = loaded(lines)
    assert [node.data for node in state.request_state.surface.nodes] == [node.data for node in log.surface.nodes]
    assert state.work == log.work


def test_what_is_no_event_stands_elsewhere_or_is_foreign_is_refused_with_its_seq_also_in_turns_that_are_over() -> None:
    log = Log()
    log.turn()
    log.add(ForeignData(JsonText("1")), type="acme/needed")
    log.end_turn()
    with pytest.raises(SessionFormatUnsupportedError) as unknown:
        loaded(log.lines)
    assert unknown.value.details["seq"] == 2
    log = Log()
    log.whole_turn()
    prompt = 1
    for line, reason in ((b'{"type":"user/message"', "not an event"), (log.lines[0], "calls itself 0")):
        with pytest.raises(SessionCorruptionError, match=reason) as caught:
            loaded([*log.lines[:prompt], line, *log.lines[prompt + 1 :]])
        assert caught.value.details["seq"] == prompt


def test_after_the_last_turn_an_event_that_may_not_stand_there_is_refused() -> None:
    log = Log()
    log.whole_turn()
    stray = seal(Draft(StepEnd(9, 9)), len(log.events), 0)
    with pytest.raises(SessionCorruptionError, match=r"names step 9\.9") as caught:
        loaded([*log.lines, stray.line])
    assert caught.value.details["seq"] == stray.seq


def test_types_that_leave_nothing_are_types_of_the_vocabulary() -> None:
    assert {name.decode() for name in vars(loading)["_LEAVING_NOTHING"]} < set(EVENT_TYPES)


def of_everything() -> Log:
    """A log with all that lasts of a turn: settings, inputs, a grant, changed headers, usage, replaces, compactions, a fork."""
    log = Log()
    log.instance()
    log.add(SessionSettings("engine/chain", "low"))
    log.accept("waits")
    log.turn(given=log.accept("one"))
    log.step()
    log.reply(call("c1"), usage=Usage(100, 5))
    log.add(ApprovalAsked(ApprovalId("ap"), CallId("c1"), "read_file", ApprovalSubject("path", "a")))
    log.add(ApprovalDecided(ApprovalId("ap"), "allowed", "session", CLIENT))
    log.call("c1")
    result = log.result("c1").seq
    log.end_step()
    log.replace(ToolResult(1, 1, CallId("c1"), text_content("cut"), is_error=False), result, result)
    log.append(ContextMessage(text_content("Look."), CLIENT, "context", log.accept("two", mode="inject")))
    log.append(SteeringMessage(1, text_content("Go on."), CLIENT))
    log.step(EpochHeader(replace(HEADER.config, model="random"), HEADER.system, HEADER.tools))
    log.stream(*spoken("Because."))
    log.reply("Because.", usage=Usage(200, 5))
    log.end_step()
    log.end_turn()
    nodes = log.surface.nodes
    log.compaction(nodes[0].seq, nodes[-1].seq, None)
    log.compaction(nodes[0].seq, nodes[-1].seq)
    log.add(InputSettled(InputId("waits"), "withdrawn"))
    log.whole_turn("And?")
    node = log.surface.nodes[0].seq
    log.turn("Open?")
    log.add(CompactStart("pressure", (node, node), "Sum up.", HEADER.config, 3))
    log.end_turn()
    log.replace(UserMessage(text_content("Summed up."), CLIENT), node, node)
    log.whole_turn("So?")
    log.add(CompactEnd())
    log.whole_turn("Well?")
    log.instance("fork")
    log.whole_turn("There?")
    return log


def test_all_that_lasts_is_loaded_wherever_the_log_ends() -> None:
    log = of_everything()
    for end in range(len(log.events) + 1):
        assert loaded(log.lines[:end]) == fold_all(log.events[:end])
