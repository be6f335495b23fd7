"""Two daemons on one store: who writes, what the other sees of it, and what is left when the writer dies."""

from __future__ import annotations

import pytest

from refold_client import ConnectionEndedError, Cursor, RpcError, WriterChangedError
from tests.support.chat_stream import reply, text
from tests.support.daemons import Place, kill, new_session, nothing_becomes_durable, text_so_far, types, until
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.notices import Wire

pytestmark = pytest.mark.anyio


async def test_a_session_has_one_writer_and_the_other_is_told_which(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as owner, place.daemon() as other:
        session = await new_session(owner, place)
        end = await owner.prompt(session, "go")
        with pytest.raises(RpcError) as raised:
            await other.open_session(session)
        assert (raised.value.kind, raised.value.data["pid"]) == ("session.owned", owner.pid)
        assert raised.value.data["client"] == "refold serve for refold_client"
        assert 0 < raised.value.data["since"] <= end["time"]
        await owner.close_session(session)
        assert (await other.open_session(session))["instance"] == 2
        with pytest.raises(RpcError) as raised:
            await owner.open_session(session)
        assert raised.value.data["pid"] == other.pid


async def test_the_death_of_the_writer_frees_the_session(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as owner, place.daemon() as other:
        session = await new_session(owner, place)
        await owner.prompt(session, "go")
        await kill(owner)
        assert (await other.open_session(session))["instance"] == 2
        assert (await other.prompt(session, "and?"))["data"]["reason"] == {"kind": "completed"}


async def test_a_follower_gets_the_events_of_another_process_once_they_are_durable(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Half "), gate, reply("done.")), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as owner, place.daemon() as follower:
            session = await new_session(owner, place)
            writer = (await owner.open_session(session))["writer"]
            own = await owner.subscribe(session)
            await owner.start_turn(session, "go")
            notices = await Wire(follower).subscribe(session, -1)
            await text_so_far(own, "Half ")
            await notices.until(lambda told: any("chunk" in event["data"] for event in told.events))
            assert all(notice["durable"] == notice["tail"] for notice in notices.all)
            gate.open()
            end = await until(own, "turn/end")
            await notices.until(lambda told: told.last == end[-1]["seq"])
            assert notices.events == (await owner.read(session, "events"))["events"]
            assert {notice["writer"] for notice in notices.all} == {writer}


async def test_a_follower_learns_of_the_next_writer_and_its_cursor_stays_good(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as first, place.daemon() as follower, place.daemon() as second:
        session = await new_session(first, place)
        end = await first.prompt(session, "go")
        events = await follower.subscribe(session)
        assert (await until(events, "turn/end"))[-1] == end
        await first.close_session(session)
        await second.open_session(session)
        end = await second.prompt(session, "again")
        with pytest.raises(WriterChangedError) as raised:
            await until(events, "turn/end")
        again = await follower.subscribe(session, after=raised.value.cursor)
        assert (await until(again, "turn/end"))[-1] == end
        renewed = again.cursor
        assert renewed.after == end["seq"]
        assert (await follower.subscribe(session, after=renewed)).tail == end["seq"]


async def test_what_a_killed_writer_told_and_did_not_keep_has_diverged(place: Place) -> None:
    gate = Gate()
    parts = (text("Kept"), gate, text(" and lost"), text(" for good"))
    async with FakeProvider(answer(*parts, end="hang"), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as first:
            session = await new_session(first, place)
            events = await first.subscribe(session)
            await first.start_turn(session, "go")
            told = await text_so_far(events, "Kept")
            await events.wait_durable(told[-1]["seq"])
            async with nothing_becomes_durable(place):
                gate.open()
                told += await text_so_far(events, " and lost for good")
                await kill(first)
            with pytest.raises(ConnectionEndedError):
                await anext(events)
        recorded = await place.recorded(session)
        assert recorded == told[: len(recorded)]
        assert len(recorded) == len(told) - 2
        known, lost = events.cursor, Cursor(session, told[-1]["seq"], events.writer)
        assert known.after == recorded[-1]["seq"]

        async with place.daemon() as second:
            with pytest.raises(RpcError) as raised:  # nobody wrote since: there is no other event of that number yet
                await second.subscribe(session, after=lost)
            assert (raised.value.kind, raised.value.data["tail"]) == ("cursor.ahead", recorded[-1]["seq"])
            await second.open_session(session)
            await second.prompt(session, "again")
            with pytest.raises(RpcError) as raised:
                await second.subscribe(session, after=lost)
            assert (raised.value.kind, raised.value.data["durable"]) == ("cursor.diverged", recorded[-1]["seq"])
            renewed = await until(await second.subscribe(session, after=known), "turn/end", turn=2)
        assert told[: known.after + 1] + renewed == await place.recorded(session)
        assert types(renewed)[:3] == ["assistant/message", "step/end", "turn/end"]


async def test_a_cursor_from_one_daemon_goes_on_at_the_next(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as first:
        session = await new_session(first, place)
        events = await first.subscribe(session)
        await first.prompt(session, "go")
        told = await until(events, "turn/end")
        cursor = events.cursor
    async with place.daemon() as second:
        await second.open_session(session)
        await second.prompt(session, "again")
        told += await until(await second.subscribe(session, after=cursor), "turn/end")
    assert told == await place.recorded(session)
