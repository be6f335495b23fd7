"""The harness's look at compactions: sees one that is half done, and nothing wrong in one that is whole, or failed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from refold_protocol.session.events import AssistantMessage, Event, StepEnd
from refold_protocol.session.messages import TextBlock
from tests.crash.replaces import torn_compactions
from tests.support.logs import Log


def compacted(text: str | None) -> tuple[list[Event], int]:
    """Give a log with a compaction in the middle, and the place of its `compact/start`."""
    log = Log()
    log.instance()
    log.turn("One?")
    turn, step = log.step()
    log.append(AssistantMessage(turn, step, (TextBlock("Yes."),), "engine", "chain", "stop"))
    log.add(StepEnd(turn, step))
    nodes = [node.seq for node in log.surface.nodes]
    return log.events, log.compaction(nodes[0], nodes[-1], text).seq


@pytest.mark.parametrize("text", ["They asked.", None])
def test_a_compaction_that_is_whole_or_changed_nothing_is_right(text: str | None) -> None:
    events, start = compacted(text)
    assert list(torn_compactions(events, closed=True)) == []
    assert list(torn_compactions(events[: start + 2])) == [], "open, and nothing is changed yet"


def test_an_open_compaction_is_wrong_where_all_must_be_closed() -> None:
    events, start = compacted("They asked.")
    assert list(torn_compactions(events[: start + 2], closed=True)) == [f"the compaction of {start} has no end"]


@pytest.mark.parametrize("missing", [1, 2])
def test_a_landing_that_is_cut_off_is_wrong(missing: int) -> None:
    events, _ = compacted("They asked.")
    assert any("stands without its message" in fault for fault in torn_compactions(events[:-missing]))


def test_an_end_that_says_failed_behind_a_replace_is_wrong() -> None:
    landed, start = compacted("They asked.")
    failed, _ = compacted(None)
    end = failed[-1]
    faults = list(torn_compactions([*landed[:-1], end]))
    assert any(f"the compaction of {start} ended at {end.seq}, and the surface is" in fault for fault in faults)


def test_a_success_without_a_summary_is_wrong() -> None:
    events, start = compacted("They asked.")
    kept, _ = compacted(None)
    faults = list(torn_compactions([*kept[:-1], events[-1]]))
    assert f"the compaction of {start} took place, and has no summary" in faults


def test_a_fork_may_be_cut_inside_a_landing_if_its_end_is_true() -> None:
    events, start = compacted("They asked.")
    kept, _ = compacted(None)
    for cut in (start + 2, start + 3):
        assert list(torn_compactions(events[: cut + 1], cut)) == []
    assert list(torn_compactions(events, start + 3, closed=True)) == []
    said_failed = [*events[:-1], replace(kept[-1], seq=start + 4)]
    assert [fault for fault in torn_compactions(said_failed, start + 3) if "and the surface is" in fault]
