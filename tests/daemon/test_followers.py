"""What a follower in another process is told of a session: its writer's death and the next writer's closers, its deletion.

Invariant: A follower is told that the writer is gone, what the next one closed, and that a session was deleted.
"""

from __future__ import annotations

import pytest

from refold_client import RpcError, SubscriptionEndedError
from refold_protocol.ids import SessionId
from refold_server.clock import uuid7
from refold_storage.lmdb_store import open_store
from tests.support.chat_stream import reply, text
from tests.support.daemons import Place, kill, new_session, types, until
from tests.support.fake_provider import FakeProvider, answer
from tests.support.notices import Notices, Wire

pytestmark = pytest.mark.anyio


def says(notices: Notices, word: str) -> bool:
    """Whether a chunk with that text was told."""
    return any(event["data"].get("chunk", {}).get("text") == word for event in notices.events)


async def test_a_follower_is_told_that_a_killed_writers_turn_is_over_and_sees_the_next_writers_closers(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang"), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as follower, place.daemon() as next_writer:
            async with place.daemon() as owner:
                session = await new_session(owner, place)
                await owner.start_turn(session, "go")
                notices = await Wire(follower).subscribe(session, -1)
                await notices.until(lambda seen: says(seen, "Half"))
                assert (await follower.read(session, "status"))["status"]["status"] == "running"
                changed = follower.listen("sessions/changed")
                await kill(owner)
            assert await anext(changed) == {"session": session, "status": "idle", "tail": notices.last}
            assert (await follower.read(session, "status"))["status"] == {"status": "idle"}
            before, first = notices.last, notices.all[-1]["writer"]
            await next_writer.open_session(session)
            await notices.until(lambda seen: seen.last > before)
            assert types(notices.events[before + 1 :]) == ["assistant/message", "step/end", "turn/end"]
            assert notices.events[-1]["data"]["reason"] == {"kind": "interrupted"}
            assert notices.all[-1]["writer"] not in (None, first)
            assert notices.events == await place.recorded(session)


async def test_a_writer_that_closes_in_good_order_leaves_nothing_to_tell(place: Place) -> None:
    """The next word that the follower hears is about the next writer, who is killed."""
    async with FakeProvider(answer(reply("One.")), answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as follower, place.daemon() as owner:
            session = await new_session(owner, place)
            await owner.prompt(session, "go")
            notices = await Wire(follower).subscribe(session, -1)
            changed = follower.listen("sessions/changed")
            await owner.close_session(session)
            async with place.daemon() as second:
                await second.open_session(session)
                await second.start_turn(session, "again")
                await notices.until(lambda seen: says(seen, "Half"))
                await kill(second)
            assert await anext(changed) == {"session": session, "status": "idle", "tail": notices.last}


async def test_the_client_says_why_a_subscription_ended_behind_the_events_that_came(place: Place) -> None:
    place.script({"text": "One."})
    async with place.daemon() as client:
        session = await new_session(client, place)
        end = await client.prompt(session, "go")
        await client.close_session(session)
        events = await client.subscribe(session)
        assert (await until(events, "turn/end"))[-1] == end
        store = await open_store(place.store, new_uuid=uuid7, create=False)
        await store.delete(SessionId(session))
        await store.close()
        with pytest.raises(SubscriptionEndedError) as raised:
            await anext(events)
        assert raised.value.kind == "session.unknown"


async def test_a_deletion_ends_subscriptions_and_says_so(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as follower:
        async with place.daemon() as owner:
            session, other = await new_session(owner, place), await new_session(owner, place)
            for one in (session, other):
                await owner.prompt(one, "go")
        wire, troubles = Wire(follower), follower.listen("session/trouble")
        one, two, rest = [await wire.subscribe(name, -1) for name in (session, session, other)]
        await one.until(lambda seen: bool(seen.events))
        store = await open_store(place.store, new_uuid=uuid7, create=False)
        await store.delete(SessionId(session))
        await store.close()
        said = [await anext(troubles), await anext(troubles)]
        assert [trouble.pop("subscription") for trouble in said] == [each.reply["subscription"] for each in (one, two)]
        message = f"there is no session {session}"
        assert said == [{"session": session, "kind": "session.unknown", "durable": -1, "message": message}] * 2
        with pytest.raises(RpcError) as raised:
            await follower.request("event/unsubscribe", {"subscription": one.reply["subscription"]})
        assert raised.value.data == {"path": "$.subscription"}
        with pytest.raises(RpcError) as raised:
            await follower.subscribe(session)
        assert raised.value.kind == "session.unknown"
        assert (await follower.request("event/unsubscribe", {"subscription": rest.reply["subscription"]}))["last"] > 0
