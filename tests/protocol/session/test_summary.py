"""What a list of sessions shows follows from the log."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold_protocol.ids import InputId
from refold_protocol.session.codec import seal
from refold_protocol.session.events import (
    AssistantMessage,
    CompactSummary,
    Draft,
    Event,
    InputAccepted,
    InstanceStart,
    RequestHeader,
    RequestHeaderDelta,
    SessionSettings,
    SessionTitle,
    Trigger,
    TurnStart,
)
from refold_protocol.session.messages import CallConfig, EpochHeader, ImageBlock, Source, TextBlock, Usage
from refold_protocol.session.session_totals import EMPTY_SUMMARY, SessionTotals, UsageTotals, summary_step
from tests.support.strategies import drafts

CLI = Source("cli")


def _prompt(text: str, mode: str = "prompt") -> Draft:
    return Draft(InputAccepted(InputId("i"), mode, (TextBlock(text),), CLI))


def _reply(usage: Usage | None) -> Draft:
    return Draft(AssistantMessage(1, 1, (TextBlock("ok"),), "engine", "chain", "stop", usage), "append")


def _log(*events: Draft) -> list[Event]:
    return [seal(draft, seq, 1000 + seq) for seq, draft in enumerate(events)]


def _summary(*events: Draft) -> SessionTotals:
    return reduce(summary_step, _log(*events), EMPTY_SUMMARY)


def test_the_first_line_of_the_first_prompt_stands_in_for_a_title() -> None:
    assert _summary(_prompt("  Why is it red?  \r\nSee below."), _prompt("And now?")).title == "Why is it red?"


def test_a_long_first_line_is_cut() -> None:
    assert _summary(_prompt("x" * 200)).title == "x" * 80


@pytest.mark.parametrize("mode", ["inject", "steer"])
def test_what_is_not_a_prompt_gives_no_title(mode: str) -> None:
    assert _summary(_prompt("CI is red", mode), _prompt("Fix it")).title == "Fix it"


def test_a_prompt_without_text_leaves_the_title_to_the_next() -> None:
    picture = Draft(InputAccepted(InputId("i"), "prompt", (ImageBlock("image/png", "00"),), CLI))
    assert _summary(picture).title is None
    assert _summary(picture, _prompt(" \n "), _prompt("Look")).title == "Look"


def test_a_given_title_wins_and_the_last_one_given_most_of_all() -> None:
    named = _summary(Draft(SessionTitle("One", CLI)), _prompt("Hello"), Draft(SessionTitle("Two", CLI)), _prompt("Bye"))
    assert (named.title, named.titled) == ("Two", True)
    assert not _summary(_prompt("Hello")).titled


def test_the_model_is_the_last_one_set_or_used() -> None:
    assert _summary(Draft(SessionSettings(model="a/b"))).model == "a/b"
    assert _summary(Draft(SessionSettings(model="a/b")), _reply(None)).model == "engine/chain"
    assert _summary(_reply(None), Draft(SessionSettings(effort="low"))).model == "engine/chain"


def test_the_model_is_known_from_its_first_request_on() -> None:
    header = Draft(RequestHeader(EpochHeader(CallConfig("engine", "chain", "chat-completions")), "initial"))
    changed = Draft(RequestHeaderDelta(config=CallConfig("engine", "random", "chat-completions")))
    assert _summary(header).model == "engine/chain"
    assert _summary(header, changed).model == "engine/random"
    assert _summary(header, Draft(RequestHeaderDelta())).model == "engine/chain"


def test_opening_a_session_is_no_activity() -> None:
    assert _summary(Draft(InstanceStart(1, "new")), Draft(SessionSettings(model="a/b"))).last_activity is None
    assert _summary(_prompt("Hello"), Draft(InstanceStart(2, "resume"))).last_activity == 1000


def test_inputs_turns_and_replies_are_activity() -> None:
    start = Draft(TurnStart(4, Trigger("message", CLI)))
    assert _summary(_prompt("Hello"), start).last_activity == 1001
    assert _summary(_prompt("Hello"), start).turns == 4
    assert _summary(_prompt("Hello"), start, _reply(None)).last_activity == 1002


def test_tokens_add_up_over_the_replies_and_an_unknown_bucket_adds_nothing() -> None:
    total = _summary(_reply(Usage(10, 2, 5, 1, 1)), _reply(None), _reply(Usage(7, 3))).usage
    assert total == UsageTotals(17, 5, 5, 1)


def test_a_summary_of_the_history_was_paid_for_too() -> None:
    paid = Draft(CompactSummary("They asked.", ((0, 0),), 10, "engine/chain", 512, Usage(10, 2, 5)))
    assert _summary(_reply(Usage(7, 3)), paid).usage == UsageTotals(17, 5, 5, 0)


@settings(max_examples=50)
@given(st.data())
def test_folding_on_from_any_place_equals_folding_all(data: st.DataObject) -> None:
    events = [seal(data.draw(drafts(seq)), seq, seq) for seq in range(data.draw(st.integers(0, 6)))]
    cut = data.draw(st.integers(0, len(events)))
    before = reduce(summary_step, events[:cut], EMPTY_SUMMARY)
    assert reduce(summary_step, events[cut:], before) == reduce(summary_step, events, EMPTY_SUMMARY)
