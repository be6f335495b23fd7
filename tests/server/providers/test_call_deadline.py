"""Waiting for a provider has limits, and a limit never hides a cancellation. All in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress

import anyio
import anyio.lowlevel
import pytest

from refold_protocol.errors import ProviderError
from refold_server.config import TimeoutsConfig
from refold_server.providers.http_provider import CallDeadline
from tests.support.virtual_time import VirtualTimeLoop, run_in_virtual_time

LIMITS = TimeoutsConfig(first_output_s=300, progress_s=120, total_s=3600)


async def never() -> None:
    await asyncio.Event().wait()


async def after(seconds: float) -> float:
    """Wait, and tell the time."""
    await anyio.sleep(seconds)
    return asyncio.get_running_loop().time()


def test_what_comes_in_time_is_given() -> None:
    async def work() -> None:
        with closing(CallDeadline(LIMITS)) as deadline:
            assert await deadline.wait(after(299)) == 299

    run_in_virtual_time(work())


@pytest.mark.parametrize(
    ("outputs", "limits", "at", "named"),
    [
        ([], LIMITS, 300, "first_output_s"),
        ([290], LIMITS, 410, "progress_s"),
        ([10, 100, 100], LIMITS, 330, "progress_s"),
        ([], TimeoutsConfig(first_output_s=300, total_s=60), 60, "total_s"),
        ([50, 50], TimeoutsConfig(progress_s=120, total_s=130), 130, "total_s"),
    ],
)
def test_the_limit_that_passes_first_ends_the_waiting_at_its_moment_and_is_named(
    outputs: list[int], limits: TimeoutsConfig, at: float, named: str
) -> None:
    async def work() -> None:
        with closing(CallDeadline(limits)) as deadline:
            for seconds in outputs:
                await deadline.wait(after(seconds))
                deadline.progressed()
            with pytest.raises(ProviderError, match=named) as caught:
                await deadline.wait(never())
        assert caught.value.error_kind == "provider.timeout"
        assert asyncio.get_running_loop().time() == pytest.approx(at)  # pyright: ignore[reportUnknownMemberType]
        await anyio.lowlevel.checkpoint()  # the task is not left cancelled

    run_in_virtual_time(work())


def test_the_end_of_a_call_can_come_closer_and_never_goes_away() -> None:
    async def work() -> None:
        with closing(CallDeadline(LIMITS)) as deadline:
            await deadline.wait(after(10))
            deadline.end_within(5)
            deadline.end_within(50)
            deadline.progressed()
            with pytest.raises(ProviderError):
                await deadline.wait(never())
        assert asyncio.get_running_loop().time() == 15

    run_in_virtual_time(work())


def test_a_limit_that_passes_while_nobody_waits_leaves_time_for_what_lies_there() -> None:
    async def work() -> None:
        with closing(CallDeadline(LIMITS)) as deadline:
            await deadline.wait(after(1))
            await after(1000)
            assert await deadline.wait(after(0.5)) == 1001.5
            with pytest.raises(ProviderError):
                await deadline.wait(never())

    run_in_virtual_time(work())


def test_nothing_is_left_behind() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with closing(CallDeadline(LIMITS)) as deadline:
            await deadline.wait(after(1))
            deadline.progressed()
            assert loop.timers() == 1
        assert loop.timers() == 0

    run_in_virtual_time(work())


def test_a_cancellation_is_never_taken_for_a_limit() -> None:
    async def work() -> None:
        with anyio.CancelScope() as scope, closing(CallDeadline(LIMITS)) as deadline:
            scope.cancel()
            await deadline.wait(never())
        assert scope.cancelled_caught

    run_in_virtual_time(work())


@pytest.mark.parametrize("moment", [299.0, 300.0])
def test_a_cancellation_at_the_moment_of_a_limit_is_not_lost(moment: float) -> None:
    async def work() -> None:
        with anyio.CancelScope() as scope, closing(CallDeadline(LIMITS)) as deadline:
            asyncio.get_running_loop().call_at(moment, scope.cancel)
            with suppress(ProviderError):  # whichever comes first
                await deadline.wait(never())
            await never()
        assert scope.cancelled_caught

    run_in_virtual_time(work())


def test_a_task_that_is_cancelled_beside_the_limit_stays_cancelled() -> None:
    async def waiting() -> None:
        with closing(CallDeadline(LIMITS)) as deadline:
            await deadline.wait(never())

    async def work() -> None:
        task = asyncio.create_task(waiting())
        asyncio.get_running_loop().call_at(300.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(work())
