"""llm/stream when something goes wrong: whose fault it is, and that a wrapper cannot keep a turn from ending."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold_protocol.errors import PluginError, ProviderError
from refold_protocol.session.events import AbortCause, AssistantMessage
from refold_protocol.session.messages import (
    BlockStart,
    Chunk,
    FinishChunk,
    TextBlock,
    TextDelta,
    Usage,
    UsageChunk,
    text_content,
)
from refold_server.plugins import STREAM, Outgoing
from refold_server.plugins.hook_table import NextStream
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, assert_proven, end_of, scripted_session, turn
from tests.support.plugging import assert_rebuilt, error_of, failures, of_type, plugin, reply, together
from tests.support.virtual_time import run_in_virtual_time

pytestmark = pytest.mark.anyio


def shouting(mark: str) -> Any:
    async def shout(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(outgoing):
            yield replace(chunk, text=chunk.text + mark) if isinstance(chunk, TextDelta) else chunk

    return shout


async def test_the_providers_error_that_passes_through_wrappers_keeps_its_kind_and_is_nobodys_fault() -> None:
    async def grouped(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        chunks: list[Chunk] = []

        async def read() -> None:
            async for chunk in rest(outgoing):
                chunks.append(chunk)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
        for chunk in chunks:
            yield chunk

    provider = ScriptedProvider([BlockStart(0, "text"), ProviderError("provider.rateLimited", "slow down", status=429)])
    plugins = together(plugin((STREAM, shouting("!")), name="a"), plugin((STREAM, grouped), name="b"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        error = error_of(await turn(session))
        assert (error.kind, error.status) == ("provider.rateLimited", 429)
        assert failures(session) == []
        assert_rebuilt(session, provider)


async def test_an_interrupt_while_a_wrapper_waits_for_the_provider_stays_an_interrupt() -> None:
    pause = Pause()
    provider = ScriptedProvider([BlockStart(0, "text"), TextDelta(0, "half"), pause], says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, shouting("!")))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        reason = await session.turns.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert (reason.kind, reply(session), provider.closed) == ("aborted", "half!", 1)
        assert failures(session) == []
        assert end_of(await turn(session)) == "completed"
        assert_rebuilt(session, provider)


async def test_a_wrapper_that_swallows_its_cancellation_cannot_keep_the_turn_running() -> None:
    waits = anyio.Event()

    async def stubborn(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        yield BlockStart(0, "text")
        while True:
            try:
                waits.set()
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                yield TextDelta(0, "still here")

    async with scripted_session(ScriptedHost(ScriptedProvider()), plugins=plugin((STREAM, stubborn))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await waits.wait()
        reason = await session.turns.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert reason.kind == "aborted"
        assert_proven(session)


async def test_a_wrapper_that_floods_is_stopped_and_others_get_their_turn_meanwhile() -> None:
    seen: list[int] = []

    async def flood(outgoing: Outgoing, rest: NextStream) -> AsyncGenerator[Chunk, None]:
        yield BlockStart(0, "text")
        while True:
            yield TextDelta(0, "x")

    async with scripted_session(ScriptedHost(ScriptedProvider()), plugins=plugin((STREAM, flood), limit_s=0.05)) as session:
        async with anyio.create_task_group() as tasks:

            async def beside() -> None:
                while session.turns.running is not None or not seen:
                    seen.append(1)
                    await anyio.lowlevel.checkpoint()

            tasks.start_soon(beside)
            assert error_of(await turn(session)).kind == "plugin.failed"
        assert len(seen) > 10
        assert failures(session) == [("p", "llm/stream")]
        assert_proven(session)


async def test_a_wrapper_that_loses_the_end_of_a_reply_is_blamed_and_not_the_provider() -> None:
    async def endless(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(outgoing):
            if not isinstance(chunk, FinishChunk):
                yield chunk

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, endless))) as session:
        assert error_of(await turn(session)).kind == "plugin.failed"
        assert failures(session) == [("p", "llm/stream")]
        assert_rebuilt(session, provider)


async def test_a_provider_that_loses_the_end_of_its_reply_is_blamed_and_not_the_wrapper() -> None:
    provider = ScriptedProvider([BlockStart(0, "text"), TextDelta(0, "half")])
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, shouting("!")))) as session:
        assert error_of(await turn(session)).kind == "provider.badStream"
        assert failures(session) == []


@pytest.mark.parametrize("usage", [Usage(-1, 3), Usage(7, -3), Usage(7, 3, 2**53), Usage(7, 3, None, None, -1)])
async def test_a_wrapper_that_makes_up_impossible_usage_is_blamed(usage: Usage) -> None:
    async def counting(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(outgoing):
            yield UsageChunk(usage) if isinstance(chunk, UsageChunk) else chunk

    async with scripted_session(ScriptedHost(ScriptedProvider(says("hi"))), plugins=plugin((STREAM, counting))) as session:
        assert "no count of tokens" in error_of(await turn(session)).message
        assert failures(session) == [("p", "llm/stream")]


def test_cleaning_up_that_never_ends_is_contained() -> None:
    run_in_virtual_time(clinging_on())


async def clinging_on() -> None:
    async def clinging(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        try:
            async for chunk in rest(outgoing):
                yield chunk
        finally:
            await anyio.sleep_forever()

    async def leaves(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(outgoing):
            if not isinstance(chunk, FinishChunk):
                yield chunk
                continue
            yield chunk
            return

    provider = ScriptedProvider(says("ok"), says("ok"))
    plugins = together(plugin((STREAM, leaves), name="a"), plugin((STREAM, clinging), name="b", limit_s=2))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        await turn(session)
        assert failures(session) == [("b", "llm/stream")]
        assert TextBlock("ok") in [block for event in of_type(session, AssistantMessage) for block in content(event.data)]
        assert_rebuilt(session, provider)


def content(data: object) -> tuple[object, ...]:
    assert isinstance(data, AssistantMessage)
    return data.content


async def test_a_plugins_own_error_is_its_own_whatever_class_it_has() -> None:
    async def pretends(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(outgoing):
            yield chunk
            raise PluginError("somebody else did it")

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, pretends))) as session:
        assert "'p' failed at llm/stream" in error_of(await turn(session)).message
        assert failures(session) == [("p", "llm/stream")]


def test_the_time_of_a_slow_provider_is_not_the_wrappers() -> None:
    run_in_virtual_time(slowly())


async def slowly() -> None:
    pause = Pause()
    provider = ScriptedProvider([*says("slow")[:-1], pause, FinishChunk("stop")])
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, shouting("!")), limit_s=5)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        await anyio.sleep(100)
        pause.go_on.set()
        assert end_of(await session.turns.wait(number)) == "completed"
        assert (reply(session), failures(session)) == ("slow!", [])
        assert_rebuilt(session, provider)
