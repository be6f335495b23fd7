"""Compaction by itself: before a step whose request would be too large, and after a provider said that it was (Must show 3)."""

from __future__ import annotations

import logging

import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import CompactEnd, CompactStart, CompactSummary, RequestSent, StepEnd, TurnEnd, TurnError
from refold_protocol.session.messages import Chunk, UsageChunk, text_of
from refold_server.config import CompactionConfig
from refold_server.sessions.session import Session
from refold_server.sessions.session_settings import SettingsPatch
from tests.support.loop_host import Script, ScriptedHost, ScriptedProvider, calls
from tests.support.loop_host import says as says_with_usage
from tests.support.loops import assert_proven, echo, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

OVERFLOW = ProviderError(
    "provider.contextOverflow",
    "the provider reported an error (400, exceed_context_size_error): too large (9,000 tokens asked, the window holds 8,192)",
    status=400,
)
STORY = "It is a long story. " * 54


def says(text: str) -> list[Chunk]:
    """A reply of a provider that counts no tokens."""
    return [chunk for chunk in says_with_usage(text) if not isinstance(chunk, UsageChunk)]


def host(*scripts: Script, window: int | None = 4_000, policy: CompactionConfig | None = None) -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(*scripts))
    made.window = window
    made.policy = policy or CompactionConfig()
    return made


def of(session: Session, kind: type) -> list[object]:
    return [event.data for event in session.session_log.handle.read() if isinstance(event.data, kind)]


def ended(event: object) -> TurnError:
    data = getattr(event, "data", None)
    assert isinstance(data, TurnEnd)
    assert data.reason.error is not None
    return data.reason.error


async def test_a_history_that_reaches_the_threshold_is_compacted_before_the_next_step() -> None:
    around = host(says(STORY), says(STORY), says(STORY), says("Three stories."), says("fine"))
    async with scripted_session(around) as session:
        for prompt in ("one", "two", "three"):
            await turn(session, prompt)
        assert of(session, CompactStart) == []
        tail = session.session_log.handle.tail
        await turn(session, "four")
        assert types(session, tail + 1)[:9] == [
            "input/accepted",
            "turn/start",
            "user/message",
            "compact/start",
            "request/sent",
            "compact/summary",
            "user/message",
            "compact/end",
            "step/start",
        ]
        (start,) = of(session, CompactStart)
        assert isinstance(start, CompactStart)
        assert (start.trigger, start.turn) == ("pressure", 4)
        texts = [text_of(message.content) for message in around.scripted.requests[-1].history]
        assert "Three stories." in texts[0]
        assert texts[1:] == [STORY, "four"], "a tail stays as it is"
        assert_proven(session)


async def test_without_a_window_nothing_is_compacted_by_itself() -> None:
    around = host(*[says(STORY)] * 6, window=None)
    async with scripted_session(around) as session:
        for _ in range(6):
            assert end_of(await turn(session)) == "completed"
        assert of(session, CompactStart) == []


async def test_where_it_is_switched_off_nothing_is_compacted_by_itself() -> None:
    around = host(*[says(STORY)] * 6, policy=CompactionConfig(auto=False))
    async with scripted_session(around) as session:
        for _ in range(6):
            assert end_of(await turn(session)) == "completed"
        assert of(session, CompactStart) == []


async def test_the_threshold_is_that_of_the_model_that_is_asked_next() -> None:
    """A session that moves to a model with less room is compacted before that model is asked."""
    around = host(says(STORY), says(STORY), says("Two stories."), says("fine"))
    around.windows["scripted/tiny"] = 2_000
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        await session.configure(SettingsPatch(model="tiny"))
        await turn(session, "three")
        (start,) = of(session, CompactStart)
        assert isinstance(start, CompactStart)
        assert start.config.model == "small", "who was asked last sums up: its provider has the prompt in its cache"
        assert around.scripted.requests[-1].header.config.model == "tiny"
        assert_proven(session)


async def test_a_failed_compaction_is_told_and_the_step_goes_on_with_the_whole_history(
    caplog: pytest.LogCaptureFixture,
) -> None:
    around = host(says(STORY), says(STORY), says(STORY), says(""), says(" "), calls(("a", "look", "{}")), says("fine"))
    around.bodies["look"] = echo
    async with scripted_session(around) as session:
        for prompt in ("one", "two", "three"):
            await turn(session, prompt)
        before = session.session_log.folds.request_state.surface
        with caplog.at_level(logging.WARNING):
            assert end_of(await turn(session, "four")) == "completed"
        ends = of(session, CompactEnd)
        assert [end.error.kind for end in ends if isinstance(end, CompactEnd) and end.error] == ["compaction.failed"]
        assert "blank" in caplog.text
        sent = [data for data in of(session, RequestSent) if isinstance(data, RequestSent) and data.purpose == "summary"]
        assert [data.attempt for data in sent] == [1, 2], "one extra attempt, and none at the turn's second step"
        after = session.session_log.folds.request_state.surface.nodes
        assert after[: len(before.nodes)] == before.nodes[:]
        assert_proven(session)


