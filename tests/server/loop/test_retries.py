"""A request that failed before anything was shown is sent again, in time, in the open, and never twice at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import AbortCause, AssistantChunk, LlmRetry, RequestSent, TurnEnd, TurnError
from refold_protocol.session.messages import BlockStart, TextDelta, text_content
from refold_server.config import RetryConfig
from refold_server.loop.retries import is_worth_another, wait_ms
from refold_server.sessions.session import Session
from tests.support.loop_host import Script, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, scripted_session, turn, types
from tests.support.virtual_time import run_in_virtual_time

BUSY = ProviderError("provider.overloaded", "busy", status=503)


def limited(wait: int | None) -> ProviderError:
    return ProviderError("provider.rateLimited", "too fast", status=429, retry_after_ms=wait)


def in_session(
    work: Callable[[Session, ScriptedProvider], Awaitable[None]], *scripts: Script, policy: RetryConfig | None = None
) -> None:
    """Run `work` with a session whose provider plays `scripts`, where waiting takes no time."""

    async def run() -> None:
        provider = ScriptedProvider(*scripts)
        host = ScriptedHost(provider, {"echo": echo})
        host.retry = policy or RetryConfig()
        async with scripted_session(host) as session:
            await work(session, provider)

    run_in_virtual_time(run())


def of(session: Session, kind: type) -> list[object]:
    return [event.data for event in session.session_log.handle.read() if isinstance(event.data, kind)]


def error_of(session: Session) -> TurnError:
    end = of(session, TurnEnd)[-1]
    assert isinstance(end, TurnEnd)
    assert end.reason.error is not None
    return end.reason.error


def test_a_server_that_was_busy_is_asked_again_with_the_same_bytes() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        assert end_of(await turn(session)) == "completed"
        assert len(set(provider.bodies)) == 1
        course = types(session)
        assert course[course.index("request/sent") :] == [
            *("request/sent", "llm/retry") * 2,
            *("request/sent", "assistant/chunk", "assistant/message", "step/end", "turn/end"),
        ]
        sent = [data for data in of(session, RequestSent) if isinstance(data, RequestSent)]
        assert [one.attempt for one in sent] == [1, 2, 3]
        assert len({one.sha256 for one in sent}) == 1
        chunks = [data for data in of(session, AssistantChunk) if isinstance(data, AssistantChunk)]
        assert {one.attempt for one in chunks} == {3}
        assert_proven(session)

    in_session(work, [BUSY], [BUSY], says("here"))


def test_each_wait_is_recorded_before_it_begins_and_twice_the_one_before() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        del provider
        assert end_of(await turn(session)) == "error"
        waits = [data.delay_ms for data in of(session, LlmRetry) if isinstance(data, LlmRetry)]
        assert [250 <= waits[0] <= 500, 500 <= waits[1] <= 1000, 1000 <= waits[2] <= 2000] == [True] * 3
        assert anyio.current_time() * 1000 == pytest.approx(sum(waits), abs=5)
        assert error_of(session).message == "busy; this was attempt 4"
        assert_proven(session)

    in_session(work, *[[BUSY]] * 4)


def test_the_wait_that_a_server_asks_for_is_kept() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        del provider
        assert end_of(await turn(session)) == "completed"
        assert of(session, LlmRetry) == [LlmRetry(1, 1, 1, "provider.rateLimited", 60_000)]
        assert anyio.current_time() == pytest.approx(60, abs=0.1)

    in_session(work, [limited(60_000)], says("now"))


def test_a_wait_beyond_the_budget_is_not_begun_and_is_told() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        assert end_of(await turn(session)) == "error"
        assert len(provider.bodies) == 1
        error = error_of(session)
        assert (error.kind, error.retry_after_ms) == ("provider.rateLimited", 3_600_000)
        assert "would begin in 3,600 s, and retry.budget_s does not allow for that" in error.message
        assert "llm/retry" not in types(session)

    in_session(work, [limited(3_600_000)])


def test_the_budget_counts_from_the_first_attempt() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        assert end_of(await turn(session)) == "error"
        assert len(provider.bodies) == 3
        assert anyio.current_time() == pytest.approx(100, abs=1)

    in_session(work, *[[limited(50_000)]] * 3)


def test_nothing_is_tried_again_after_a_chunk_was_shown() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        assert end_of(await turn(session)) == "error"
        assert len(provider.bodies) == 1
        assert "llm/retry" not in types(session)

    in_session(work, [BlockStart(0, "text"), TextDelta(0, "half"), BUSY], says("twice"))


def test_a_second_step_has_attempts_of_its_own_and_its_tools_run_once() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        assert end_of(await turn(session)) == "completed"
        sent = [(data.step, data.attempt) for data in of(session, RequestSent) if isinstance(data, RequestSent)]
        assert sent == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert types(session).count("tool/result") == 1
        assert len(provider.bodies) == 4
        assert_proven(session)

    in_session(work, [BUSY], calls(("c", "echo", "{}")), [BUSY], says("done"))


def test_an_interrupt_ends_the_wait_at_once() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        while "llm/retry" not in types(session):
            await anyio.lowlevel.checkpoint()
        began = anyio.current_time()
        reason = await session.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert (reason.kind, anyio.current_time() - began < 1) == ("aborted", True)
        assert len(provider.bodies) == 1
        assert_proven(session)

    in_session(work, [limited(90_000)], says("late"))


def test_without_further_attempts_the_error_is_the_providers_own() -> None:
    async def work(session: Session, provider: ScriptedProvider) -> None:
        assert end_of(await turn(session)) == "error"
        assert (len(provider.bodies), error_of(session).message) == (1, "busy")

    in_session(work, [BUSY], policy=RetryConfig(attempts=1))


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (BUSY, True),
        (limited(None), True),
        (ProviderError("provider.unreachable", "down"), True),
        (ProviderError("provider.unreachable", "no certificate", lasting=True), False),
        (ProviderError("provider.timeout", "slow"), True),
        (ProviderError("provider.badStream", "empty"), True),
        (ProviderError("provider.badStream", "a page", status=200), False),
        (ProviderError("provider.rejected", "no credit", status=429), False),
        (ProviderError("provider.rejected", "no credit", status=402), False),
        (ProviderError("provider.rejected", "no credit just now", status=402, retry_after_ms=5), True),
        (ProviderError("provider.auth", "bad key", status=401), False),
        (ProviderError("provider.auth", "old key", status=401, retry_after_ms=0), True),
        (ProviderError("provider.contextOverflow", "too long", status=400), False),
        (ProviderError("model.unconfigured", "who?"), False),
    ],
    ids=lambda value: f"{value.error_kind} {value.message}" if isinstance(value, ProviderError) else "",
)
def test_only_what_may_pass_is_worth_another_attempt(error: ProviderError, worth: bool) -> None:
    assert is_worth_another(error) is worth


def test_waits_grow_to_a_cap_and_differ_by_chance() -> None:
    policy = RetryConfig(base_ms=100, cap_ms=1_000)
    assert [wait_ms(policy, BUSY, failed, 1.0) for failed in (1, 2, 3, 4, 5, 60)] == [100, 200, 400, 800, 1000, 1000]
    assert [wait_ms(policy, BUSY, 2, chance) for chance in (0.0, 0.5, 1.0)] == [100, 150, 200]
    assert [wait_ms(policy, limited(wait), 1, 1.0) for wait in (0, 30, 5_000)] == [100, 100, 5_000]
    assert wait_ms(policy, ProviderError("provider.auth", "old key", retry_after_ms=0), 1, 1.0) == 0
