"""The session prefix through whole daemons: where it stands, where it is recorded, when it is composed anew.

Invariant: A prefix stands before the history and is recorded in the header alone; what changes in mid-session waits for the
next instance.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.chat_stream import DONE, call, calls, chunk, reply
from tests.support.daemons import Json, Place, new_session
from tests.support.editor import SAID, editing
from tests.support.fake_provider import FakeProvider, answer
from tests.support.prefixes import is_opener, repository
from tests.support.tool_calls import fill

pytestmark = pytest.mark.anyio

SKILL = "---\nname: release\ndescription: How to release.\n---\nPush the tag.\n"


def sent(provider: FakeProvider) -> list[list[dict[str, Any]]]:
    """Give the messages of each request behind the system text."""
    bodies = [json.loads(request.body)["messages"] for request in provider.requests]
    assert all(body[0]["role"] == "system" for body in bodies)
    return [body[1:] for body in bodies]


def headers(events: list[Json]) -> list[Json]:
    return [event["data"] for event in events if event["type"] == "request/header"]


def texts(prefix: list[Json]) -> list[str]:
    return [block["text"] for message in prefix for block in message["content"]]


async def test_instructions_stand_behind_the_system_text_before_the_history_and_in_the_header_alone(place: Place) -> None:
    fill(place.workspace, {"AGENTS.md": "Answer in verse.\n"})
    async with FakeProvider(answer(reply("One.")), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "first")
            await client.prompt(session, "second")
    one, two = sent(provider)
    openers = [message["content"] for message in one if is_opener(message)]
    assert [text.split('"')[1] for text in openers] == ["refold:instructions", "refold:baseline"]
    assert "Answer in verse." in openers[0]
    assert one == [*({"role": "user", "content": text} for text in openers), {"role": "user", "content": "first"}]
    assert two[: len(one)] == one, "frozen: the second request begins with the first"
    lines = await place.lines(session)
    assert [b'"request/header"' in line for line in lines if b"verse" in line] == [True]
    shown = await place.verify(session)
    assert shown["equal"] == 2


async def test_a_resumed_session_of_an_unchanged_workspace_has_the_same_prefix(place: Place) -> None:
    fill(place.workspace, {"AGENTS.md": "Answer in verse.\n"})
    place.script(SAID, SAID)
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "first")
    async with place.daemon() as client:
        await client.open_session(session)
        await client.prompt(session, "second")
    first, second = headers(await place.recorded(session))
    assert (first["reason"], second["reason"]) == ("initial", "resume")
    assert second["header"]["messagePrefix"] == first["header"]["messagePrefix"]
    assert second["header"] == first["header"]


async def test_what_changes_in_mid_session_waits_for_the_next_instance_and_shows_on_its_resume_header(place: Place) -> None:
    fill(place.workspace, {"AGENTS.md": "Answer in verse.\n"})
    place.script(SAID, SAID, SAID)
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "first")
        fill(place.workspace, {"AGENTS.md": "Answer in prose.\n", "new.txt": ""})
        await client.prompt(session, "second")
        told = await client.request("prefix/compose", {"session": session})
        assert told["composed"]
        assert told["recorded"]
        assert "verse" in str(told["contributors"][0])
    assert len(headers(await place.recorded(session))) == 1, "and no delta of it"
    async with place.daemon() as client:
        await client.open_session(session)
        told = await client.request("prefix/compose", {"session": session})
        assert (told["composed"], told["recorded"]) == (False, False)
        assert "prose" in str(told["contributors"][0])
        await client.prompt(session, "third")
    first, second = headers(await place.recorded(session))
    assert "verse" in texts(first["header"]["messagePrefix"])[0]
    assert "prose" in texts(second["header"]["messagePrefix"])[0]
    assert second["reason"] == "resume"
    assert not [event for event in await place.recorded(session) if event["type"] == "request/header-delta"]


async def test_a_fork_composes_anew_with_the_drift_on_its_resume_header_and_its_parent_keeps_its_own(place: Place) -> None:
    fill(place.workspace, {"AGENTS.md": "Answer in verse.\n"})
    place.script(SAID, SAID, SAID)
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "first")
        fill(place.workspace, {"AGENTS.md": "Answer in prose.\n"})
        child = (await client.fork(session))["session"]
        await client.open_session(child)
        await client.prompt(child, "second")
        await client.prompt(session, "third")
        found = await client.request("request/explain", {"session": child, "turn": 2, "step": 1})
    assert (found["verdict"], found["parting"]["segment"]) == ("break", "prefix")
    assert [cause["kind"] for cause in found["causes"]] == ["instance"]
    recorded = headers(await place.recorded(child))
    assert [(one["reason"], "prose" in texts(one["header"]["messagePrefix"])[0]) for one in recorded] == [
        ("initial", False),
        ("resume", True),
    ]
    assert len(headers(await place.recorded(session))) == 1
    assert (await place.verify(child))["equal"] == 2
    assert (await place.verify(session))["equal"] == 2


async def test_nothing_is_composed_before_the_first_turn_and_a_dry_composition_records_nothing(place: Place) -> None:
    place.script(SAID)
    async with place.daemon() as client:
        session = await new_session(client, place)
        fill(place.workspace, {"AGENTS.md": "Written after the session was opened.\n"})
        told = await client.request("prefix/compose", {"session": session})
        assert not told["composed"]
        assert "recorded" not in told
        fill(place.workspace, {"AGENTS.md": "Written later still.\n"})
        await client.prompt(session, "first")
        told = await client.request("prefix/compose", {"session": session})
    (header,) = headers(await place.recorded(session))
    assert "later still" in texts(header["header"]["messagePrefix"])[0]
    assert told["composed"]
    assert [message for row in told["contributors"] for message in row.get("messages", [])] == header["header"]["messagePrefix"]
    assert told["bytes"] == len(
        json.dumps(header["header"]["messagePrefix"], ensure_ascii=False, separators=(",", ":")).encode()
    )


async def test_an_empty_workspace_or_contributors_that_are_off_leave_no_byte(place: Place) -> None:
    (place.workspace / "animals.txt").unlink()
    place.script(SAID)
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "first")
    (header,) = headers(await place.recorded(session))
    assert "messagePrefix" not in header["header"]
    fill(place.workspace, {"AGENTS.md": "x"})
    place.script(SAID, more="[prefix]\ninstructions = false\nskills = false\nbaseline = false\neditor = false\n")
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "first")
        told = await client.request("prefix/compose", {"session": session})
    assert told == {"cwd": str(place.workspace), "composed": True, "contributors": []} | {"recorded": True}
    (header,) = headers(await place.recorded(session))
    assert "messagePrefix" not in header["header"]


async def test_a_skill_is_listed_in_the_opener_and_read_by_the_tool(place: Place) -> None:
    fill(repository(place.workspace), {".agents/skills/r/SKILL.md": SKILL})
    asked = answer(calls(call(0, "c0", "read_skill", '{"name":"release"}')) + chunk({}, "tool_calls") + DONE)
    async with FakeProvider(asked, answer(reply("Done."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "release it")
    first, second = sent(provider)
    assert first[0]["content"].endswith("\n- release: How to release.\n</context>")
    assert second[-1] == {"role": "tool", "tool_call_id": "c0", "content": "Push the tag."}
    tools = [tool["function"]["name"] for tool in json.loads(provider.requests[0].body)["tools"]]
    assert tools[-1] == "read_skill"


def test_what_an_editor_has_open_is_told_once(place: Place) -> None:
    place.script(SAID, SAID)
    with editing(place) as editor:
        editor.begin()
        editor.open("unsaved\n")
        session = editor.session()
        editor.prompt(session, "first")
        editor.close()
        editor.prompt(session, "second")
        told = editor.call("prefix/compose", {"session": session})
        assert editor.end() == 0
    (row,) = (row for row in told["contributors"] if row["contributor"] == "editor")
    assert texts(row["messages"])[0].split("\n")[1:-1] == [
        "Open in the person's editor when this session was opened:",
        "- animals.txt (text)",
    ]
    assert told["recorded"]
