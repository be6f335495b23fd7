"""Deleting, archiving, moving to another folder through whole daemons: what is refused, what is told, what forks keep."""

from __future__ import annotations

import asyncio

import pytest

from refold_client import RpcError
from tests.support.chat_stream import text
from tests.support.daemons import Place, new_session, text_so_far
from tests.support.fake_provider import FakeProvider, answer
from tests.support.notices import Wire

pytestmark = pytest.mark.anyio


async def test_a_session_that_is_open_here_is_closed_and_deleted(place: Place) -> None:
    place.script({"text": "One."})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        await client.delete(session)
        for method, params in (("session/open", {}), ("session/delete", {}), ("session/archive", {})):
            with pytest.raises(RpcError) as raised:
                await client.request(method, {"session": session, **params})
            assert raised.value.kind == "session.unknown"
        assert (await client.list_sessions())["sessions"] == []


async def test_a_session_that_nobody_has_open_is_deleted_and_its_fork_keeps_what_it_inherited(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        lines = await place.lines(session)
        child = (await client.fork(session))["session"]
        await client.close_session(session)
        await client.delete(session)
        assert [row["session"] for row in (await client.list_sessions())["sessions"]] == [child]
        await client.open_session(child)
        await client.prompt(child, "again")
        assert (await place.lines(child))[: len(lines)] == lines
    assert (await place.verify(child))["equal"] == 2


async def test_a_session_that_is_open_goes_on_in_another_folder_and_stays_open(place: Place) -> None:
    place.script({"text": "One."}, {"calls": [{"name": "list_files"}]}, {"text": "Two."})
    other = place.workspace.with_name("other")
    other.mkdir()
    (other / "zebra.txt").write_text("asleep\n", encoding="utf-8")
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        moved = await client.request("session/rehome", {"session": session, "cwd": other.as_uri()})
        assert moved == {"cwd": str(other)}
        await client.prompt(session, "look")
        assert any(b"zebra.txt" in line for line in await place.lines(session) if line.startswith(b'{"type":"tool/result"'))
        rows = (await client.list_sessions(cwd=str(other)))["sessions"]
        assert [row["session"] for row in rows] == [session]
        for wrong in (str(other / "nowhere"), "relative"):
            with pytest.raises(RpcError) as raised:
                await client.request("session/rehome", {"session": session, "cwd": wrong})
            assert raised.value.kind == "config.invalid"
        child = await client.request("session/fork", {"session": session, "cwd": str(place.workspace)})
        rows = (await client.list_sessions())["sessions"]
        assert {row["session"]: row["cwd"] for row in rows} == {session: str(other), child["session"]: str(place.workspace)}
        other.rename(other.with_name("again"))
        gone = (await client.request("session/list", {"limit": 9, "moved": True}))["sessions"]
        assert [row["session"] for row in gone] == [session]
    assert (await place.verify(session))["equal"] == 3


async def test_a_session_whose_turn_runs_is_not_deleted_here_nor_from_another_process(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as owner, place.daemon() as other:
            session = await new_session(owner, place)
            events = await owner.subscribe(session)
            await owner.start_turn(session, "go")
            await text_so_far(events, "Half")
            for client, kind in ((owner, "session.busy"), (other, "session.owned")):
                with pytest.raises(RpcError) as raised:
                    await client.delete(session)
                assert raised.value.kind == kind
            await owner.interrupt(session, 1)
            await owner.delete(session)


async def test_whoever_waits_for_an_input_of_a_session_that_is_deleted_is_answered(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.start_turn(session, "go")
            queued = await client.start_turn(session, "then", if_running="queue")
            await client.close_session(session, cancel=True)
            await client.open_session(session)
            waiting = asyncio.create_task(client.wait_turn(session, input_id=queued["input"]))
            await client.read(session, "status")
            await client.delete(session)
            with pytest.raises(RpcError) as raised:
                await waiting
            assert raised.value.kind == "input.pending", "nobody starts it by itself"


async def test_a_session_without_anything_on_disk_can_be_deleted(place: Place) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.delete(session)
        with pytest.raises(RpcError) as raised:
            await client.delete(session)
        assert raised.value.kind == "session.unknown"


@pytest.mark.parametrize("opened", [True, False])
async def test_each_subscription_of_a_deleted_session_ends_and_is_told_so_once(place: Place, opened: bool) -> None:
    """Invariant: Each subscription of a deleted session ends and says so once."""
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client:
        session, other = await new_session(client, place), await new_session(client, place)
        for one in (session, other):
            await client.prompt(one, "go")
        if not opened:
            await client.close_session(session)
        wire, troubles = Wire(client), client.listen("session/trouble")
        one, two, rest = [await wire.subscribe(name, -1) for name in (session, session, other)]
        await client.delete(session)
        said = [await anext(troubles), await anext(troubles)]
        assert {trouble["subscription"] for trouble in said} == {each.reply["subscription"] for each in (one, two)}
        assert {(trouble["kind"], trouble["durable"], trouble["session"]) for trouble in said} == {
            ("session.unknown", -1, session)
        }
        await client.delete(other)
        last = await anext(troubles)
        assert last["subscription"] == rest.reply["subscription"], "nothing was said twice"


async def test_an_archived_session_is_left_out_of_lists_that_do_not_ask_for_it(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client, place.daemon() as other:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        await other.archive(session)
        assert (await client.list_sessions())["sessions"] == []
        (row,) = (await client.list_sessions(archived=True))["sessions"]
        assert (row["session"], row.get("archived")) == (session, True)
        await client.prompt(session, "again")
        assert (await client.list_sessions())["sessions"] == [], "its writer does not bring it back"
        await client.archive(session, archived=False)
        assert [row["session"] for row in (await other.list_sessions())["sessions"]] == [session]
