"""The meter: what anchors a total, what moves it, and what does neither."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from refold_protocol.session.chunks import assemble
from refold_protocol.session.events import AssistantMessage, ContextMessage, ToolResult, UserMessage
from refold_protocol.session.messages import Chunk, FinishChunk, Message, ReasoningDelta, ToolCallDelta, Usage, text_content
from refold_protocol.session.meter import Pressure
from refold_protocol.session.token_estimate import Density, MeterProfile, estimate_header, estimate_message
from tests.support.logs import CLIENT, HEADER, Log, call, spoken
from tests.support.metering import Metering

CHAIN = MeterProfile("engine/chain", 8_192)
OTHER_HEADER = replace(HEADER, config=replace(HEADER.config, model="random"))
USAGE = Usage(9, 16, 2_400, 120, 7)
"""2,529 tokens of prompt and 16 of output, of which 7 are reasoning."""


def pressure(log: Log, profile: MeterProfile = CHAIN) -> Pressure:
    """Measure a whole log."""
    return Metering(profile, log.events).measure()


def prices(log: Log) -> list[tuple[int, int]]:
    """Give seq and tokens of each node."""
    return [(node.seq, node.tokens) for node in Metering(CHAIN, log.events).measure_surface().nodes]


def asked(log: Log, *chunks: Chunk, usage: Usage | None = USAGE) -> None:
    """Write a step whose reply is put together of its chunks, as the loop does; the step is open behind it."""
    log.step()
    log.stream(*chunks, FinishChunk("stop"))
    log.reply(*assemble(chunks).content, usage=usage)


def test_before_any_request_the_surface_is_all_and_nothing_is_anchored() -> None:
    log = Log()
    assert pressure(log) == Pressure("engine/chain", 8_192, 0, 0, 0, None, 0)
    log.turn("abcdefgh")
    assert pressure(log) == Pressure("engine/chain", 8_192, 10, 0, 10, None, 2)


def test_without_usage_the_whole_request_is_estimated() -> None:
    log = Log()
    log.whole_turn("abcdefgh", "abcd")
    found = pressure(log)
    assert (found.header, found.surface, found.anchor) == (estimate_header(HEADER), 10 + 9, None)
    assert found.tokens == found.header + found.surface
    assert found.log_revision == len(log.events)
    assert found.ratio == found.tokens / 8_192


def test_right_after_a_call_with_usage_the_total_is_the_provider_s() -> None:
    log = Log()
    log.turn()
    asked(log, *spoken("Because."), ReasoningDelta(1, "hm"), ToolCallDelta(2, "{}"))
    found = pressure(log)
    assert found.tokens == 2_529 + 16
    assert found.anchor is not None
    assert (found.anchor.turn, found.anchor.step, found.anchor.seq) == (1, 1, log.events[-1].seq)


def test_what_the_surface_gains_behind_the_call_is_added_by_estimate() -> None:
    log = Log()
    log.turn()
    asked(log, *spoken("Because."))
    log.end_step()
    log.append(ContextMessage(text_content("abcd"), CLIENT, "raw"))
    assert pressure(log).tokens == 2_545 + 9


def test_a_replace_that_shrinks_the_surface_takes_away_what_it_saves_but_never_below_zero() -> None:
    log = Log()
    log.turn("x" * 4_000)
    prompt = log.events[-1].seq
    asked(log, *spoken("Because."))
    log.end_step()
    log.replace(UserMessage(text_content("abcd"), CLIENT), prompt, prompt)
    assert pressure(log).tokens == 2_545 - 1_000 + 1
    again = Log()
    again.turn("x" * 4_000)
    asked(again, *spoken("Because."), usage=Usage(10, 2))
    again.end_step()
    again.replace(UserMessage(text_content("abcd"), CLIENT), 1, 1)
    assert pressure(again).tokens == 0


def test_pruning_a_result_changes_its_price_in_place() -> None:
    log = Log()
    log.turn()
    log.tool_step("c1")
    result = log.surface.nodes[-1]
    assert isinstance(result.data, ToolResult)
    before = prices(log)
    pruned = log.replace(replace(result.data, content=text_content("x" * 400)), result.seq, result.seq)
    assert prices(log) == [*before[:-1], (pruned.seq, 4 + 4 + 100 + 4)]


def test_another_model_s_call_changes_the_surface_and_never_the_anchor() -> None:
    log = Log()
    log.turn()
    asked(log, *spoken("Because."))
    log.end_step()
    anchor = pressure(log).anchor
    log.step(OTHER_HEADER)
    log.stream(*spoken("abcd"))
    log.reply("abcd", usage=Usage(7_000, 100))
    log.end_step()
    under_the_other = pressure(log)
    assert under_the_other.anchor is None
    assert under_the_other.tokens == under_the_other.header + under_the_other.surface
    back = Metering(CHAIN, log.events).measure(HEADER)
    assert (back.anchor, back.tokens) == (anchor, 2_545 + 9)
    other = pressure(log, replace(CHAIN, model="engine/random"))
    assert other.tokens == 7_100


def test_a_header_that_differs_reprices_everything_and_an_equal_one_does_not() -> None:
    log = Log()
    log.turn()
    asked(log, *spoken("Because."))
    metering = Metering(CHAIN, log.events)
    for differs in (
        replace(HEADER, system="Be thorough."),
        replace(HEADER, tools=None),
        replace(HEADER, message_prefix=(Message("user", text_content("abcd")),)),
        replace(HEADER, config=replace(HEADER.config, temperature=0.5)),
    ):
        found = metering.measure(differs)
        assert found.anchor is None
        assert found.tokens == estimate_header(differs) + found.surface
    assert metering.measure(replace(HEADER, message_prefix=())).tokens == 2_545


def test_a_header_that_comes_back_makes_the_old_usage_count_again() -> None:
    log = Log()
    log.turn()
    asked(log, *spoken("Because."))
    log.end_step()
    log.step(replace(HEADER, system="Be thorough."))
    log.reply("abcd")
    log.end_step()
    assert pressure(log).anchor is None
    log.step(HEADER)
    assert pressure(log).tokens == 2_545 + 9


def test_an_interrupted_reply_never_anchors() -> None:
    log = Log()
    log.turn()
    log.step()
    log.stream(*spoken("Because."))
    message = AssistantMessage(*log.here(), text_content("Because."), "engine", "chain", "other", USAGE, interrupted=True)
    log.append(message, sources=log.work.stream.ranges)
    assert pressure(log).anchor is None


@pytest.mark.parametrize("usage", [Usage(0, 0), Usage(40, -3), Usage(40, 3, -1), Usage(2**60, 3), Usage(40, 3, 1, 1, -1)])
def test_a_usage_whose_prompt_has_no_tokens_or_whose_figures_count_nothing_is_no_count(usage: Usage) -> None:
    log = Log()
    log.turn()
    asked(log, *spoken("Because."), usage=usage)
    assert pressure(log).anchor is None


def test_b03_a_reply_that_the_model_never_sees_again_costs_nothing_and_its_output_is_taken_off() -> None:
    log = Log()
    log.turn()
    asked(log, ReasoningDelta(0, "x" * 40))
    assert prices(log)[-1][1] == 0
    assert pressure(log).tokens == 2_545 - (10 + 4 + 4)


def test_the_provider_s_output_is_what_the_reply_cites() -> None:
    whole = estimate_message(Message("assistant", text_content("Because.")))
    totals: list[int] = []
    for cited in ("chunks", "nothing", "unsaid"):
        log = Log()
        log.turn()
        log.step()
        log.stream(*spoken("What an earlier attempt said."))
        log.send(2)
        log.stream(*spoken("Because."), attempt=2)
        sources = {"chunks": log.work.stream.ranges, "nothing": (), "unsaid": None}[cited]
        message = AssistantMessage(*log.here(), text_content("Because."), "engine", "chain", "stop", USAGE)
        log.append(message, sources=sources)
        totals.append(pressure(log).tokens)
    assert totals == [2_545, 2_545 + whole, 2_545]


def test_a_reply_that_cites_only_some_chunks_put_out_only_those() -> None:
    log = Log()
    log.turn()
    log.step()
    log.stream(*spoken("abcd"), *spoken("What a wrapper left out.", 1))
    first = log.work.stream.ranges[0][0]
    log.append(
        AssistantMessage(*log.here(), text_content("abcd"), "engine", "chain", "stop", USAGE), sources=((first, first + 2),)
    )
    assert pressure(log).tokens == 2_545


def test_a_copy_of_an_old_reply_that_takes_its_place_is_no_call() -> None:
    log = Log()
    log.turn()
    asked(log, *spoken("Because."))
    reply = log.events[-1]
    assert isinstance(reply.data, AssistantMessage)
    log.end_step()
    anchor = pressure(log).anchor
    log.replace(replace(reply.data, usage=Usage(5, 5)), reply.seq, reply.seq)
    assert pressure(log).anchor == anchor


def test_a_stream_that_runs_costs_nothing_yet() -> None:
    log = Log()
    log.turn()
    log.step()
    before = pressure(log)
    log.stream(*spoken("x" * 400))
    assert replace(pressure(log), log_revision=0) == replace(before, log_revision=0)


def test_nodes_have_their_prices_in_the_order_of_the_surface() -> None:
    log = Log()
    log.turn("abcd")
    log.step()
    log.reply("abcde", call("c1", "x" * 12))
    log.call("c1")
    log.result("c1", "abcd")
    assert [tokens for _, tokens in prices(log)] == [9, 6 + (3 + 3 + 4) + 4, 5 + 4 + 4]
    assert [seq for seq, _ in prices(log)] == [node.seq for node in log.surface.nodes]


def test_another_density_prices_surface_and_header_alike() -> None:
    log = Log()
    log.whole_turn("abcdefgh", "abcd")
    one = pressure(log, MeterProfile("engine/chain", 8_192, Density(1)))
    assert (one.header, one.surface) == (estimate_header(HEADER, Density(1)), 16 + 12)