async def test_an_overflow_ends_the_step_and_the_next_one_succeeds_after_one_compaction() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(host(says(STORY), says(STORY), window=100_000), store=store) as session:
        await turn(session, "one")
        await turn(session, "two")
    around = host([OVERFLOW], says("Two stories."), says("fine"), window=100_000)
    async with scripted_session(around, store=store) as session:
        tail = session.session_log.handle.tail
        assert end_of(await turn(session, "three")) == "completed"
        found = types(session, tail + 1)
        assert found[found.index("step/start") :] == [
            "step/start",
            "request/header",
            "request/sent",
            "step/end",
            "compact/start",
            "request/sent",
            "compact/summary",
            "user/message",
            "compact/end",
            "step/start",
            "request/sent",
            "assistant/chunk",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        outcomes = [step.outcome for step in of(session, StepEnd) if isinstance(step, StepEnd)]
        assert outcomes[-2:] == ["overflow", "ok"]
        start = last(session, CompactStart)
        assert isinstance(start, CompactStart)
        assert start.trigger == "overflow"
        assert_proven(session)


async def test_an_overflow_after_that_ends_the_turn_with_the_numbers() -> None:
    """Invariant: An overflow is answered by making room once a turn; a second one ends it with the numbers."""
    around = host(says(STORY), says(STORY), [OVERFLOW], says("Two stories."), [OVERFLOW], says("fine"), window=100_000)
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        error = ended(await turn(session, "three"))
        assert error.kind == "provider.contextOverflow"
        assert error.status == 400
        assert "9,000 tokens asked, the window holds 8,192" in error.message
        assert "compacted once in this turn" in error.message
        assert "By estimate the window has 100,000 tokens" in error.message
        assert "of it event " in error.message
        assert len(of(session, CompactSummary)) == 1
        assert end_of(await turn(session, "four")) == "completed"
        assert_proven(session)


async def test_an_overflow_of_a_history_that_cannot_be_summed_up_ends_the_turn() -> None:
    around = host(says(STORY), says(STORY), [OVERFLOW], says(STORY * 9), says(STORY * 9), window=100_000)
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        error = ended(await turn(session, "three"))
        assert error.kind == "provider.contextOverflow"
        assert "would not make the history shorter" in error.message
        assert_proven(session)


async def test_an_overflow_whose_summary_call_does_not_fit_either_is_told_with_the_figures_of_the_step() -> None:
    larger = ProviderError("provider.contextOverflow", "too large (9,500 tokens asked, the window holds 8,192)", status=400)
    around = host(says(STORY), says(STORY), [OVERFLOW], [larger], [larger], says("fine"), window=100_000)
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        error = ended(await turn(session, "three"))
        assert error.kind == "provider.contextOverflow"
        assert "9,000 tokens asked, the window holds 8,192" in error.message
        assert "No room could be made in the history" in error.message
        assert "9,500 tokens asked" in error.message
        assert_proven(session)


async def test_an_overflow_of_a_model_whose_window_nobody_stated_names_the_setting() -> None:
    async with scripted_session(host(says(STORY), [OVERFLOW], window=None)) as session:
        await turn(session, "one")
        error = ended(await turn(session, "two"))
        assert error.kind == "provider.contextOverflow"
        assert 'set context_window under [models."scripted/small"]' in error.message


async def test_an_overflow_without_anything_before_it_ends_the_turn() -> None:
    around = host(says("hm"), [OVERFLOW])
    async with scripted_session(around) as session:
        await turn(session, "one")
        around.scripted.scripts[:] = [[OVERFLOW]]
        error = ended(await turn(session, STORY))
        assert error.kind == "provider.contextOverflow"
        assert_proven(session)


async def test_a_summary_call_that_does_not_fit_is_tried_with_less_under_a_start_of_its_own() -> None:
    around = host(*[says(STORY)] * 4, [OVERFLOW], [OVERFLOW], says("Some stories."), says("fine"), window=100_000)
    async with scripted_session(around) as session:
        for prompt in ("one", "two", "three", "four"):
            await turn(session, prompt)
        assert end_of(await turn(session, "five")) == "completed"
        first, second = [start for start in of(session, CompactStart) if isinstance(start, CompactStart)]
        assert first.range[0] == second.range[0]
        assert first.range[1] > second.range[1]
        kinds = [end.error and end.error.kind for end in of(session, CompactEnd) if isinstance(end, CompactEnd)]
        assert kinds == ["provider.contextOverflow", None]
        sent = [data for data in of(session, RequestSent) if isinstance(data, RequestSent) and data.purpose == "summary"]
        assert [data.attempt for data in sent] == [1, 1]
        assert_proven(session)


async def test_at_most_two_summaries_are_asked_for_in_one_turn_and_failures_make_the_next_turns_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blank = [says(""), says("")]
    around = host(says(STORY), says(STORY), says(STORY), *blank, says("a"), says("b"), *blank, says("c"), says("d"), says("e"))
    around.policy = CompactionConfig(attempts=5)
    async with scripted_session(around) as session:
        for prompt in ("one", "two", "three"):
            await turn(session, prompt)
        asked: list[int] = []
        with caplog.at_level(logging.WARNING):
            for prompt in ("four", "five", "six", "seven", "eight"):
                before = len(around.scripted.requests)
                assert end_of(await turn(session, prompt)) == "completed"
                asked.append(len(around.scripted.requests) - before - 1)
        assert asked == [2, 0, 2, 0, 0], "one turn goes by after the first failure, two after the second"
        assert_proven(session)


async def test_a_refusal_of_the_provider_waits_for_no_turn_to_go_by() -> None:
    failing = [says(""), says(""), says("a")]
    around = host(*[says(STORY)] * 3, *failing, [OVERFLOW], says("Two stories."), says("b"))
    async with scripted_session(around) as session:
        for prompt in ("one", "two", "three", "four"):
            await turn(session, prompt)
        assert end_of(await turn(session, "five")) == "completed"
        assert len(of(session, CompactSummary)) == 1
        assert_proven(session)
