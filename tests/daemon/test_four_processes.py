"""Four daemons on one store: two write different sessions, one follows both, one keeps trying to open both for writing.

Invariant: Four processes on one store meet no error but `session.owned`, and what a follower is told is the log.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from refold_client import Client, Cursor, RpcError
from tests.support.chat_stream import reply, text
from tests.support.daemons import Json, Place, kill, new_session, nothing_becomes_durable, text_so_far, types
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.notices import Notices, Wire

pytestmark = pytest.mark.anyio

READ = {"calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}}]}
TURNS = 6


def over(notices: Notices) -> bool:
    """Whether all turns were told to their end, and as durable."""
    ends = [event for event in notices.events if event["type"] == "turn/end"]
    return len(ends) == TURNS and notices.durable == notices.last == ends[-1]["seq"]


async def write(client: Client, session: str, ends: list[Json]) -> None:
    """Run the turns one after the other."""
    for number in range(TURNS):
        ends.append(await client.prompt(session, f"prompt {number}"))


async def keep_trying(client: Client, sessions: list[str], refusals: list[Any], stop: anyio.Event) -> None:
    """Try to open the sessions for writing, again and again."""
    while not stop.is_set():
        for session in sessions:
            with pytest.raises(RpcError) as raised:
                await client.open_session(session)
            refusals.append((session, raised.value.kind, raised.value.data["pid"]))


async def test_nothing_goes_wrong_but_that_a_session_is_owned_and_a_follower_sees_the_logs(place: Place) -> None:
    """Must show 2."""
    replies = [{"text": f"reply {number} " + "word " * 200, "chunk": 5, **(READ if number % 2 else {})} for number in range(20)]
    place.script(*replies)
    async with place.daemon() as one, place.daemon() as two, place.daemon() as follower, place.daemon() as rival:
        sessions = [await new_session(one, place), await new_session(two, place)]
        owners = {sessions[0]: one.pid, sessions[1]: two.pid}
        ends: list[Json] = []
        for client, session in ((one, sessions[0]), (two, sessions[1])):  # a session without work leaves no record
            await client.rename(session, "Animals")
        wire = Wire(follower)
        followed = [await wire.subscribe(session, -1) for session in sessions]
        refusals: list[Any] = []
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_trying, rival, sessions, refusals, stop)
            async with anyio.create_task_group() as writing:
                writing.start_soon(write, one, sessions[0], ends)
                writing.start_soon(write, two, sessions[1], ends)
            for notices in followed:
                await notices.until(over)
            stop.set()
        assert {end["data"]["reason"]["kind"] for end in ends} == {"completed"}
        assert set(refusals) == {(session, "session.owned", pid) for session, pid in owners.items()}
        for session, notices in zip(sessions, followed, strict=True):
            assert notices.events == await place.recorded(session)
            assert all(notice["durable"] == notice["tail"] for notice in notices.all)
            assert len({notice["writer"] for notice in notices.all}) == 1
        for client, session in ((one, sessions[0]), (two, sessions[1])):
            await client.close_session(session)
            assert (await rival.open_session(session))["instance"] == 2
    for session in sessions:
        await place.verify(session)
    assert place.errors.read_text() == ""


async def test_a_follower_of_a_writer_that_is_killed_in_a_stream_keeps_its_cursor_and_sees_how_the_next_one_goes_on(
    place: Place,
) -> None:
    gate = Gate()
    parts = (text("Kept"), gate, text(" and lost"))
    async with FakeProvider(answer(*parts, end="hang"), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as follower, place.daemon() as heir:
            async with place.daemon() as owner:
                session = await new_session(owner, place)
                own = await owner.subscribe(session)
                await owner.start_turn(session, "go")
                notices = await Wire(follower).subscribe(session, -1)
                told = await text_so_far(own, "Kept")
                await notices.until(lambda seen: seen.last == told[-1]["seq"])
                async with nothing_becomes_durable(place):
                    gate.open()
                    told += await text_so_far(own, " and lost")
                    await kill(owner)
            known, writer = notices.last, notices.all[-1]["writer"]
            assert known == told[-2]["seq"], "a follower is told nothing that a crash can take back"
            await heir.open_session(session)
            await heir.prompt(session, "again")
            await notices.until(lambda seen: seen.events[-1]["type"] == "turn/end" and seen.events[-1]["data"]["turn"] == 2)
            assert types(notices.events[known + 1 :])[:4] == ["assistant/message", "step/end", "turn/end", "instance/start"]
            assert notices.events == await place.recorded(session)
            assert notices.all[-1]["writer"] != writer
            again = await Wire(follower).subscribe(session, known, writer=writer)
            await again.until(lambda seen: seen.last == notices.last)
            assert again.events == notices.events[known + 1 :]
            with pytest.raises(RpcError) as raised:  # what only the killed writer's own client was told
                await heir.subscribe(session, after=Cursor(session, told[-1]["seq"], own.writer))
            assert (raised.value.kind, raised.value.data["durable"]) == ("cursor.diverged", known)
