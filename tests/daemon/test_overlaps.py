"""Requests on one session that arrive together: each is answered as if it had come alone, in the order of arrival."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from refold_client import RpcError
from tests.support.chat_stream import text
from tests.support.daemons import SERVE, Place, kill, new_session, nothing_becomes_durable, text_so_far, types
from tests.support.fake_provider import FakeProvider, answer
from tests.support.processes import Process

pytestmark = pytest.mark.anyio


def together(process: Process, *calls: tuple[str, Any]) -> list[Any]:
    """Send requests in one write; give their results or errors in the order of sending."""
    first = len(calls) * 1000
    process.put(*({"jsonrpc": "2.0", "id": first + n, "method": m, "params": p} for n, (m, p) in enumerate(calls)))
    replies = [process.reply(first + number) for number in range(len(calls))]
    return [reply.get("result", reply.get("error")) for reply in replies]


def begun(process: Process, place: Place) -> Process:
    process.initialize(initializationOptions={"store": str(place.store)})
    return process


async def interrupted_session(place: Place) -> str:
    """A session whose last turn was cut by a kill, so that opening it has something to write."""
    with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            await text_so_far(events, "Half")
            await client.flush(session)
            await kill(client)
    return session


async def test_two_opens_of_an_interrupted_session_write_its_closers_once(place: Place) -> None:
    session = await interrupted_session(place)
    before = len(await place.recorded(session))
    with Process(SERVE, place.daemon_env) as process:
        both = together(begun(process, place), *[("session/open", {"session": session})] * 2)
        assert both[0] == both[1]
        assert both[0]["tail"] == both[0]["durable"] == before + 2
    after = await place.recorded(session)
    assert [event["type"] for event in after[before:]] == ["assistant/message", "step/end", "turn/end"]


async def test_an_open_behind_a_close_opens_anew(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
    with Process(SERVE, place.daemon_env) as process:
        given: Any = {"session": session}
        (first,) = together(begun(process, place), ("session/open", given))
        closed, second = together(process, ("session/close", given), ("session/open", given))
        assert closed is None
        assert second["writer"] != first["writer"]
        assert process.call("session/flush", given) == {"durable": second["tail"]}


def test_whoever_waits_for_a_turn_is_told_its_end_although_the_session_is_closed(place: Place) -> None:
    with FakeProvider(answer(text("Half"), end="hang")) as provider, Process(SERVE, place.daemon_env) as process:
        place.provider(provider.base_url)
        session = begun(process, place).call("session/open", {"cwd": str(place.workspace)})["session"]
        turn = process.call("turn/start", {"session": session, "content": [{"type": "text", "text": "go"}]})["turn"]
        closed, waited = together(
            process, ("session/close", {"session": session, "cancel": True}), ("turn/wait", {"session": session, "turn": turn})
        )
        assert closed is None
        assert waited["data"]["reason"] == {"kind": "aborted", "cause": {"kind": "disposed"}}


async def test_a_prompt_whose_turn_is_about_to_begin_cannot_be_withdrawn_any_more(place: Place) -> None:
    """Else it would be recorded as withdrawn, and run."""
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        async with nothing_becomes_durable(place):
            starting = asyncio.create_task(client.start_turn(session, "go"))
            while not (events := (await client.read(session, "events"))["events"]):
                pass
            assert events[-1]["type"] == "input/accepted"
            with pytest.raises(RpcError) as raised:
                await client.withdraw(session, events[-1]["data"]["input"])
            assert raised.value.kind == "input.unknown"
        await client.wait_turn(session, (await starting)["turn"])
    assert "input/settled" not in types(await place.recorded(session))


async def test_a_session_that_is_being_closed_can_be_read(place: Place) -> None:
    place.script({"text": "ok"}, {"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        before = await client.read(session, "events")
        async with nothing_becomes_durable(place):
            renaming = asyncio.create_task(client.rename(session, "Animals"))
            closing = asyncio.create_task(client.close_session(session))
            while await client.read(session, "events") != before:  # until the closing got so far; then what is on disk
                pass
            assert (await client.open_session(session, mode="read"))["status"] == {"status": "idle"}
        await closing
        assert await renaming == len(before["events"])
        assert len((await client.read(session, "events"))["events"]) == len(before["events"]) + 1


def test_a_proof_of_a_session_that_is_closed_meanwhile_is_given_all_the_same(place: Place) -> None:
    """The log is longer than what is checked in one go, so the closing comes in between."""
    place.script({"text": "x" * 4_000, "chunk": 1})
    with Process(SERVE, place.daemon_env) as process:
        session = begun(process, place).call("session/open", {"cwd": str(place.workspace)})["session"]
        given: Any = {"session": session}
        turn = process.call("turn/start", {**given, "content": [{"type": "text", "text": "go"}]})["turn"]
        end = process.call("turn/wait", {**given, "turn": turn})
        which: Any = {**given, "turn": turn, "step": 1}
        for method, params in (("log/verify", given), ("request/rebuild", which), ("request/explain", which)):
            answered, closed = together(process, (method, params), ("session/close", given))
            assert closed is None
            assert "code" not in answered
            assert answered == process.call(method, params)
            assert process.call("session/open", given)["tail"] == end["seq"]
