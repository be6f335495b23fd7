"""A session through a whole daemon: open, prompt, follow, read, close, and open again in another process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from refold_client import RpcError
from tests.support.daemons import Place, new_session, types, until

pytestmark = pytest.mark.anyio

TURN = (
    {"text": "I look.", "calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}, "id": "c0"}]},
    {"text": "The zebra sleeps."},
)
"""A turn of two steps with one call."""

EVENTS = [
    "instance/start",
    "input/accepted",
    "turn/start",
    "user/message",
    "step/start",
    "request/header",
    "request/sent",
    "assistant/chunk",
    "assistant/message",
    "tool/call",
    "tool/result",
    "step/end",
    "step/start",
    "request/sent",
    "assistant/chunk",
    "assistant/message",
    "step/end",
    "turn/end",
]
"""What the first turn of a session records when it goes like TURN."""


async def test_a_prompt_runs_is_told_as_it_goes_and_can_be_read_in_every_view(place: Place) -> None:
    place.script(*TURN)
    async with place.daemon() as client:
        opened = await client.open_session(cwd=place.workspace)
        session: str = opened["session"]
        assert (opened["instance"], opened["tail"], opened["durable"], opened["pendingInputs"]) == (1, -1, -1, [])
        assert (opened["status"], opened["info"]["cwd"]) == ({"status": "idle"}, str(place.workspace))
        events = await client.subscribe(session)
        started = await client.start_turn(session, "Which animal sleeps?")
        told = await until(events, "turn/end")
        assert types(told) == EVENTS
        assert [event["seq"] for event in told] == list(range(len(told)))
        assert told[started["seq"]]["data"]["input"] == started["input"]
        assert await client.wait_turn(session, started["turn"]) == told[-1]
        assert await client.wait_turn(session, input_id=started["input"]) == told[-1]
        assert told[-1]["data"] == {"turn": 1, "reason": {"kind": "completed"}}

        assert (await client.read(session, "events"))["events"] == told
        surface = (await client.read(session, "surface"))["nodes"]
        roles = [(node["message"]["role"], node["message"]["content"][0]["type"]) for node in surface]
        assert roles == [("user", "text"), ("assistant", "text"), ("user", "tool-result"), ("assistant", "text")]
        transcript = (await client.read(session, "transcript"))["entries"]
        assert [entry["kind"] for entry in transcript] == ["user", "assistant", "tool", "assistant"]
        assert transcript[2]["content"][0]["text"].split("\n")[1].endswith("the zebra sleeps")
        header = (await client.read(session, "header"))["header"]
        names = [tool["name"] for tool in header["tools"]]
        assert names == ["list_files", "read_file", "search_text", "write_file", "edit_file"]
        assert (await client.read(session, "status"))["status"] == {"status": "idle"}
        await client.close_session(session)
    assert await place.recorded(session) == told
    assert place.errors.read_bytes() == b""


async def test_a_new_session_begins_with_its_settings_and_its_title(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place, title="Animals", model="rehearsal/workspace", limits={"steps": 3})
        await client.prompt(session, "go")
        told = (await client.read(session, "events"))["events"]
        again = await client.open_session(session)
    assert types(told)[:4] == ["instance/start", "session/settings", "session/title", "input/accepted"]
    assert told[1]["data"] == {"model": "rehearsal/workspace", "limits": {"steps": 3}}
    assert (again["info"]["title"], again["info"]["model"], again["info"]["turns"]) == ("Animals", "rehearsal/workspace", 1)


async def test_a_session_without_work_leaves_no_record(place: Place) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place, title="Never used")
        await client.read(session, "events")
        await client.close_session(session)
        with pytest.raises(RpcError) as raised:
            await client.open_session(session)
        assert raised.value.kind == "session.unknown"
    assert "0 sessions checked" in place.refold("verify", "--all").stdout


async def test_another_process_resumes_where_the_first_left(place: Place) -> None:
    place.script(*TURN, {"text": "Yes."})
    async with place.daemon() as client:
        session = await new_session(client, place)
        first = await client.open_session(session)
        end = await client.prompt(session, "Which animal sleeps?")
    before = await place.recorded(session)
    place.script({"text": "Yes."}, {"text": "Still."})
    async with place.daemon() as client:
        opened = await client.open_session(session)
        assert (opened["instance"], opened["tail"], opened["durable"]) == (2, end["seq"], end["seq"])
        assert first["writer"].endswith(".-1")
        assert opened["writer"].endswith(f".{end['seq']}")
        assert await place.recorded(session) == before, "opening a balanced log writes nothing"
        for prompt in ("Really?", "Still?"):
            await client.prompt(session, prompt)
        rebuilt = await client.request("request/rebuild", {"session": session, "turn": 3, "step": 1})
    after = await place.recorded(session)
    assert after[: len(before)] == before
    resumed = after[len(before) :]
    assert resumed[0]["data"] | {"client": None} == {"instance": 2, "reason": "resume", "client": None}
    assert [event["data"]["reason"] for event in after if event["type"] == "request/header"] == ["initial", "resume"]
    for said in ("Which animal sleeps?", "The zebra sleeps.", "Really?", "Yes.", "Still?"):
        assert f'"{said}"' in rebuilt["body"]
    assert (await place.verify(session))["equal"] == 4


async def test_a_session_that_is_open_here_is_given_again_however_requests_overlap(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        await client.close_session(session)
        both = await asyncio.gather(client.open_session(session), client.open_session(session))
        assert both[0] == both[1]
        closed, opened = await asyncio.gather(client.close_session(session), client.open_session(session))
        assert closed is None
        assert opened["writer"] != both[0]["writer"]
        assert (await client.request("session/flush", {"session": session})) == {"durable": opened["tail"]}


async def test_flush_gives_what_is_durable(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        assert await client.flush(session) == -1
        end = await client.prompt(session, "go")
        assert await client.flush(session) == end["seq"]
        assert await client.flush(session, up_to=1) == end["seq"]
        with pytest.raises(RpcError) as raised:
            await client.flush(session, up_to=end["seq"] + 1)
        assert raised.value.kind == "seq.range"


async def test_reads_need_no_open_session_and_work_beside_a_writer(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client, place.daemon() as other:
        session = await new_session(client, place)
        end = await client.prompt(session, "go")
        theirs: Any = await other.open_session(session, mode="read")
        assert (theirs["tail"], theirs["durable"], theirs["info"]["turns"]) == (end["seq"], end["seq"], 1)
        assert "writer" not in theirs
        assert "instance" not in theirs
        for view in ("events", "surface", "transcript", "header", "status"):
            assert await other.read(session, view) == await client.read(session, view)
        with pytest.raises(RpcError) as raised:
            await other.start_turn(session, "mine")
        assert raised.value.kind == "session.readOnly"
