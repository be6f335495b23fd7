"""The thread in which plugins are imported: what comes out of it, and that nobody has to wait for it."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from refold_protocol.errors import ConfigError, PluginError
from refold_server.plugins.aside import aside

pytestmark = pytest.mark.anyio


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
