"""Turns that are given whole leave the folds that their events leave, and whatever is unusual is given event by event."""

from __future__ import annotations

from collections.abc import Callable, Container

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError, SessionCorruptionError
from refold_protocol.ids import InputId
from refold_protocol.session.codec import CHUNK, seal
from refold_protocol.session.events import (
    Draft,
    InputAccepted,
    SessionTitle,
    TurnStart,
)
from refold_protocol.session.messages import TextDelta, text_content
from refold_protocol.session.skimmed_turns import SkimmedTurns, horizon_over, work_over
from refold_protocol.session.turn_skim import MOST_LINES, Skimmed, TurnSkim
from refold_protocol.session.work import fold_work
from refold_server.loop.folds import NOTHING_KNOWN, Folds, fold_all, folds_over, folds_step
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, Log, call
from tests.support.turn_sorts import (
    answered,
    ordinary,
    retried,
    talks,
    with_a_foreign_event,
    with_a_foreign_event_whose_name_begins_like_one_of_ours,
    with_a_replace,
    with_an_approval,
    with_inputs,
    with_tools,
    with_what_no_fold_looks_at,
    without_a_reply,
    without_a_step,
)


def skimmed(lines: list[bytes], *cuts: int, bare: Container[int] = ()) -> list[Skimmed]:
    """Skim lines in slices; those of chunks in these places are bare."""
    skim, items = TurnSkim(), list[Skimmed]()
    read = [CHUNK if seq in bare and line.startswith(CHUNK) else line for seq, line in enumerate(lines)]
    for start, end in zip((0, *cuts), (*cuts, len(lines)), strict=True):
        items += skim.items(read[start:end])
    return [*items, *skim.rest(lambda first, last: lines[first : last + 1])]


def folded(items: list[Skimmed], state: Folds = NOTHING_KNOWN) -> Folds:
    for item in items:
        state = folds_over(state, item) if isinstance(item, SkimmedTurns) else folds_step(state, item)
    return state


def whole(items: list[Skimmed]) -> list[int]:
    """Give the turns that come whole."""
    return [turn for item in items if isinstance(item, SkimmedTurns) for turn in range(item.first, item.turn + 1)]


@given(logs(), st.integers(0, 10_000), st.lists(st.integers(0, 10_000), max_size=3), st.sets(st.integers(0, 60)))
def test_the_folds_of_what_is_skimmed_are_the_folds_of_all_wherever_the_log_ends_and_slices_end(
    log: Log, end: int, cuts: list[int], bare: set[int]
) -> None:
    events = log.events[: end % (len(log.events) + 1)]
    lines = [event.line for event in events]
    places = sorted(cut % (len(lines) + 1) for cut in cuts)
    assert folded(skimmed(lines, *places, bare=bare)) == fold_all(events)


@given(talks(), st.lists(st.integers(0, 10_000), max_size=3))
def test_what_waits_what_started_turns_and_every_key_is_told(log: Log, cuts: list[int]) -> None:
    items = skimmed(log.lines, *sorted(cut % (len(log.events) + 1) for cut in cuts))
    assert folded(items) == fold_all(log.events)
    started = {given: turn for item in items if isinstance(item, SkimmedTurns) for given, turn in item.started.items()}
    inside = set(whole(items))
    triggers = [event.data for event in log.events if isinstance(event.data, TurnStart)]
    assert started == {one.trigger.input: one.turn for one in triggers if one.turn in inside and one.trigger.input is not None}
    events = [event for item in items for event in (item.inputs if isinstance(item, SkimmedTurns) else (item,))]
    keyed = [event for event in log.events if isinstance(event.data, InputAccepted) and event.data.key is not None]
    assert [event for event in events if event in keyed] == keyed


def test_an_input_that_came_and_went_leaves_nothing_and_one_with_a_key_does() -> None:
    log = Log()
    log.turn(given=log.accept("i-1"))
    answered(log)
    log.end_turn()
    log.add(InputAccepted(InputId("i-2"), "prompt", text_content('Say "key": 1.'), CLIENT, "k2"))
    log.turn(given=InputId("i-2"))
    answered(log)
    log.end_turn()
    log.accept("i-3")
    log.turn("Another one.")
    answered(log)
    log.end_turn()
    (item,) = skimmed(log.lines)
    assert isinstance(item, SkimmedTurns)
    assert [event.data.input for event in item.inputs if isinstance(event.data, InputAccepted)] == ["i-2", "i-3"]
    assert item.started == {"i-1": 1, "i-2": 2}
    assert folded([item]) == fold_all(log.events)
    assert [one.input for one in folded([item]).pending] == ["i-3"]


@pytest.mark.parametrize("name", ["i\u00e9", 'i"1', "i\\1", "", "x" * 200, '"key":"'])
def test_ids_that_need_escapes_are_read_all_the_same(name: str) -> None:
    log = Log()
    log.turn(given=log.accept(name))
    answered(log)
    log.end_turn()
    log.accept(f"{name}2")
    log.whole_turn()
    items = skimmed(log.lines)
    assert folded(items) == fold_all(log.events)
    started = {given: turn for item in items if isinstance(item, SkimmedTurns) for given, turn in item.started.items()}
    assert started in ({}, {name: 1})


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_log_from_which_a_line_is_missing_is_refused(lost: int, cut: int) -> None:
    lines = ordinary(with_tools).lines
    del lines[lost % (len(lines) - 1)]
    with pytest.raises(SessionCorruptionError, match="calls itself"):
        skimmed(lines, cut % (len(lines) + 1))


