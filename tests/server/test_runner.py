"""The loop of a process's main work: what tasks that nobody waits for throw at it ends them, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress

import anyio
import anyio.to_thread
import pytest

from refold_server.runner import run_to_its_end
from refold_server.tools.tool_failure import Interrupted

ENDS = (KeyboardInterrupt, SystemExit)


def thrown(records: list[logging.LogRecord]) -> list[str]:
    """What was told of what was thrown at the loop."""
    return [record.getMessage() for record in records if record.name == "refold_server.runner"]


def test_it_gives_what_the_work_gives() -> None:
    async def work() -> int:
        return await anyio.to_thread.run_sync(lambda: 7)

    assert run_to_its_end(work) == 7


@pytest.mark.parametrize("kind", [ValueError, *ENDS, Interrupted])
def test_it_raises_what_the_work_raises(kind: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> int:
        raise kind

    with pytest.raises(kind):
        run_to_its_end(work)
    assert thrown(caplog.records) == []


@pytest.mark.parametrize("kind", ENDS)
def test_what_other_tasks_and_callbacks_throw_ends_nothing_and_is_told(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def throws() -> None:
        raise kind

    def throws_at_once() -> None:
        raise kind

    async def work() -> str:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(throws())
        with pytest.raises(kind):
            await task
        waited = loop.create_future()
        loop.call_soon(throws_at_once)
        loop.call_soon(throws_at_once)
        loop.call_soon(waited.set_result, "still here")
        with pytest.raises(BaseExceptionGroup):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(throws)
        await anyio.to_thread.run_sync(lambda: None)
        return await waited

    assert run_to_its_end(work) == "still here"
    assert thrown(caplog.records) == [f"a task that nobody waits for ended with {kind.__name__}, which ends nothing else"] * 4
    assert all(record.exc_info for record in caplog.records)


def test_an_interrupt_of_a_person_ends_it_wherever_it_is_raised() -> None:
    def interrupted() -> None:
        raise Interrupted

    async def work() -> None:
        asyncio.get_running_loop().call_soon(interrupted)
        await anyio.sleep_forever()

    with pytest.raises(Interrupted):
        run_to_its_end(work)


def test_a_signal_before_anybody_took_it_cancels_the_work_even_after_something_was_thrown() -> None:
    ended: list[str] = []

    def exits() -> None:
        raise SystemExit

    async def work() -> None:
        asyncio.get_running_loop().call_soon(exits)
        await anyio.to_thread.run_sync(lambda: None)
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await anyio.sleep_forever()
        finally:
            await asyncio.to_thread(ended.append, "in its time")

    with pytest.raises(KeyboardInterrupt):
        run_to_its_end(work)
    assert ended == ["in its time"]


def test_work_that_is_not_ended_by_a_signal_gives_what_it_gives() -> None:
    async def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "all the same"

    assert run_to_its_end(work) == "all the same"
