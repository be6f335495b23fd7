"""llm/stream: wrappers change chunks and never what is sent; what they do wrong ends the turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import AbortCause, AssistantChunk, AssistantMessage, TurnEnd, TurnError
from refold_protocol.session.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    TextBlock,
    TextDelta,
    text_content,
    text_of,
)
from refold_protocol.session.tape import Tape
from refold_server.plugins import STREAM, Outgoing
from refold_server.plugins.payloads import NextStream
from refold_server.sessions.session import Session
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, assert_proven, end_of, last, scripted_session, turn
from tests.support.plugging import assert_rebuilt, failures, of_type, plugin, together, user

pytestmark = pytest.mark.anyio


def reply(session: Session) -> str:
    """The text of the last reply."""
    message = last(session, AssistantMessage)
    assert isinstance(message, AssistantMessage)
    return text_of(message.content)


def error_of(event: object) -> TurnError:
    """The error that a turn ended with."""
    data = getattr(event, "data", None)
    assert isinstance(data, TurnEnd)
    assert data.reason.error is not None
    return data.reason.error


def shouting(mark: str) -> Any:
    async def shout(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(outgoing):
            yield replace(chunk, text=chunk.text + mark) if isinstance(chunk, TextDelta) else chunk

    return shout


async def test_wrappers_change_chunks_from_the_inside_out_and_what_they_gave_is_recorded() -> None:
    provider = ScriptedProvider(says("a", "b"))
    plugins = together(plugin((STREAM, shouting("1")), name="outer"), plugin((STREAM, shouting("2")), name="inner"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        assert end_of(await turn(session)) == "completed"
        assert reply(session) == "a21b21"
        chunks = [event.data.chunk for event in of_type(session, AssistantChunk) if isinstance(event.data, AssistantChunk)]
        assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["a21", "b21"]
        assert provider.closed == 1
        assert_rebuilt(session, provider)


async def test_a_wrapper_may_answer_without_the_provider() -> None:
    async def canned(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        for chunk in says("from the tin"):
            yield chunk

    provider = ScriptedProvider()
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, canned))) as session:
        assert end_of(await turn(session)) == "completed"
        assert (reply(session), provider.bodies) == ("from the tin", [])
        assert_proven(session)


async def test_a_wrapper_that_stops_early_closes_the_providers_stream() -> None:
    async def brief(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(outgoing):
            yield chunk
            if isinstance(chunk, TextDelta):
                break
        yield BlockEnd(0)
        yield FinishChunk("stop")

    provider = ScriptedProvider([BlockStart(0, "text"), TextDelta(0, "one"), Pause()])
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, brief))) as session:
        assert end_of(await turn(session)) == "completed"
        assert (reply(session), provider.closed) == ("one", 1)
        assert_rebuilt(session, provider)


async def test_a_request_cannot_be_sent_twice() -> None:
    async def twice(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for _ in rest(outgoing):
            pass
        async for chunk in rest(outgoing):
            yield chunk

    provider = ScriptedProvider(says("one"), says("two"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, twice))) as session:
        assert error_of(await turn(session)).kind == "plugin.failed"
        assert len(provider.bodies) == 1
        assert failures(session) == [("p", "llm/stream")]
        assert_rebuilt(session, provider)


def other_bytes(outgoing: Outgoing) -> Outgoing:
    return replace(outgoing, body=outgoing.body.replace(b"go", b"GO"))


def other_request(outgoing: Outgoing) -> Outgoing:
    history = Tape([*outgoing.request.history, user("a lie")])
    return replace(outgoing, request=replace(outgoing.request, history=history))


@pytest.mark.parametrize("swap", [other_bytes, other_request])
@pytest.mark.parametrize("mode", ["always", "sampled"])
@pytest.mark.parametrize("then", ["passes it on", "swallows it", "raises another", "answers instead"])
async def test_what_the_log_does_not_explain_does_not_leave_whatever_the_wrapper_makes_of_it(
    swap: Callable[[Outgoing], Outgoing], mode: Any, then: str
) -> None:
    swaps: list[bool] = [False]

    async def hostile(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        try:
            async for chunk in rest(swap(outgoing) if swaps[0] else outgoing):
                yield chunk
        except Exception as error:
            if then == "passes it on":
                raise
            if then == "raises another":
                raise ValueError("no") from error
            if then == "answers instead":
                for chunk in says("all is well"):
                    yield chunk

    provider = ScriptedProvider(says("one"), says("three"))
    host = ScriptedHost(provider)
    host.checks = mode
    async with scripted_session(host, plugins=plugin((STREAM, hostile))) as session:
        assert end_of(await turn(session)) == "completed"
        swaps[0] = True
        assert error_of(await turn(session)).kind == "invariant"
        assert len(provider.bodies) == 1
        swaps[0] = False
        assert end_of(await turn(session)) == "completed"
        assert_proven(session)


async def test_an_equal_copy_of_what_was_recorded_may_be_handed_on() -> None:
    async def copying(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        copy = Outgoing(outgoing.place, replace(outgoing.request), bytes(bytearray(outgoing.body)))
        async for chunk in rest(copy):
            yield chunk

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, copying))) as session:
        assert end_of(await turn(session)) == "completed"
        assert_rebuilt(session, provider)


class Lying(bytes):
    """Bytes that are equal to anything."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


class TwoFaced(Outgoing, frozen=True):
    """Shows the check one body and would show the adapter another."""


async def test_bytes_that_lie_about_being_equal_do_not_leave() -> None:
    async def lie(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(replace(outgoing, body=Lying(b"{}"))):
            yield chunk

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, lie))) as session:
        await turn(session)
        assert [type(body) for body in provider.bodies] in ([], [bytes])
        assert b"{}" not in provider.bodies
        assert_proven(session)


async def test_a_class_of_its_own_is_not_taken_for_what_is_sent() -> None:
    async def lie(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(TwoFaced(outgoing.place, outgoing.request, outgoing.body)):
            yield chunk

    provider = ScriptedProvider()
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, lie))) as session:
        assert error_of(await turn(session)).kind == "plugin.failed"
        assert provider.bodies == []


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


async def test_cleaning_up_that_never_ends_or_fails_is_contained() -> None:
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
    plugins = together(plugin((STREAM, leaves), name="a"), plugin((STREAM, clinging), name="b", limit_s=0.02))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        await turn(session)
        assert failures(session) == [("b", "llm/stream")]
        assert TextBlock("ok") in [block for event in of_type(session, AssistantMessage) for block in content(event.data)]
        assert_rebuilt(session, provider)


def content(data: object) -> tuple[object, ...]:
    assert isinstance(data, AssistantMessage)
    return data.content
