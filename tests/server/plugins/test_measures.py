"""The measure of plugins: calls, failures and time of each at each seam; a slow observer is named once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import anyio
import pytest

from refold_protocol.session.messages import Message
from refold_server.plugins import (
    OBSERVE,
    PRE_STEP,
    SESSION_PREFIX,
    BeforeStep,
    PluginRegistry,
    PrefixRequest,
    Recorded,
    hook_runner,
)
from refold_server.plugins.hook_table import NextPrefix
from refold_server.plugins.plugin_registry import SLOW_S, HandlerStats, plugin_stats, registered
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import scripted_session, turn, types
from tests.support.plugging import plugin, together, user
from tests.support.virtual_time import run_in_virtual_time

pytestmark = pytest.mark.anyio


def look(recorded: Recorded) -> None:
    """Look on."""


def test_a_tally_keeps_calls_failures_sum_and_the_slowest() -> None:
    tally = HandlerStats()
    for seconds, failed in ((1, False), (3, True), (2, False)):
        tally.add(seconds, failed=failed)
    assert (tally.calls, tally.failures, tally.total_s, tally.slowest_s) == (3, 1, 6, 3)


def test_slowness_is_news_once_and_again_when_it_doubles() -> None:
    tally = HandlerStats()
    times = (SLOW_S * 0.99, SLOW_S, SLOW_S * 1.99, SLOW_S * 2, SLOW_S * 3, SLOW_S * 4)
    assert [tally.is_news(seconds) for seconds in times] == [False, True, False, True, False, True]


def test_the_time_of_the_rest_of_a_chain_is_not_a_handlers_own() -> None:
    async def outer(composing: PrefixRequest, rest: NextPrefix) -> list[Message]:
        await anyio.sleep(1)
        given = await rest()
        await anyio.sleep(2)
        return [user("outer"), *given]

    async def inner(composing: PrefixRequest, rest: NextPrefix) -> list[Message]:
        await anyio.sleep(10)
        return [*await rest()]

    async def late(ahead: BeforeStep) -> None:
        await anyio.sleep(100)

    plugins = together(plugin((SESSION_PREFIX, outer), name="a"), plugin((SESSION_PREFIX, inner), (PRE_STEP, late), name="b"))

    async def run() -> None:
        async with scripted_session(ScriptedHost(ScriptedProvider(says("ok"))), plugins=plugins) as session:
            await turn(session)

    run_in_virtual_time(run())
    one, other = plugin_stats(plugins)
    assert [(row.seam, row.calls, row.failures, row.total_ms) for row in one.seams] == [("agent/session-prefix", 1, 0, 3_000)]
    assert [(row.seam, row.calls, row.failures, row.slowest_ms) for row in other.seams] == [
        ("agent/session-prefix", 1, 0, 10_000),
        ("agent/pre-step", 1, 1, 30_000),  # its limit
    ]


async def test_handlers_of_one_plugin_at_one_seam_are_counted_together() -> None:
    def fail(recorded: Recorded) -> None:
        raise ValueError("no")

    def register(registry: PluginRegistry) -> None:
        registry.on(OBSERVE, fail)
        registry.on(OBSERVE, look)

    plugins = registered("p", register, "/p.py")
    async with scripted_session(ScriptedHost(ScriptedProvider(says("ok"))), plugins=plugins) as session:
        await turn(session)
        seen = session.session_log.handle.tail + 1
        (row,) = plugin_stats(plugins)
        assert (row.plugin, row.origin, row.tools, row.event_types) == ("p", "/p.py", (), ())
        assert [(one.seam, one.calls) for one in row.seams] == [("log/observe", 2 * seen)]
        assert row.seams[0].failures in (seen, seen - types(session).count("plugin/failed"))


async def test_a_slow_observer_is_named_once_with_its_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def clock() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 0.06

    monkeypatch.setattr(hook_runner, "perf_counter", clock().__next__)
    plugins = plugin((OBSERVE, look), name="slow")
    with caplog.at_level(logging.WARNING):
        async with scripted_session(ScriptedHost(ScriptedProvider(says("ok"))), plugins=plugins) as session:
            await turn(session)
    (record,) = caplog.records
    assert "The plugin 'slow' took 60 ms at log/observe" in record.getMessage()
