"""The first metering of a log gives what folding each of its events gives, wherever it ends and however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.session.codec import CHUNK
from refold_protocol.session.density import Density
from refold_protocol.session.messages import Usage
from refold_protocol.session.meter import MeterState, fold_meter, measure, measure_surface
from refold_protocol.session.meter_profile import MeterProfile
from refold_protocol.session.meter_skim import MeterSkim
from refold_protocol.session.skimmed_turns import SkimmedTurns
from refold_protocol.session.turn_skim import TurnSkim
from tests.support.log_strategies import logs
from tests.support.logs import HEADER, Log, call, spoken

PROFILE = MeterProfile("engine/chain", 8_192, Density(2.0))


def skimmed(lines: list[bytes], *cuts: int) -> MeterState:
    reading, skim = TurnSkim(), MeterSkim(PROFILE)
    for start, end in zip((0, *cuts), (*cuts, len(lines)), strict=True):
        for item in reading.items([CHUNK if line.startswith(CHUNK) else line for line in lines[start:end]]):
            skim.take(item)
    for item in reading.rest(lambda first, last: lines[first : last + 1]):
        skim.take(item)
    return skim.done(lambda first, last: lines[first : last + 1])


def folded(log: Log, end: int | None = None) -> MeterState:
    return fold_meter(log.events[:end], MeterState(PROFILE))


@given(logs(), st.integers(0, 10_000), st.lists(st.integers(0, 10_000), max_size=3))
def test_a_skimmed_log_is_metered_as_a_folded_one(log: Log, end: int, cuts: list[int]) -> None:
    end %= len(log.events) + 1
    lines = log.lines[:end]
    state, whole = skimmed(lines, *sorted(cut % (end + 1) for cut in cuts)), folded(log, end)
    assert measure(state) == measure(whole)
    assert measure(state, HEADER) == measure(whole, HEADER)
    assert measure_surface(state) == measure_surface(whole)
    assert fold_meter(log.events[end:], state) == fold_meter(log.events[end:], whole)


def conversation(*, retried: bool = False) -> Log:
    log = Log()
    log.instance()
    for number in (100, 200):
        log.turn()
        log.tool_step(f"c{number}")
        log.step()
        log.stream(*spoken("It is so because it was so."))
        if retried:
            log.send(attempt=2)
            log.stream(*spoken("Be"), *spoken("cause", 1), attempt=2)
        log.reply("Because.", usage=Usage(number, 10))
        log.end_step()
        log.end_turn()
    return log


@pytest.mark.parametrize("retried", [False, True])
def test_the_last_anchor_s_output_is_what_its_reply_cites(retried: bool) -> None:
    log = conversation(retried=retried)
    state = skimmed(log.lines)
    assert state.anchor is not None
    assert state.anchor == folded(log).anchor
    assert measure(state).tokens == measure(folded(log)).tokens != 210  # the reply is shorter than what was put out


def test_what_is_added_behind_the_anchor_is_counted() -> None:
    log = conversation()
    log.turn("And what else?")
    assert measure(skimmed(log.lines)) == measure(folded(log))


def test_turns_out_of_order_are_refused_with_the_seq() -> None:
    log = conversation()
    reading = TurnSkim()
    turns = [item for item in reading.items(log.lines) if isinstance(item, SkimmedTurns)]
    skim = MeterSkim(PROFILE)
    skim.take(turns[0])
    with pytest.raises(SessionCorruptionError, match="may not stand here: turn 1 after turn 2") as caught:
        skim.take(turns[0])
    assert caught.value.details["seq"] == 1


def test_a_reply_with_calls_alone_is_priced_as_itself_where_nothing_was_streamed() -> None:
    log = Log()
    log.turn()
    log.step()
    log.reply(call("c1"), finish="tool-calls", usage=Usage(50, 5))
    log.result("c1")
    log.end_step()
    assert skimmed(log.lines) == folded(log)
    log.step()
    log.stream(*spoken("Yes."))
    log.reply("Yes.", usage=Usage(80, 5))
    log.end_step()
    log.end_turn()
    assert skimmed(log.lines) == folded(log)
