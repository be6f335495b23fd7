"""The watch over the event loop: who keeps it to itself is named while it happens, once, and nobody else ever is.

Handlers block until they were named: a test that passes waited for nothing else.

Invariant: A plugin that keeps the event loop to itself is named, once a standstill, and nobody else is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.messages import Chunk
from refold_server.config import PluginsConfig
from refold_server.config_file import build_config
from refold_server.plugins import (
    EXECUTE,
    FLUSH,
    OBSERVE,
    POST_EXECUTE,
    PRE_STEP,
    PROMPT_SUBMIT,
    SESSION_PREFIX,
    STREAM,
    PluginRegistry,
    ToolContext,
    loop_watch,
    tool,
)
from refold_server.plugins.hook_table import Hook
from refold_server.plugins.loop_watch import Watch
from refold_server.plugins.plugin_registry import Plugins, registered
from refold_server.services import load_services
from refold_server.tools.session_tools import ToolTable
from refold_server.tools.tool_runner import execute
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, scripted_session, turn
from tests.support.plugging import failures, plugin
from tests.support.tool_calls import context

pytestmark = pytest.mark.anyio

LOOK_S = 0.001
PATIENCE_S = 30.0
"""How long a handler blocks that nobody names: then its test fails."""


class Told(logging.Handler):
    """What the watch says; `named` is set with it."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.named = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.named.set()

    def block(self) -> None:
        """Keep the loop's thread until it was named."""
        assert self.named.wait(PATIENCE_S), "nobody was named"


@pytest.fixture
def told() -> Iterator[Told]:
    handler, log = Told(), logging.getLogger("refold_server.plugins.loop_watch")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@asynccontextmanager
async def watched(plugins: Plugins) -> AsyncGenerator[None]:
    """Watch the running loop, with next to no patience."""
    watch = Watch(plugins, LOOK_S, 0)
    watch.start()
    yield
    watch.stop()


def blocking(seam: Hook[Any], block: Callable[[], None]) -> Any:
    """A handler that blocks and then is as good as none."""

    async def decide(given: object) -> None:
        block()

    async def around(given: object, rest: Callable[[], Any]) -> object:
        block()
        return await rest()

    async def wrap(outgoing: Any, rest: Callable[[Any], Any]) -> Any:
        block()
        async for chunk in rest(outgoing):
            yield chunk

    def see(seen: object) -> None:
        block()

    return {"serial": decide, "observe": see}.get(seam.mode, wrap if seam is STREAM else around)


@pytest.mark.parametrize(
    "seam", [PROMPT_SUBMIT, SESSION_PREFIX, PRE_STEP, STREAM, EXECUTE, POST_EXECUTE, OBSERVE, FLUSH], ids=lambda seam: seam.name
)
async def test_a_handler_that_keeps_the_loop_is_named_with_its_seam(seam: Hook[Any], told: Told) -> None:
    def once() -> None:
        if not told.said:
            told.block()

    plugins = plugin((seam, blocking(seam, once)), name="greedy", limit_s=0.001)
    host = ScriptedHost(ScriptedProvider(calls(("a", "look", "{}")), says("ok")), {"look": echo})
    async with watched(plugins), scripted_session(host, plugins=plugins) as session:
        await turn(session)
        assert told.said[0].startswith("The plugin 'greedy' has kept the event loop to itself for ")
        assert f"s at {seam.name}: nobody is answered. " in told.said[0]
        if seam.limit_s is not None:
            assert ("greedy", seam.name) in failures(session)


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


def with_tool(run: Callable[[ToolContext, Nothing], Any]) -> Plugins:
    def register(registry: PluginRegistry) -> None:
        registry.tool(tool("dig", "Dig.", Nothing, run, read_only=True))

    return registered("greedy", register)


async def test_a_tool_that_keeps_the_loop_is_named_with_its_plugin(told: Told) -> None:
    async def run(context: ToolContext, params: Nothing) -> str:
        told.block()
        return "done"

    plugins = with_tool(run)
    async with watched(plugins):
        tools = ToolTable(tuple(row.tool for row in plugins.tools))
        await execute(tools, "dig", "{}", context(Path("/"), time_limit_s=0.001))
    assert "'greedy' has kept the event loop" in told.said[0]
    assert "s in its tool dig: " in told.said[0]


