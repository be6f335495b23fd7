"""llm/stream: wrappers change chunks and never what is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import force_setattr, replace

from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import AssistantChunk
from refold_protocol.session.messages import BlockEnd, BlockStart, Chunk, FinishChunk, TextDelta
from refold_server.plugins import STREAM, Outgoing
from refold_server.plugins.hook_table import NextStream
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, says
from tests.support.loops import assert_proven, end_of, scripted_session, turn
from tests.support.plugging import assert_rebuilt, error_of, failures, of_type, plugin, reply, together, user

pytestmark = pytest.mark.anyio


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
    history = AppendOnlyList([*outgoing.request.history, user("a lie")])
    return replace(outgoing, request=replace(outgoing.request, history=history))


@pytest.mark.parametrize("swap", [other_bytes, other_request])
@pytest.mark.parametrize("mode", ["always", "sampled"])
@pytest.mark.parametrize("then", ["passes it on", "swallows it", "raises another", "answers instead"])
async def test_what_the_log_does_not_explain_does_not_leave_whatever_the_wrapper_makes_of_it(
    swap: Callable[[Outgoing], Outgoing], mode: Any, then: str
) -> None:
    """Invariant: What a wrapper of `llm/stream` swaps does not leave, whatever it makes of the refusal, in both modes of the
    live check.
    """
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


@pytest.mark.parametrize("nonsense", [{"body": "text"}, {"body": None}, {"request": None}, {"request": b""}])
async def test_what_is_no_request_with_its_bytes_is_the_wrappers_fault(nonsense: dict[str, Any]) -> None:
    async def lie(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(replace(outgoing, **nonsense)):
            yield chunk

    provider = ScriptedProvider()
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, lie))) as session:
        assert error_of(await turn(session)).kind == "plugin.failed"
        assert failures(session) == [("p", "llm/stream")]
        assert provider.bodies == []


async def test_bytes_that_were_forced_into_the_very_object_do_not_leave() -> None:
    forces: list[bool] = [False]

    async def force(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        if forces[0]:
            force_setattr(outgoing, "body", outgoing.body.replace(b"go", b"GO"))
        async for chunk in rest(outgoing):
            yield chunk

    provider = ScriptedProvider(says("one"))
    host = ScriptedHost(provider)
    host.checks = "sampled"
    async with scripted_session(host, plugins=plugin((STREAM, force))) as session:
        assert end_of(await turn(session)) == "completed"
        forces[0] = True
        assert error_of(await turn(session)).kind == "invariant"
        assert len(provider.bodies) == 1


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
        async for chunk in rest(replace(outgoing, body=Lying(outgoing.body.replace(b"go", b"GO")))):
            yield chunk

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, lie))) as session:
        await turn(session)
        assert [type(body) for body in provider.bodies] == [bytes]
        assert_rebuilt(session, provider)


async def test_a_class_of_its_own_is_not_taken_for_what_is_sent() -> None:
    async def lie(outgoing: Outgoing, rest: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in rest(TwoFaced(outgoing.place, outgoing.request, outgoing.body)):
            yield chunk

    provider = ScriptedProvider()
    async with scripted_session(ScriptedHost(provider), plugins=plugin((STREAM, lie))) as session:
        assert error_of(await turn(session)).kind == "plugin.failed"
        assert provider.bodies == []
