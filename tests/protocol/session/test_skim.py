"""What is passed by when a log is read for its folds changes none of them, and hides nothing that the grammar refuses."""

from __future__ import annotations

from collections.abc import Container

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import InvalidEventError, SessionCorruptionError
from refold_protocol.session.codec import CHUNK, seal
from refold_protocol.session.events import AssistantChunk, Draft, Event
from refold_protocol.session.messages import TextDelta
from refold_protocol.session.skim import Skim
from refold_protocol.session.work import fold_work
from refold_server.loop.folds import fold_all
from tests.support.log_strategies import logs
from tests.support.logs import Log, spoken


def skimmed(lines: list[bytes], cut: int = 0, bare: Container[int] = ()) -> list[Event]:
    skim = Skim()
    read = [CHUNK if seq in bare and line.startswith(CHUNK) else line for seq, line in enumerate(lines)]
    return [*skim.events(read[:cut]), *skim.events(read[cut:]), *skim.rest(lambda first, last: lines[first : last + 1])]


def streaming() -> Log:
    """A log that ends in a streamed reply, behind a finished one."""
    log = Log()
    log.instance()
    log.whole_turn()
    log.turn()
    log.step()
    log.stream(*spoken("half"))
    return log


@given(logs(), st.integers(0, 10_000), st.integers(0, 10_000), st.sets(st.integers(0, 60)))
def test_the_folds_of_what_is_skimmed_are_the_folds_of_all_wherever_the_log_ends_and_slices_end(
    log: Log, end: int, cut: int, bare: set[int]
) -> None:
    events = log.events[: end % (len(log.events) + 1)]
    lines = [event.line for event in events]
    assert fold_all(skimmed(lines, cut % (len(lines) + 1), bare)) == fold_all(events)


def test_a_bare_line_where_no_chunk_may_stand_is_refused() -> None:
    log = Log()
    log.whole_turn()
    with pytest.raises(SessionCorruptionError, match=f"event {len(log.events)}: not an event"):
        list(Skim().events([*log.lines, CHUNK]))


def test_chunks_of_a_finished_reply_are_passed_by_and_those_of_an_open_one_are_not() -> None:
    log = streaming()
    kept = skimmed(log.lines)
    assert [event for event in kept if event.type == "assistant/chunk"] == log.events[-3:]
    assert [event for event in log.events[:-3] if event.type != "assistant/chunk"] == kept[:-3]


def test_what_stands_between_chunks_comes_in_its_place() -> None:
    log = streaming()
    log.send(attempt=2)
    log.stream(*spoken("again"), attempt=2)
    assert skimmed(log.lines)[-7:] == log.events[-7:]
    log.reply("again")
    assert [event.seq for event in skimmed(log.lines)[-3:]] == [log.events[-9].seq, log.events[-5].seq, log.events[-1].seq]


def test_a_chunk_where_no_step_waits_for_its_reply_is_refused_by_the_grammar() -> None:
    log = Log()
    log.whole_turn()
    stray = seal(Draft(AssistantChunk(1, 1, 1, TextDelta(0, "late"))), len(log.events), log.events[-1].time)
    with pytest.raises(InvalidEventError, match="names step"):
        fold_work(skimmed([*log.lines, stray.line]))


def test_a_line_that_is_no_event_is_named_by_its_seq() -> None:
    log = streaming()
    lines = log.lines
    lines[4] = b"\0" * 40
    with pytest.raises(SessionCorruptionError, match="event 4"):
        skimmed(lines)


def test_a_line_in_the_wrong_place_is_named() -> None:
    lines = streaming().lines
    del lines[0]
    with pytest.raises(SessionCorruptionError, match="event 0 calls itself 1"):
        skimmed(lines)


def test_the_line_of_a_chunk_begins_as_is_looked_for() -> None:
    chunks = [event for event in streaming().events if event.type == "assistant/chunk"]
    assert all(event.line.startswith(CHUNK) for event in chunks)


def test_a_chunk_behind_a_step_that_ended_without_a_reply_is_refused_whatever_follows() -> None:
    log = streaming()
    log.end_step("failed")
    lines = log.lines
    lines.append(seal(Draft(AssistantChunk(2, 1, 1, TextDelta(0, "late"))), len(lines), log.events[-1].time).line)
    log.end_turn()
    log.whole_turn()
    behind = log.events[len(lines) - 1 :]
    lines += [seal(Draft(one.data, one.surface_op, one.sources), one.seq + 1, one.time).line for one in behind]
    with pytest.raises(InvalidEventError, match="names step"):
        fold_work(skimmed(lines))
