"""Forks of whole daemons: what they begin with, whose they are, and that their requests go on where the parent's end.

Invariant: A fork begins with its parent's lines; what is open in them is closed as forked, and nothing that waits, no key and
no grant of the parent counts in it.
"""

from __future__ import annotations

from typing import Any

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import Json, Place, kill, new_session, text_so_far, types, until
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio


async def test_the_row_of_a_fork_tells_what_the_fork_came_to_and_not_its_parent_before_anyone_opens_it(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.rename(session, "Early")
        first = await client.prompt(session, "go")
        early = (await client.list_sessions())["sessions"][0]
        await client.rename(session, "Late")
        await client.prompt(session, "on")
        child = (await client.fork(session, at=first["seq"]))["session"]
        await client.close_session(session)
        for wanted in (None, "early"):
            row, *_ = [row for row in (await client.list_sessions(text=wanted))["sessions"] if row["session"] == child]
            assert row.get("parent", {}).get("session") == session
            assert row.get("parent", {}).get("at") == row["tail"] == first["seq"]
            same = ("title", "turns", "model", "lastActivity")
            assert [row.get(name) for name in same] == [early.get(name) for name in same]
            assert (row.get("usage"), row.get("inherited")) == ({}, early.get("usage"))
        assert child not in [row["session"] for row in (await client.list_sessions(text="late"))["sessions"]]


async def fork(client: Client, session: str, **how: Any) -> str:
    """Fork a session; give the fork's id."""
    return (await client.fork(session, **how))["session"]


async def seq_of(place: Place, session: str, kind: str, which: int = 0) -> int:
    """The seq of an event of a type."""
    return [event["seq"] for event in await place.recorded(session) if event["type"] == kind][which]


async def explained(client: Client, session: str, turn: int) -> Json:
    """What request/explain says of the first request of a turn."""
    return await client.request("request/explain", {"session": session, "turn": turn, "step": 1})


async def test_a_fork_begins_with_the_parents_lines_and_says_where_it_comes_from(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "first")
        made = await client.fork(session)
        lines = await place.lines(session)
        assert made["tail"] == len(lines) - 1
        assert await place.lines(made["session"]) == lines
        opened = await client.open_session(made["session"])
        parent = opened["info"]["parent"]
        assert (parent["session"], parent["at"]) == (session, made["tail"])
        rows = (await client.list_sessions())["sessions"]
        assert [row["session"] for row in rows] == [made["session"], session]
        assert rows[0].get("parent") == parent
        await client.prompt(made["session"], "second")
        assert await place.lines(session) == lines, "the parent stays as it was"
    own = (await place.recorded(made["session"]))[len(lines) :]
    assert types(own)[:1] == ["instance/start"]
    assert (own[0]["data"]["reason"], own[0]["data"]["instance"]) == ("fork", 2)
    assert (await place.verify(made["session"]))["equal"] == 2


async def test_a_forks_first_request_begins_with_the_bytes_of_its_parents_last(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "first")
        child = await fork(client, session)
        await client.open_session(child)
        await client.prompt(child, "second")
        found = await explained(client, child, 2)
        before: Any = await client.rebuild(session, 1, 1)
        after: Any = await client.rebuild(child, 2, 1)
    assert found["verdict"] == "kept"
    kept = before["body"].rindex("]")
    assert after["body"][:kept] == before["body"][:kept]
    headers = [event["data"]["reason"] for event in await place.recorded(child) if event["type"] == "request/header"]
    assert headers == ["initial", "resume"]


async def test_a_fork_of_a_turn_that_runs_is_closed_as_forked_and_the_turn_runs_on(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang"), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            told = await text_so_far(events, "Half")
            made = await client.fork(session, at=told[-1]["seq"])
            assert made["tail"] == told[-1]["seq"], "its owner flushed up to there"
            child = made["session"]
            cold = (await client.read(child, "transcript"))["entries"]
            opened = await client.open_session(child)
            assert opened["status"]["status"] == "idle"
            closers = (await place.recorded(child))[made["tail"] + 1 :]
            assert types(closers) == ["assistant/message", "step/end", "turn/end", "instance/start"]
            assert closers[2]["data"] == {"turn": 1, "reason": {"kind": "forked"}}
            assert (await client.read(child, "transcript"))["entries"] == cold
            assert opened["tail"] == closers[-1]["seq"]
            await client.prompt(child, "again")
            assert (await client.read(session, "status"))["status"]["status"] == "running"
            await client.interrupt(session, 1)
    assert (await place.verify(child))["equal"] == 2
    assert (await place.verify(session))["equal"] == 1


async def test_a_fork_in_the_middle_of_a_tool_call_gets_its_error_result(place: Place) -> None:
    listing = calls(call(0, "c1", "list_files", "{}")) + chunk({}, "tool_calls")
    async with FakeProvider(answer(listing), answer(reply("Done.")), answer(reply("Again."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "go")
            at = await seq_of(place, session, "tool/call")
            child = await fork(client, session, at=at)
            await client.open_session(child)
            closers = (await place.recorded(child))[at + 1 :]
            assert types(closers) == ["tool/result", "step/end", "turn/end", "instance/start"]
            assert closers[0]["data"]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
            await client.prompt(child, "again")
    assert (await place.verify(child))["equal"] == 2


async def test_what_waited_in_the_parent_does_not_wait_in_its_fork_before_and_after_it_is_opened(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang"), answer(reply("Done."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            await text_so_far(events, "Half")
            await client.start_turn(session, "and then", if_running="queue", key="k")
            made = await client.fork(session)
            cold = await client.open_session(made["session"], mode="read")
            assert (cold["pendingInputs"], cold["status"]) == ([], {"status": "idle"})
            warm = await client.open_session(made["session"])
            assert warm["pendingInputs"] == []
            assert len((await client.open_session(session))["pendingInputs"]) == 1
            again = await client.start_turn(made["session"], "something else", key="k")
            assert again["turn"] == 2, "a key of the parent's is no key of the fork's"
            await client.wait_turn(made["session"], again["turn"])
            await client.interrupt(session, 1, withdraw_queued=True)


async def test_a_fork_of_a_session_that_another_process_writes_takes_what_is_on_disk(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as owner, place.daemon() as other:
            session = await new_session(owner, place)
            events = await owner.subscribe(session)
            started = await owner.start_turn(session, "go")
            await text_so_far(events, "Half")
            child = await fork(other, session, at=started["seq"])
            assert types(await place.recorded(child)) == ["instance/start", "input/accepted"]
            made = await other.fork(session)
            assert made["tail"] >= started["seq"]
            await owner.interrupt(session, 1)


async def test_a_fork_of_a_killed_session_and_of_a_fork(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang"), answer(reply("Two.")), answer(reply("Three."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            told = await text_so_far(events, "Half")
            await events.wait_durable(told[-1]["seq"])
            await kill(client)
        async with place.daemon() as client:
            child = await fork(client, session)
            grandchild = await fork(client, child)
            for one in (child, grandchild):
                await client.open_session(one)
                await client.prompt(one, "again")
            opened = await client.open_session(grandchild)
            assert opened["info"]["parent"]["session"] == child
    for one in (child, grandchild):
        ends = [event["data"]["reason"]["kind"] for event in await place.recorded(one) if event["type"] == "turn/end"]
        assert ends == ["forked", "completed"]
        assert (await place.verify(one))["equal"] == 2
    assert (await place.recorded(session))[-1]["type"] == "assistant/chunk", "nobody closed the parent"


async def test_a_title_is_an_event_of_the_forks_own(place: Place) -> None:
    place.script({"text": "One."})
    async with place.daemon() as client:
        session = await new_session(client, place, title="The first")
        await client.prompt(session, "go")
        tail = (await client.open_session(session))["tail"]
        made = await client.fork(session, title="The second")
        assert made["tail"] == tail + 2
        assert [row.get("title") for row in (await client.list_sessions())["sessions"]] == ["The second", "The first"]
    own = (await place.recorded(made["session"]))[tail + 1 :]
    assert types(own) == ["instance/start", "session/title"]


async def test_a_fork_of_nothing_and_behind_the_end_is_refused(place: Place) -> None:
    place.script({"text": "One."})
    async with place.daemon() as client:
        session, empty = await new_session(client, place), await new_session(client, place)
        await client.prompt(session, "go")
        tail = (await client.open_session(session))["tail"]
        nothing = f"session {empty} cannot be forked: there is nothing in it yet"
        cases = [
            (session, tail + 1, "seq.range", f"session {session} cannot be forked at {tail + 1}: it ends at {tail}"),
            (empty, None, "seq.range", nothing),
            (empty, 0, "seq.range", nothing),
            ("nobody", None, "session.unknown", "there is no session nobody"),
        ]
        for name, at, kind, message in cases:
            with pytest.raises(RpcError) as raised:
                await client.fork(name, at=at)
            assert (raised.value.kind, raised.value.message) == (kind, message)
        await client.close_session(session)
        with pytest.raises(RpcError) as raised:
            await client.fork(session, at=tail + 1)
        assert (raised.value.kind, raised.value.data["tail"]) == ("seq.range", tail)
        assert len((await client.list_sessions())["sessions"]) == 1


async def test_settings_of_the_parent_hold_in_its_fork(place: Place) -> None:
    async with FakeProvider(answer(reply("One.")), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place, model="fake/large")
            await client.prompt(session, "go")
            child = await fork(client, session)
            await client.open_session(child)
            events = await client.subscribe(child, after="tail")
            await client.start_turn(child, "again")
            told = await until(events, "turn/end")
    header = next(event["data"] for event in told if event["type"] == "request/header")
    assert (header["reason"], header["header"]["config"]["model"]) == ("resume", "large")
