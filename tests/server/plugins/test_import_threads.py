"""The thread in which plugins are imported: what comes out of it, and that nobody has to wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from math import inf
from typing import TypeVar

import anyio
import pytest

from refold_protocol.errors import ConfigError, PluginError
from refold_server.plugins.plugin_loading import ImportThreads
from tests.support.virtual_time import run_in_virtual_time

pytestmark = pytest.mark.anyio

T = TypeVar("T")


LONG_S = 86_400.0


async def aside(work: Callable[[], T]) -> T:
    """Do work that may take its time."""
    return await ImportThreads().run("x", work, LONG_S)


async def test_work_gives_what_it_gives_and_runs_elsewhere() -> None:
    assert await aside(threading.get_ident) != threading.get_ident()
    assert await aside(lambda: None) is None


@pytest.mark.parametrize("error", [ConfigError("plugins.paths", "no"), ValueError("no")])
async def test_an_error_is_raised_where_it_is_waited_for(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error), match="no"):
        await aside(fail)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
async def test_what_ends_a_process_or_a_task_ends_neither(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    with pytest.raises(PluginError, match=f"{kind.__name__} came out of a plugin while it was loaded"):
        await aside(fail)


async def test_whoever_is_cancelled_waits_no_longer_and_hears_nothing_later() -> None:
    go_on = threading.Event()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await aside(go_on.wait)
    assert scope.cancelled_caught
    go_on.set()
    assert await aside(lambda: 3) == 3


def test_work_that_takes_too_long_is_left_behind_and_not_begun_again_before_it_ended() -> None:
    begun: list[str] = []
    go_on = threading.Event()

    def hang(name: str) -> Callable[[], None]:
        def work() -> None:
            begun.append(name)
            go_on.wait()

        return work

    async def story() -> None:
        threads = ImportThreads()
        loop = asyncio.get_running_loop()
        before = set(threading.enumerate())
        with pytest.raises(TimeoutError):
            await threads.run("x", hang("x"), 5)
        assert loop.time() == 5
        with pytest.raises(TimeoutError):
            await threads.run("x", hang("x again"), 5)
        assert loop.time() == 5, "told at once"
        with pytest.raises(TimeoutError):
            await threads.run("y", hang("y"), 5)
        assert loop.time() == 10, "another one has its own time"
        left = set(threading.enumerate()) - before
        assert [thread.daemon for thread in left] == [True, True], "neither keeps the process alive"
        go_on.set()
        for thread in left:
            thread.join()
        assert sorted(begun) == ["x", "y"]
        assert await threads.run("x", lambda: 3, inf) == 3, "it is tried again then"

    run_in_virtual_time(story())


async def test_a_timeout_out_of_the_work_is_its_own() -> None:
    def fail() -> None:
        raise TimeoutError("a server did not answer")

    threads = ImportThreads()
    for _ in range(2):
        with pytest.raises(TimeoutError, match="a server did not answer"):
            await threads.run("x", fail, LONG_S)
    assert await threads.run("x", lambda: 3, LONG_S) == 3
