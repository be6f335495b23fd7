"""A turn on an in-memory log with scripted replies: its order of events, its headers, what is durable when."""

from __future__ import annotations

from hashlib import sha256

import pytest

from refold_protocol.errors import StorageFullError
from refold_protocol.session.events import AssistantMessage, RequestHeader, RequestSent
from refold_protocol.session.messages import TextBlock, ToolCallBlock, text_content
from refold_protocol.session.request import sent_requests
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

TEXT_TURN = [
    "turn/start",
    "user/message",
    "step/start",
    "request/header",
    "request/sent",
    "assistant/chunk",
    "assistant/message",
    "step/end",
    "turn/end",
]


async def test_a_text_turn_has_its_events_in_the_order_of_the_design() -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider(says("Hel", "lo")))) as session:
        assert end_of(await turn(session)) == "completed"
        assert types(session) == ["instance/start", "input/accepted", *TEXT_TURN]
        reply = last(session, AssistantMessage)
        assert isinstance(reply, AssistantMessage)
        assert reply.content == (TextBlock("Hello"),)
        assert reply.finish == "stop"
        assert session.session_log.handle.durable == session.session_log.handle.tail
        assert_proven(session)


async def test_the_bytes_that_were_sent_are_those_whose_digest_is_recorded() -> None:
    provider = ScriptedProvider(calls(("c0", "look", "{}")), says("done"), says("again"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        await turn(session)
        await turn(session, "more")
        rebuilt = list(sent_requests(session.session_log.handle.read()))
        assert [sent.sha256 for _, sent, _ in rebuilt] == [sha256(body).hexdigest() for body in provider.bodies]
        assert [request for _, _, request in rebuilt] == provider.requests
        for earlier, later in zip(provider.bodies, provider.bodies[1:], strict=False):
            assert later.startswith(earlier[:-2])  # but for the closing brackets, a byte-prefix extension


async def test_nothing_is_sent_that_could_not_be_made_durable() -> None:
    provider = ScriptedProvider(says("never"))
    async with scripted_session(ScriptedHost(provider)) as session:
        handle = session.session_log.handle
        flush, flushes = handle.flush, 0

        async def failing(up_to: int | None = None, *, timeout: float | None = None) -> int:
            nonlocal flushes
            flushes += 1
            if flushes > 1:
                raise StorageFullError("no space left")
            return await flush(up_to, timeout=timeout)

        handle.flush = failing  # type: ignore[method-assign]
        _, number, _ = await session.start(text_content("go"), CLIENT)
        with pytest.raises(StorageFullError):
            await session.turns.wait(number)
        handle.flush = flush  # type: ignore[method-assign]
        assert provider.requests == []
        assert types(session)[-3:] == ["request/sent", "step/end", "turn/end"]


async def test_each_instance_anchors_its_header_and_an_unchanged_one_is_not_written_again() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    provider = ScriptedProvider(*(says("ok") for _ in range(4)))
    headers: list[str] = []
    for _ in range(2):
        async with scripted_session(ScriptedHost(provider), store=store) as session:
            await turn(session)
            await turn(session)
            headers = [
                event.data.reason for event in session.session_log.handle.read() if isinstance(event.data, RequestHeader)
            ]
    assert headers == ["initial", "resume"]
    assert provider.bodies[2].startswith(provider.bodies[1][:-2])


async def test_every_request_recorded_names_its_turn_and_step() -> None:
    provider = ScriptedProvider(calls(("a", "look", "{}")), says("ok"), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        await turn(session)
        await turn(session)
        sent = [event.data for event in session.session_log.handle.read() if isinstance(event.data, RequestSent)]
        assert [(one.turn, one.step, one.attempt, one.purpose) for one in sent] == [
            (1, 1, 1, "step"),
            (1, 2, 1, "step"),
            (2, 1, 1, "step"),
        ]
        assert isinstance(last(session, AssistantMessage), AssistantMessage)
        assert ToolCallBlock("a", "look", "{}") in provider.requests[1].history[1].content