class Looks:
    """Looks of a watch that a test takes itself, on a clock that it sets; the thread is of no use here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plugins: Plugins) -> None:
        self._watch = Watch(plugins)
        self._now = 0.0
        monkeypatch.setattr(loop_watch, "monotonic", lambda: self._now)

    def after(self, *seconds: float) -> None:
        """Look from where the caller is, after each of some times."""
        for one in seconds:
            self._now += one
            self._watch.look(asyncio.get_running_loop(), inspect.currentframe())


async def test_it_is_told_once_a_standstill_when_it_is_seen_twice_and_its_time_is_up(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[int] = []

    async def block(given: object) -> None:
        looks.after(0)  # the loop is asked
        for seconds in (20, 9, 2, 2, 100):
            looks.after(seconds)
            said.append(len(told.said))
        await anyio.lowlevel.checkpoint()
        for seconds in (2, 31, 2):
            looks.after(seconds)
            said.append(len(told.said))

    plugins = plugin((PRE_STEP, block))
    looks = Looks(monkeypatch, plugins)
    async with scripted_session(ScriptedHost(ScriptedProvider(says("a"))), plugins=plugins) as session:
        await turn(session)
    assert said == [0, 0, 1, 1, 1, 1, 1, 2]
    assert told.said[0].startswith("The plugin 'p' has kept the event loop to itself for 31 s at agent/pre-step: ")


async def test_a_handler_that_works_for_long_beside_others_is_not_named(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    async def decide(given: object) -> None:
        for _ in range(10):
            looks.after(20, 20)
            await anyio.lowlevel.checkpoint()

    plugins = plugin((PRE_STEP, decide))
    looks = Looks(monkeypatch, plugins)
    async with scripted_session(ScriptedHost(ScriptedProvider(says("ok"))), plugins=plugins) as session:
        await turn(session)
    assert told.said == []


async def test_what_blocks_behind_a_handler_that_waits_for_it_is_not_the_handlers(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def around(call: object, rest: Callable[[], Any]) -> object:
        return await rest()

    async def wrap(outgoing: Any, rest: Callable[[Any], Any]) -> Any:
        async for chunk in rest(outgoing):
            yield chunk

    async def body(arguments: str) -> str:
        looks.after(0, 1_000, 1_000, 1_000)
        return arguments

    class Slow(ScriptedProvider):
        async def stream(self, request: Any, body: bytes) -> AsyncGenerator[Chunk, None]:
            looks.after(0, 1_000, 1_000, 1_000)
            async for chunk in super().stream(request, body):
                yield chunk

    plugins = plugin((EXECUTE, around), (STREAM, wrap))
    looks = Looks(monkeypatch, plugins)
    host = ScriptedHost(Slow(calls(("a", "look", "{}")), says("ok")), {"look": body})
    async with scripted_session(host, plugins=plugins) as session:
        await turn(session)
        assert host.ran
    assert told.said == []


@pytest.mark.parametrize("stops", [True, False])
def test_the_thread_ends_with_the_watch_or_with_the_loop(stops: bool) -> None:
    async def begin() -> Watch:
        watch = Watch(plugin(), LOOK_S)
        watch.start()
        return watch

    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        watch = runner.run(begin())
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
        if stops:
            watch.stop()
            thread.join()
    thread.join()


def watches() -> set[threading.Thread]:
    """The threads that watch now."""
    return {thread for thread in threading.enumerate() if thread.name == "refold watch of plugins"}


@pytest.mark.parametrize("named", [True, False])
async def test_what_sessions_share_is_watched_where_there_are_plugins(tmp_path: Path, named: bool) -> None:
    path = tmp_path / "p.py"
    path.write_text("def register(registry):\n    pass\n")
    plugins = PluginsConfig((path,) if named else (), entry_points=False)
    before = watches()
    shared = await load_services(replace(build_config({}, lambda: tmp_path), plugins=plugins))
    begun = watches() - before
    assert len(begun) == named
    await shared.close()
    for thread in begun:
        thread.join()
