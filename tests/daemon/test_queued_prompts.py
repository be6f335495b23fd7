"""Prompts while a turn runs, through a whole daemon: one policy, announced, and none is lost or runs twice. Case E-04."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from refold_client import Client, RpcError, Subscription
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import Json, Place, gone, kill, new_session, text_so_far, types, until
from tests.support.fake_provider import FakeProvider, Gate, answer

pytestmark = pytest.mark.anyio

USER: Any = {"kind": "aborted", "cause": {"kind": "user"}}


async def waiting_session(client: Client, place: Place) -> tuple[str, Subscription, list[Json]]:
    """A session whose first turn has said `One`, with two prompts behind it; the replies to those."""
    session = await new_session(client, place)
    events = await client.subscribe(session)
    await client.start_turn(session, "first")
    await text_so_far(events, "One")
    return session, events, [await client.start_turn(session, said, if_running="queue") for said in ("second", "third")]


def prompts(events: list[Json]) -> list[str]:
    """What the prompts said that joined the history, in order."""
    return [event["data"]["content"][0]["text"] for event in events if event["type"] == "user/message"]


async def test_e04_queued_prompts_run_in_order_one_turn_each(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("One"), gate, reply(".")), answer(reply("Two.")), answer(reply("Three."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, events, queued = await waiting_session(client, place)
            assert [one.keys() for one in queued] == [{"input", "seq"}] * 2, "a queued prompt has no turn yet"
            opened = await client.open_session(session)
            assert [one["input"] for one in opened["pendingInputs"]] == [one["input"] for one in queued]
            waits = [asyncio.create_task(client.wait_turn(session, input_id=one["input"])) for one in queued]
            gate.open()
            ends = [await wait for wait in waits]
            told = await until(events, "turn/end", turn=3)
    assert [end["data"] for end in ends] == [{"turn": turn, "reason": {"kind": "completed"}} for turn in (2, 3)]
    recorded = await place.recorded(session)
    assert recorded[-len(told) :] == told
    assert prompts(recorded) == ["first", "second", "third"]
    brackets = [event["type"] for event in recorded if event["type"] in ("turn/start", "turn/end")]
    assert brackets == ["turn/start", "turn/end"] * 3
    assert (await place.verify(session))["equal"] == 3


async def test_e04_an_interrupt_leaves_the_queue_alone_unless_it_is_asked(place: Place) -> None:
    hanging = [answer(text(said), end="hang") for said in ("One", "Two")]
    async with FakeProvider(*hanging, answer(reply("Five."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, events, (_, third) = await waiting_session(client, place)
            assert await client.interrupt(session, 1) == USER
            await text_so_far(events, "Two")
            fourth = await client.start_turn(session, "fourth", if_running="queue")
            with pytest.raises(RpcError) as raised:
                await client.interrupt(session, 9, withdraw_queued=True)
            assert raised.value.kind == "turn.mismatch"
            opened = await client.open_session(session)
            assert [one["input"] for one in opened["pendingInputs"]] == [third["input"], fourth["input"]]
            assert await client.interrupt(session, 2, withdraw_queued=True) == USER
            assert await place.recorded(session) == (await client.read(session, "events"))["events"]
            opened = await client.open_session(session)
            assert (opened["pendingInputs"], opened["status"]["status"]) == ([], "idle")
            with pytest.raises(RpcError) as raised:
                await client.wait_turn(session, input_id=third["input"])
            assert raised.value.kind == "input.unknown"
            assert (await client.prompt(session, "fifth"))["data"]["turn"] == 3
    recorded = await place.recorded(session)
    assert prompts(recorded) == ["first", "second", "fifth"]
    assert [event["data"]["how"] for event in recorded if event["type"] == "input/settled"] == ["withdrawn"] * 2


async def test_an_interrupt_that_finds_nothing_to_take_back_changes_nothing(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        await client.close_session(session)
        before = await client.open_session(session)
        assert await client.interrupt(session, 1, withdraw_queued=True) == {"kind": "completed"}
        assert await client.open_session(session) == before
        assert await client.rename(session, "Animals") == before["tail"] + 2, "behind the start of the second instance"


@pytest.mark.parametrize("by", ["kill", "end of input"])
async def test_e04_what_waits_when_the_daemon_goes_waits_for_the_next_one(place: Place, by: str) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("One"), gate, reply(".")), answer(reply("Again."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, _, queued = await waiting_session(client, place)
            if by == "kill":
                await kill(client)
            else:
                assert client.connection.process.stdin is not None
                await client.connection.process.stdin.aclose()
                gate.open()
                assert await gone(client) == 1
        async with place.daemon() as client:
            opened = await client.open_session(session)
            assert opened["status"]["status"] == "idle"
            assert [one["input"] for one in opened["pendingInputs"]] == [one["input"] for one in queued]
            await client.start_pending(session, queued[1]["input"])
            await client.wait_turn(session, input_id=queued[1]["input"])
            opened = await client.open_session(session)
            assert [one["input"] for one in opened["pendingInputs"]] == [queued[0]["input"]]
    recorded = await place.recorded(session)
    assert prompts(recorded) == ["first", "third"]
    ends = [event["data"]["reason"]["kind"] for event in recorded if event["type"] == "turn/end"]
    assert ends == ["interrupted" if by == "kill" else "completed", "completed"]


async def test_a_steering_prompt_joins_the_running_turn_between_two_steps(place: Place) -> None:
    gate = Gate()
    listing = calls(call(0, "c0", "list_files", "{}")) + chunk({}, "tool_calls")
    async with FakeProvider(answer(text("One"), gate, listing), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "first")
            await text_so_far(events, "One")
            steered = await client.start_turn(session, "mind the gap", if_running="steer")
            assert steered["turn"] == 1
            gate.open()
            told = await until(events, "turn/end")
    assert types(told)[-8:-5] == ["step/end", "steering/message", "step/start"]
    assert types(told).count("turn/end") == 1
    assert b"mind the gap" in provider.requests[1].body
    assert (await place.verify(session))["equal"] == 2
