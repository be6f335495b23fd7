"""Stopping a turn wherever it is: before the first byte, inside a reply, inside a tool; and one prompt at a time. E-04."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from refold_client import Client, RpcError, Subscription
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import Place, endless_search, new_session, text_so_far, tool_process, types, until
from tests.support.fake_provider import Answer, FakeProvider, Gate, answer

pytestmark = pytest.mark.anyio

USER: Any = {"kind": "aborted", "cause": {"kind": "user"}}


async def running(client: Client, place: Place, said: str = "") -> tuple[str, Subscription]:
    """A session whose first turn runs and has said that much."""
    session = await new_session(client, place)
    events = await client.subscribe(session)
    await client.start_turn(session, "go")
    await (text_so_far(events, said) if said else until(events, "request/sent"))
    return session, events


async def test_b03_an_interrupt_before_the_first_byte_leaves_no_reply(place: Place) -> None:
    silent = Gate()
    async with FakeProvider(Answer((silent,)), answer(reply("Hello."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, events = await running(client, place)
            await asyncio.to_thread(silent.reached.wait)
            assert await client.interrupt(session, 1) == USER
            assert types(await until(events, "turn/end")) == ["step/end", "turn/end"]
            assert (await client.prompt(session, "again"))["data"]["reason"] == {"kind": "completed"}
            body: Any = await client.request("request/rebuild", {"session": session, "turn": 2, "step": 1})
    assert '"role":"assistant"' not in body["body"]
    assert provider.requests[1].body.decode() == body["body"]
    assert (await place.verify(session))["equal"] == 2


async def test_an_interrupt_inside_a_text_keeps_what_came_and_answers_when_that_is_durable(place: Place) -> None:
    async with FakeProvider(answer(text("Half a"), end="hang"), answer(reply("Hello."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, events = await running(client, place, "Half a")
            assert await client.interrupt(session, 1) == USER
            recorded = await place.recorded(session)  # by another process, at the moment of the reply
            assert types(recorded[-3:]) == ["assistant/message", "step/end", "turn/end"]
            assert recorded[-3]["data"]["interrupted"]
            assert recorded[-3]["data"]["content"] == [{"type": "text", "text": "Half a"}]
            assert recorded[-2]["data"]["outcome"] == "aborted"
            assert await until(events, "turn/end") == recorded[-3:]
            assert provider.requests[0].left.wait(30), "the provider's connection is closed"
            assert (await client.prompt(session, "again"))["data"]["reason"] == {"kind": "completed"}
    assert b'"content":"Half a"' in provider.requests[1].body
    assert (await place.verify(session))["equal"] == 2


async def test_an_interrupt_inside_a_tool_ends_its_process_and_answers_every_call(place: Place) -> None:
    endless_search(place)
    wanted = calls(
        call(0, "c0", "search_text", '{"pattern":"(a+)+$","regex":true}'), call(1, "c1", "read_file", '{"path":"animals.txt"}')
    )
    async with FakeProvider(answer(wanted, chunk({}, "tool_calls")), answer(reply("Hello."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, events = await running(client, place)
            told = await until(events, "tool/call")
            child = await tool_process(client)
            assert await client.interrupt(session, 1) == USER
            await child.ended()
            told += await until(events, "turn/end")
            results = [event["data"] for event in told if event["type"] == "tool/result"]
            assert [result["callId"] for result in results] == ["c0", "c1"]
            assert results[0]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
            assert (await client.prompt(session, "again"))["data"]["reason"] == {"kind": "completed"}
    assert (await place.verify(session))["equal"] == 2


async def test_an_interrupt_is_idempotent_and_knows_every_turn(place: Place) -> None:
    async with FakeProvider(answer(reply("One.")), answer(text("Two"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            assert await client.interrupt(session, 1) is None, "nothing runs, nothing ever ran"
            await client.prompt(session, "go")
            events = await client.subscribe(session, after="tail")
            await client.start_turn(session, "again")
            await text_so_far(events, "Two")
            assert await client.interrupt(session, 1) == {"kind": "completed"}, "an ended turn is not ended again"
            with pytest.raises(RpcError) as raised:
                await client.interrupt(session, 3)
            assert raised.value.kind == "turn.mismatch"
            assert (await client.read(session, "status"))["status"]["status"] == "running"
            ends = await asyncio.gather(*(client.interrupt(session, 2) for _ in range(3)))
            assert ends == [USER] * 3
            assert await client.interrupt(session, 2) == USER
            with pytest.raises(RpcError) as raised:
                await client.wait_turn(session, 3)
            assert raised.value.kind == "turn.mismatch"
    assert types(await place.recorded(session)).count("turn/end") == 2


async def test_e04_a_second_prompt_is_refused_while_a_turn_runs_and_records_nothing(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Wait"), gate, reply(".")), answer(reply("Hello."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, events = await running(client, place, "Wait")
            other = await new_session(client, place)
            with pytest.raises(RpcError) as raised:
                await client.start_turn(session, "me too")
            assert (raised.value.kind, raised.value.data["turn"], raised.value.data["retryable"]) == ("session.busy", 1, True)
            with pytest.raises(RpcError) as raised:
                await client.close_session(session)
            assert raised.value.kind == "session.busy"
            assert (await client.prompt(other, "and I?"))["data"]["reason"] == {"kind": "completed"}, "other sessions go on"
            gate.open()
            told = await until(events, "turn/end")
            assert told[-1]["data"]["reason"] == {"kind": "completed"}
    assert types(await place.recorded(session)).count("input/accepted") == 1


async def test_a_close_with_cancel_ends_the_turn_first(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, _ = await running(client, place, "Half")
            waiting = asyncio.create_task(client.wait_turn(session, 1))
            await client.close_session(session, cancel=True)
            assert (await waiting)["data"]["reason"] == {"kind": "aborted", "cause": {"kind": "disposed"}}
            with pytest.raises(RpcError) as raised:
                await client.wait_turn(session, 1)
            assert raised.value.kind == "session.readOnly"
        recorded = await place.recorded(session)
    assert types(recorded[-3:]) == ["assistant/message", "step/end", "turn/end"]


async def test_a_cancelled_request_cancels_no_turn(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Wait"), gate, reply("."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, events = await running(client, place, "Wait")
            waiting = asyncio.create_task(client.wait_turn(session, 1))
            await client.read(session, "status")  # the wait is under way: requests begin in the order of arrival
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await client.read(session, "status"))["status"]["status"] == "running"
            gate.open()
            assert (await until(events, "turn/end"))[-1]["data"]["reason"] == {"kind": "completed"}
