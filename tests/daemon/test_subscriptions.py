"""Delivery of events to one client, rule by rule: order, gaps, durability, cursors."""

from __future__ import annotations

from typing import Any

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import SERVE, Place, new_session, until
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.notices import Notices, Wire
from tests.support.processes import Process

pytestmark = pytest.mark.anyio

READ = {"calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}}]}


def is_over(notices: Notices) -> bool:
    """Whether the turn's end was told and nothing is left to tell."""
    return bool(notices.events) and notices.events[-1]["type"] == "turn/end" and notices.durable == notices.last


async def played_session(client: Client, place: Place) -> tuple[str, list[Any]]:
    """A session with two turns, and its events."""
    session = await new_session(client, place)
    for prompt in ("Which animal sleeps?", "Really?"):
        await client.prompt(session, prompt)
    return session, (await client.read(session, "events"))["events"]


async def test_one_numbered_stream_tells_everything_and_says_when_it_is_durable(place: Place) -> None:
    place.script({"text": "I look.", **READ}, {"text": "The zebra."})
    async with place.daemon() as client:
        wire, session = Wire(client), await new_session(client, place)
        opened = await client.open_session(session)
        notices = await wire.subscribe(session, -1)
        assert notices.reply == {"subscription": 1, "tail": -1, "durable": -1, "writer": opened["writer"]}
        await client.prompt(session, "Which animal sleeps?")
        await notices.until(is_over)
        assert notices.events == (await client.read(session, "events"))["events"]
        assert {notice["writer"] for notice in notices.all} == {opened["writer"]}
        last = notices.all[-1]
        assert (last["tail"], last["durable"], last["caughtUp"]) == (notices.last,) * 2 + (True,)


async def test_what_was_told_early_is_confirmed_by_a_notification_without_events(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Slowly"), gate, reply("."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            wire, session = Wire(client), await new_session(client, place)
            notices = await wire.subscribe(session, -1)
            await client.start_turn(session, "go")
            await notices.until(lambda told: any("chunk" in event["data"] for event in told.events))
            await notices.until(lambda told: told.durable == told.last and not told.all[-1]["events"])
            assert notices.all[-1]["prev"] == notices.last
            assert "phase" not in notices.all[-1], "it says this and nothing else"
            gate.open()
            await notices.until(is_over)


async def test_an_effect_is_told_when_it_is_durable_and_what_follows_waits_for_it(place: Place) -> None:
    """The rule itself is asserted on every notification by Notices; here are four kinds of effect in one turn."""
    wanted = calls(call(0, "c0", "read_file", '{"path":"animals.txt"}'), call(1, "c1", "list_files", "{}"))
    async with FakeProvider(answer(wanted, chunk({}, "tool_calls")), answer(reply("Done."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            wire, session = Wire(client), await new_session(client, place)
            notices = await wire.subscribe(session, "tail")
            await client.start_turn(session, "go")
            await notices.until(is_over)
    told = [event["type"] for event in notices.events]
    assert [told.count(kind) for kind in ("input/accepted", "tool/call", "tool/result", "turn/end")] == [1, 2, 2, 1]


async def test_from_every_place_of_a_log_a_subscription_gives_the_same_events(place: Place) -> None:
    place.script({"text": "I look.", **READ}, {"text": "The zebra."}, {"text": "Yes."})
    async with place.daemon() as client:
        session, events = await played_session(client, place)
        wire = Wire(client)
        everywhere = [await wire.subscribe(session, after) for after in range(-1, len(events))]
        for after, notices in enumerate(everywhere, -1):
            await notices.until(lambda told: told.last == len(events) - 1 and told.durable == told.last)
            assert notices.events == events[after + 1 :]
            assert notices.all[0]["prev"] == after
        assert len({notices.reply["subscription"] for notices in everywhere}) == len(events) + 1


async def test_chunks_can_be_left_out_where_their_message_says_the_same(place: Place) -> None:
    async with FakeProvider(answer(reply("One.")), answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            wire, session = Wire(client), await new_session(client, place)
            await client.prompt(session, "go")
            await client.start_turn(session, "again")
            live, none = [await wire.subscribe(session, -1, chunks=chunks) for chunks in ("live", "none")]
            await live.until(lambda told: any(event["data"].get("chunk", {}).get("text") == "Half" for event in told.events))
            await client.interrupt(session, 2)
            for notices in (live, none):
                await notices.until(lambda told: is_over(told) and told.events[-1]["data"]["turn"] == 2)
            whole = (await client.read(session, "events"))["events"]
    assert none.events == [event for event in whole if event["type"] != "assistant/chunk"]
    first = next(event["seq"] for event in whole if event["type"] == "turn/end")
    assert live.events == [event for event in whole if event["type"] != "assistant/chunk" or event["seq"] > first]


async def test_tail_means_from_now_on(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    async with place.daemon() as client:
        session, events = await played_session(client, place)
        wire = Wire(client)
        notices = await wire.subscribe(session, "tail")
        await notices.until(lambda told: bool(told.all))
        assert (notices.events, notices.all[0]["prev"], notices.all[0]["caughtUp"]) == ([], len(events) - 1, True)
        await client.prompt(session, "And?")
        await notices.until(is_over)
        assert notices.events == (await client.read(session, "events"))["events"][len(events) :]


async def test_a_cursor_past_the_end_is_told_where_the_end_is(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client:
        session, events = await played_session(client, place)
        with pytest.raises(RpcError) as raised:
            await client.subscribe(session, after=len(events))
        assert (raised.value.kind, raised.value.data["tail"]) == ("cursor.ahead", len(events) - 1)
        for wrong in ("nobody", "w.x"):
            with pytest.raises(RpcError) as raised:
                await client.subscribe(session, after=0, writer=wrong)
            assert (raised.value.code, raised.value.data) == (-32602, {"path": "$.writer"})
        with pytest.raises(RpcError) as raised:
            await client.subscribe("no-such-session")
        assert raised.value.kind == "session.unknown"


async def test_an_ended_subscription_says_how_far_it_came_and_leaves_the_others_alone(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    async with place.daemon() as client:
        session, events = await played_session(client, place)
        wire = Wire(client)
        one, other = await wire.subscribe(session, -1), await wire.subscribe(session, -1)
        await one.until(is_over)
        number = one.reply["subscription"]
        assert await client.request("event/unsubscribe", {"subscription": number}) == {"last": len(events) - 1}
        with pytest.raises(RpcError) as raised:
            await client.request("event/unsubscribe", {"subscription": number})
        assert raised.value.data == {"path": "$.subscription"}
        await client.prompt(session, "And?")
        await other.until(lambda told: told.last > len(events) and is_over(told))
        assert one.last == len(events) - 1


async def test_a_subscription_outlives_the_closing_of_its_session(place: Place) -> None:
    """Whoever writes next, another process or this one again, is followed, and named in the notifications."""
    place.script({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    async with place.daemon() as client, place.daemon() as other:
        session, events = await played_session(client, place)
        notices = await Wire(client).subscribe(session, -1)
        writers = [notices.reply["writer"]]
        await client.close_session(session)
        for count, writing in enumerate((other, client), 3):
            writers.append((await writing.open_session(session))["writer"])
            await writing.prompt(session, "And?")
            await writing.close_session(session)
            await notices.until(lambda told, turn=count: is_over(told) and told.events[-1]["data"]["turn"] == turn)
            assert notices.all[-1]["writer"] == writers[-1]
        assert notices.events[: len(events)] == events
        assert notices.events == await place.recorded(session)
        assert len(set(writers)) == 3
        await client.request("event/unsubscribe", {"subscription": notices.reply["subscription"]})


async def test_a_subscription_to_a_session_that_leaves_no_record_ends_with_it(place: Place) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place)
        events = await client.subscribe(session)
        await client.close_session(session)
        with pytest.raises(RpcError) as raised:
            await events.stop()
        assert raised.value.data == {"path": "$.subscription"}


async def test_a_client_that_reads_late_loses_nothing_and_gets_it_in_bounded_pieces(place: Place) -> None:
    place.script({"text": "x" * 6_000, "chunk": 1})
    with Process(SERVE, place.daemon_env) as process:
        process.initialize(initializationOptions={"store": str(place.store)})
        session = process.call("session/open", {"cwd": str(place.workspace)})["session"]
        begun = process.call("event/subscribe", {"session": session, "after": -1})
        process.call("turn/start", {"session": session, "content": [{"type": "text", "text": "go"}]})
        async with place.daemon() as other:  # reads nothing of the first daemon's output until the turn is over
            events = await other.subscribe(session)
            whole = await until(events, "turn/end")
        notices = Notices(-1)
        while notices.last < whole[-1]["seq"]:
            for message in [message for message in process.messages if message.get("method") == "session/events"]:
                process.messages.remove(message)
                assert message["params"]["subscription"] == begun["subscription"]
                notices.take(message["params"])
            assert notices.last == whole[-1]["seq"] or process.read()
    assert notices.events == whole
    assert len(whole) > 6_000
