"""The pressure of each request: what the meter said before it was sent, beside what the provider counted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from refold_protocol.session.events import UserMessage
from refold_protocol.session.messages import Usage, text_content
from refold_protocol.session.meter import PressureRow, PressureRows
from refold_protocol.session.token_estimate import MeterProfile
from tests.support.logs import CLIENT, HEADER, Log, spoken
from tests.support.metering import Metering

CHAIN = MeterProfile("engine/chain", 1_000)
RANDOM = MeterProfile("engine/random", 2_000)
OTHER_HEADER = replace(HEADER, config=replace(HEADER.config, model="random"))


def rows(log: Log, *profiles: MeterProfile, as_model: str | None = None) -> list[PressureRow]:
    """Gather the rows of a log."""
    gathered = PressureRows(profiles, lambda cited: log.events[cited[0] : cited[1] + 1], as_model)
    for event in log.events:
        gathered.feed(event)
    return gathered.rows


def ask(log: Log, usage: Usage | None) -> None:
    """Write a turn of one step."""
    log.turn()
    log.step()
    log.stream(*spoken("Because."))
    log.reply("Because.", usage=usage)
    log.end_step()
    log.end_turn()


def test_a_row_is_what_the_meter_said_when_the_request_left_and_what_the_provider_counted() -> None:
    log = Log()
    ask(log, Usage(100, 10))
    first_reply = next(event.seq for event in log.events if event.type == "assistant/message")
    log.turn("abcd")
    log.step()
    before = Metering(CHAIN, log.events).measure()
    log.reply("Well.", usage=Usage(20, 5, 105))
    one, two = rows(log, CHAIN)
    assert (one.turn, one.step, one.attempt, one.window, one.anchor) == (1, 1, 1, 1_000, None)
    assert one.tokens == one.estimate
    assert one.reported == 100
    assert two.anchor == first_reply
    assert two.tokens == before.tokens == 110 + 9
    assert two.estimate == before.header + before.surface
    assert two.reported == 125
    assert two.error == (119 - 125) / 125
    assert two.estimate_error == ((two.estimate or 0) - 125) / 125


def test_each_request_is_measured_by_the_meter_of_the_model_that_it_went_to() -> None:
    log = Log()
    ask(log, Usage(100, 10))
    log.turn()
    log.step(OTHER_HEADER)
    one, two = rows(log, CHAIN, RANDOM)
    assert (one.model, one.metered, one.window) == ("engine/chain", "engine/chain", 1_000)
    assert (two.model, two.metered, two.window, two.anchor) == ("engine/random", "engine/random", 2_000, None)


def test_a_model_without_a_meter_has_rows_without_figures() -> None:
    log = Log()
    ask(log, Usage(100, 10))
    (row,) = rows(log)
    assert (row.tokens, row.window, row.estimate, row.anchor, row.error) == (None,) * 5
    assert row.reported == 100


def test_another_model_s_meter_says_nothing_about_its_own_error() -> None:
    log = Log()
    ask(log, Usage(100, 10))
    (row,) = rows(log, RANDOM, as_model="engine/random")
    assert (row.model, row.metered, row.window) == ("engine/chain", "engine/random", 2_000)
    assert row.tokens == row.estimate
    assert (row.reported, row.error, row.estimate_error) == (100, None, None)


def test_each_attempt_has_a_row_and_the_last_has_the_usage() -> None:
    log = Log()
    log.turn()
    log.step()
    log.send(2)
    log.reply("Because.", usage=Usage(100, 10))
    one, two = rows(log, CHAIN)
    assert (one.attempt, one.usage, two.attempt, two.usage) == (1, None, 2, Usage(100, 10))


def test_a_report_of_no_tokens_is_none() -> None:
    log = Log()
    ask(log, Usage(0, 0))
    (row,) = rows(log, CHAIN)
    assert (row.reported, row.error) == (None, None)


def counted(text: str, thinner: float) -> int:
    """Count a text as a provider does whose tokens are `thinner` than those of an estimate."""
    return round(len(text) / 4 * thinner)


@pytest.mark.parametrize("thinner", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("header", [300, 2_000])
def test_the_first_request_after_a_compaction_is_metered_as_closely_as_any_other(thinner: float, header: int) -> None:
    log, sent, answer, summary = Log(), "", "The parser reads tokens. " * 60, "It is about the parser. " * 12
    for number in range(4):
        question = f"Question {number}: what does it do? " * 4
        log.turn(question)
        log.step()
        sent += question
        log.stream(*spoken(answer))
        log.reply(answer, usage=Usage(header + counted(sent, thinner), counted(answer, thinner)))
        sent += answer
        log.end_step()
        log.end_turn()
    nodes = log.surface.nodes
    log.replace(UserMessage(text_content(summary), CLIENT), nodes[0].seq, nodes[-1].seq)
    log.turn("And now?")
    log.step()
    log.reply("Well.", usage=Usage(header + counted(summary + "And now?", thinner), 5))
    last = rows(log, MeterProfile("engine/chain", 100_000))[-1]
    assert last.error is not None
    assert abs(last.error) < 0.05


def test_a_summary_s_request_has_a_row_with_what_it_was_expected_to_take_and_what_it_took() -> None:
    log = Log()
    ask(log, Usage(100, 10))
    nodes = log.surface.nodes
    log.compaction(nodes[0].seq, nodes[-1].seq, usage=Usage(140, 12))
    one, two = rows(log, CHAIN)
    assert (one.purpose, one.compaction) == ("step", None)
    assert (two.purpose, two.turn, two.step, two.usage) == ("summary", None, None, Usage(140, 12))
    assert log.events[two.compaction or 0].type == "compact/start"
    assert two.anchor is not None
    assert (two.tokens or 0) > 110
