"""What a provider's figures say beside the bytes: kept, lost by the provider, or not to be told; with the words for it."""

from __future__ import annotations

from msgspec.structs import replace

from refold_protocol.session.events import AssistantMessage
from refold_protocol.session.messages import Usage
from refold_protocol.session.prefix_cache import fold_attribution
from tests.support.attributions import ask, recorded, rows, verdicts, why
from tests.support.logs import HEADER, Log


def test_another_provider_with_the_same_bytes_has_nothing_cached() -> None:
    log = recorded()
    ask(log, usage=Usage(10, 5, 5000))
    ask(log, replace(HEADER, config=replace(HEADER.config, provider="other")), Usage(5010, 5, 0))
    assert verdicts(log)[-1] == "moved"
    assert why(log) == [f"event {rows(log)[-1].causes[0].seq} request/header-delta: config provider: “engine” → “other”"]


def test_a_provider_that_lost_what_it_had_is_told_from_a_broken_prefix() -> None:
    log = recorded()
    ask(log, usage=Usage(4000, 10, 0))
    ask(log, usage=Usage(20, 10, 4000))
    ask(log, usage=Usage(4100, 10, 0))
    assert verdicts(log) == ["first", "kept", "provider"]
    assert why(log) == [
        "the bytes are kept, but of 4,020 tokens that the provider had read, it reports 0 as cached, 0 s after the request "
        "before"
    ]


def _summed_up_in_vain(log: Log, provider: str = "engine") -> int:
    """Let a compaction of all nodes fail; give the seq of its `request/sent`."""
    nodes, header = log.surface.nodes, log.request_state.header
    assert header is not None
    asked = replace(header.config, provider=provider)
    log.compaction(nodes[0].seq, nodes[-1].seq, None, asked)
    return next(event.seq for event in reversed(log.events) if event.type == "request/sent")


def test_a_provider_that_was_asked_for_a_summary_in_between_is_not_blamed() -> None:
    """An engine with one slot keeps the prompt of the summary; the request behind a failed one finds less."""
    log = recorded()
    ask(log, usage=Usage(4000, 10, 0))
    ask(log, usage=Usage(20, 10, 4000))
    seq = _summed_up_in_vain(log)
    ask(log, usage=Usage(2100, 10, 2000))
    assert verdicts(log) == ["first", "kept", "summary"]
    assert why(log) == [
        "the bytes are kept, but of 4,020 tokens that the provider had read, it reports 2,000 as cached; "
        f"event {seq} request/sent asked it for a summary in between"
    ]
    ask(log, usage=Usage(20, 10, 4100))
    ask(log, usage=Usage(4200, 10, 0))
    assert verdicts(log)[3:] == ["kept", "provider"], "the request after that has its cache again, or lost it otherwise"


def test_a_summary_that_cost_nothing_or_that_another_provider_was_asked_for_explains_nothing() -> None:
    for provider, cached, expected in (("engine", 4000, "kept"), ("other", 0, "provider")):
        log = recorded()
        ask(log, usage=Usage(4000, 10, 0))
        ask(log, usage=Usage(20, 10, 4000))
        _summed_up_in_vain(log, provider)
        ask(log, usage=Usage(4100 - cached, 10, cached))
        assert verdicts(log)[-1] == expected


def test_less_than_the_least_that_a_provider_reports_is_nothing_lost() -> None:
    """It caches in blocks, and no block is larger than what it reported."""
    log = recorded()
    ask(log, usage=Usage(1600, 10, 0))
    ask(log, usage=Usage(700, 10, 1024))
    ask(log, usage=Usage(1000, 10, 1024))
    ask(log, usage=Usage(1100, 10, 1005))
    assert verdicts(log) == ["first", "kept", "kept", "provider"]


def test_of_a_provider_that_reports_large_prompts_only_more_must_be_missing_and_never_more_than_a_bound() -> None:
    log = recorded()
    ask(log, usage=Usage(5000, 10, 0))
    ask(log, usage=Usage(905, 10, 4096))
    ask(log, usage=Usage(5000, 10, 905))
    ask(log, usage=Usage(60000, 10, 0))
    assert verdicts(log) == ["first", "kept", "provider", "provider"]
    large = recorded()
    ask(large, usage=Usage(60000, 10, 0))
    ask(large, usage=Usage(4095, 10, 55905))
    ask(large, usage=Usage(4096, 10, 55904))
    assert verdicts(large) == ["first", "kept", "provider"]


def test_a_provider_that_never_reports_cached_tokens_is_unknown() -> None:
    log = recorded()
    ask(log, usage=Usage(4000, 10))
    ask(log, usage=Usage(4100, 10))
    assert verdicts(log) == ["first", "unknown"]
    ask(log, usage=Usage(4200, 10, 0))
    assert verdicts(log)[-1] == "unknown", "a provider that says 0 each time does not count them"
    ask(log, usage=Usage(100, 10, 4200))
    assert verdicts(log) == ["first", "unknown", "provider", "kept"]
    assert why(log) == []


def test_a_prompt_that_failed_does_not_hide_what_was_cached_before() -> None:
    log = recorded()
    ask(log, usage=Usage(4000, 10, 0))
    log.turn()
    log.step()
    log.end_step("error")
    log.end_turn()
    ask(log, usage=Usage(100, 10, 4000))
    assert [row.cacheable for row in rows(log)] == [None, 4000, 4000]
    assert verdicts(log) == ["first", "unknown", "kept"]


def test_what_a_broken_request_left_cached_is_unknown_until_the_provider_says_it() -> None:
    log = recorded()
    ask(log, usage=Usage(100, 10, 3900))
    log.turn()
    log.step(replace(HEADER, system="Be thorough."))
    log.end_step("error")
    log.end_turn()
    ask(log, usage=Usage(4000, 10, 0))
    assert [row.cacheable for row in rows(log)] == [None, None, None]
    assert verdicts(log) == ["first", "break", "unknown"]


def test_figures_of_another_step_are_not_taken_for_those_of_the_request() -> None:
    log = recorded()
    ask(log, usage=Usage(100, 10, 3900))
    strayed = [
        replace(event, data=replace(event.data, step=9)) if isinstance(event.data, AssistantMessage) else event
        for event in log.events
    ]
    state = fold_attribution(strayed)
    assert (state.rows[0].usage, state.cacheable, state.caching) == (None, None, ())