@pytest.mark.parametrize("turn", [with_tools, with_an_approval, with_inputs, with_what_no_fold_looks_at])
def test_an_ordinary_turn_is_given_whole_and_folds_to_what_its_events_fold_to(turn: Callable[[Log], None]) -> None:
    log = ordinary(turn)
    items = skimmed(log.lines)
    assert whole(items) == [1, 2, 3]
    assert folded(items) == fold_all(log.events)


@pytest.mark.parametrize(
    "turn",
    [
        without_a_reply,
        retried,
        with_a_foreign_event,
        with_a_foreign_event_whose_name_begins_like_one_of_ours,
        with_a_replace,
        without_a_step,
    ],
)
def test_a_turn_that_went_another_way_is_given_event_by_event(turn: Callable[[Log], None]) -> None:
    log = ordinary(turn)
    items = skimmed(log.lines)
    assert whole(items) == [1, 3]
    assert folded(items) == fold_all(log.events)


def test_a_turn_whose_end_did_not_come_is_given_event_by_event() -> None:
    log = ordinary(with_tools)
    end = next(event.seq for event in log.events if event.type == "turn/end" and event.seq > 20)
    items = skimmed(log.lines[:end])
    assert whole(items) == [1]
    assert folded(items) == fold_all(log.events[:end])


def test_a_very_long_turn_is_not_held_until_its_end() -> None:
    log = Log()
    log.turn()
    log.step()
    log.stream(*(TextDelta(0, "word") for _ in range(MOST_LINES)))
    skim = TurnSkim()
    lines = log.lines
    assert list(skim.items(lines[:MOST_LINES])) == []
    assert [item.seq for item in skim.items(lines[MOST_LINES:]) if not isinstance(item, SkimmedTurns)] == [0, 1, 2, 3, 4]


def test_turns_out_of_order_are_refused() -> None:
    log = ordinary(retried)
    first, last = (item for item in skimmed(log.lines) if isinstance(item, SkimmedTurns))
    with pytest.raises(InvalidEventError, match="turn 3 after turn 0"):
        work_over(NOTHING_KNOWN.work, last)
    with pytest.raises(InvalidEventError, match="turn 1 is open"):
        work_over(fold_work(log.events[: first.opening + 1]), last)


def test_a_turn_whose_end_names_another_turn_is_refused() -> None:
    log = ordinary(with_tools)
    last = log.events[-1]
    lines = [*log.lines[:-1], last.line.replace(b'"turn":3', b'"turn":4')]
    with pytest.raises(InvalidEventError, match="turn 4 is not open"):
        folded(skimmed(lines))


def test_a_turn_whose_number_is_not_the_next_is_refused() -> None:
    log = ordinary(with_tools)
    start = next(event.seq for event in log.events if isinstance(event.data, TurnStart) and event.data.turn == 3)
    lines = [*log.lines[:start], *(line.replace(b'"turn":3', b'"turn":5') for line in log.lines[start:])]
    with pytest.raises(InvalidEventError, match="turn 5 after turn 2"):
        folded(skimmed(lines))


def test_the_horizon_behind_turns_shares_the_nodes_before_them() -> None:
    log = ordinary(retried)
    item = skimmed(log.lines)[-1]
    assert isinstance(item, SkimmedTurns)
    before = fold_all(log.events[: item.opening]).horizon
    behind = horizon_over(before, item)
    assert behind.surface.nodes.extends(before.surface.nodes)
    assert behind.history.extends(before.history)
    assert behind == fold_all(log.events).horizon


def test_a_line_that_is_no_event_is_named_by_its_seq() -> None:
    lines = ordinary(with_tools).lines
    lines[4] = b"\0" * 40
    with pytest.raises(SessionCorruptionError, match="event 4"):
        skimmed(lines)


def test_a_line_of_a_whole_turn_whose_data_is_wrong_is_named_by_its_seq() -> None:
    lines = ordinary(with_tools).lines
    place = next(place for place, line in enumerate(lines) if line.startswith(b'{"type":"tool/result"'))
    lines[place] = lines[place].replace(b'"callId":', b'"callID":')
    with pytest.raises(SessionCorruptionError, match=f"event {place}: not an event"):
        skimmed(lines)


@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(0, 60))
def test_hostile_lines_are_refused_as_corrupt(hostile: list[bytes], at: int) -> None:
    lines = ordinary(with_tools).lines
    lines[at:at] = hostile
    if hostile:
        with pytest.raises(SessionCorruptionError):
            skimmed(lines)


def test_a_line_of_other_origin_is_read_as_well() -> None:
    log = ordinary(with_tools)
    lines = [line.replace(b'{"type":', b'{ "type":') if number % 3 else line for number, line in enumerate(log.lines)]
    assert folded(skimmed(lines)).work == fold_all(log.events).work


def test_a_header_that_changes_in_a_turn_is_in_force_behind_it() -> None:
    log = Log()
    log.turn()
    log.step()
    log.reply(call("c1"), finish="tool-calls")
    log.result("c1")
    log.end_step()
    log.step(replace(HEADER, system="Be long.", config=replace(HEADER.config, model="random")))
    log.reply("Yes.")
    log.end_step()
    log.end_turn()
    (item,) = skimmed(log.lines)
    assert isinstance(item, SkimmedTurns)
    assert [event.type for event in item.shaping] == [event.type for event in log.events if event in item.shaping]
    assert folded([item]) == fold_all(log.events)
    assert folded([item]).horizon.header == log.horizon.header


def test_lines_begin_as_is_looked_for() -> None:
    event = seal(Draft(SessionTitle("On folding", CLIENT)), 7, 1)
    assert event.line.startswith(b'{"type":"session/title","seq":7,')
