"""write_file and edit_file through whole daemons: asked about by their diff, made or not, in the editor where it is unsaved."""

from __future__ import annotations

import hashlib
import json
import signal
from typing import Any

import pytest

from tests.support.approval_files import Person, always
from tests.support.daemons import Json, Place, kill, new_session, until
from tests.support.editor import DISK, READ, SAID, Editor, editing, on_disk, part, span
from tests.support.patching import patched
from tests.support.plugin_files import results

ALLOW = '[permissions]\nmode = "allow"\n'


def edit(old: str, new: str, **more: Any) -> Json:
    """A scripted reply that edits animals.txt."""
    return {"calls": [{"name": "edit_file", "arguments": {"path": "animals.txt", "old": old, "new": new, **more}}]}


def write(content: str, path: str = "animals.txt") -> Json:
    """A scripted reply that writes a file."""
    return {"calls": [{"name": "write_file", "arguments": {"path": path, "content": content}}]}


@pytest.mark.anyio
async def test_an_edit_is_asked_about_by_its_diff_and_made_when_it_is_allowed(place: Place) -> None:
    place.script(edit("zebra", "lion"), SAID)
    async with place.daemon() as client:
        person = Person(client)
        session = await new_session(client, place)
        events = await client.subscribe(session)
        await client.start_turn(session, "go")
        question = await person.question()
        assert question["tool"] == "edit_file"
        assert question["subject"]["kind"] == "diff"
        expected = DISK.replace("zebra", "lion")
        assert patched(DISK, question["subject"]["text"]) == expected
        assert on_disk(place) == DISK
        person.says("once")
        told = await until(events, "turn/end")
    assert on_disk(place) == expected
    (result,) = results(told)
    assert result["content"][0]["text"] == "edited animals.txt: line 2"
    assert json.loads(result["meta"])["after"] == hashlib.sha256(expected.encode()).hexdigest()
    assert (await place.verify(session))["differences"] == []


@pytest.mark.anyio
async def test_what_is_denied_or_cannot_be_done_changes_nothing_and_only_the_first_is_asked_about(place: Place) -> None:
    place.script(edit("zebra", "lion"), edit("unicorn", "lion"), write("x", ".git/config"), write("blind"), SAID)
    async with place.daemon() as client:
        client.on_approval(always("deny"))
        session = await new_session(client, place)
        events = await client.subscribe(session)
        await client.start_turn(session, "go")
        told = await until(events, "turn/end")
    assert [one["error"]["code"] for one in results(told)] == ["DENIED", "TOOL_FAILED", "DENIED", "STALE"]
    assert sum(event["type"] == "approval/asked" for event in told) == 1
    assert on_disk(place) == DISK


@pytest.mark.anyio
async def test_e_05_a_file_that_changes_while_the_question_waits_is_not_written(place: Place) -> None:
    place.script(edit("zebra", "lion"), READ, edit("zebra", "lion"), SAID)
    async with place.daemon() as client:
        person = Person(client)
        session = await new_session(client, place)
        events = await client.subscribe(session)
        await client.start_turn(session, "go")
        await person.question()
        fill(place, DISK + "typed meanwhile\n")
        person.says("once")
        await person.question()
        person.says("once")
        told = await until(events, "turn/end")
    first, _, third = results(told)
    assert first["error"]["code"] == "STALE"
    assert "error" not in third
    assert on_disk(place) == DISK.replace("zebra", "lion") + "typed meanwhile\n"


@pytest.mark.anyio
@pytest.mark.parametrize("permissions", ["", ALLOW])
async def test_a_session_that_allows_is_not_asked_one_that_denies_makes_nothing(place: Place, permissions: str) -> None:
    place.script(write("new\n", "x/new.txt"), SAID, edit("zebra", "lion"), SAID, more=permissions)
    async with place.daemon() as client:
        given = {} if permissions else {"permissions": {"mode": "allow"}}
        session = await new_session(client, place, **given)
        await client.prompt(session, "go")
        assert (place.workspace / "x/new.txt").read_text() == "new\n"
        await client.configure(session, permissions={"mode": "deny"})
        await client.prompt(session, "go")
    assert on_disk(place) == DISK
    recorded = await place.recorded(session)
    assert [one.get("error", {}).get("code") for one in results(recorded)] == [None, "DENIED"]
    assert not [event for event in recorded if event["type"] == "approval/asked"]


@pytest.mark.anyio
async def test_e_05_c_two_calls_of_one_reply_on_one_file_are_made_one_after_the_other(place: Place) -> None:
    calls = [*edit("horse", "pony")["calls"], *edit("pony", "donkey")["calls"], *READ["calls"], *write("one\n")["calls"]]
    place.script({"calls": calls}, SAID, more=ALLOW)
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
    assert [one["content"][0]["text"] for one in results(await place.recorded(session))] == [
        "edited animals.txt: line 1",
        "edited animals.txt: line 1",
        "1\ta donkey\n2\tthe zebra sleeps",
        "wrote animals.txt: line 1",
    ]
    assert on_disk(place) == "one\n"


@pytest.mark.anyio
async def test_a_daemon_that_is_killed_while_the_question_waits_leaves_the_old_file(place: Place) -> None:
    place.script(edit("zebra", "lion"), SAID)
    async with place.daemon() as client:
        person = Person(client)
        session = await new_session(client, place)
        await client.start_turn(session, "go")
        await person.question()
        await kill(client)
    async with place.daemon() as client:
        await client.open_session(session)
    assert on_disk(place) == DISK
    assert (await place.verify(session))["differences"] == []


KILLED = """
import os, signal, sys
from refold_server.main import main
def audit(event, given):
    if event == "os.rename" and str(given[0]).startswith(".refold-"):
        os.kill(os.getpid(), signal.SIGKILL)
sys.argv[1:] = ["serve"]
sys.addaudithook(audit)
sys.exit(main())
"""
"""A daemon that dies right before a new file takes the old one's place."""


def test_a_kill_amid_the_write_leaves_the_old_file_and_the_outcome_is_told_as_unknown(place: Place) -> None:
    place.script(edit("zebra", "lion"), SAID, more=ALLOW)
    with editing(place, "-c", KILLED) as editor:
        editor.begin({})
        session = editor.session()
        started = {"session": session, "content": [{"type": "text", "text": "go"}]}
        assert editor.call("turn/start", started)["turn"] == 1
        assert editor.process.wait() in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert on_disk(place) == DISK
    with editing(place) as editor:
        editor.begin({})
        editor.call("session/open", {"session": session})
        assert "outcome is unknown" in editor.results(session)[0]


@pytest.mark.parametrize("clean", [True, False])
def test_e_05_b_an_open_file_is_edited_where_its_text_is(place: Place, clean: bool) -> None:
    place.script(READ, edit("horse", "pony"), SAID, READ, SAID, more=ALLOW)
    with editing(place) as editor:
        editor.begin()
        editor.open(DISK)
        session = editor.session()
        if not clean:
            editor.change(part((1, 4), (1, 9), "lion"), version=2)
        editor.prompt(session, "edit it")
        if clean:
            assert on_disk(place) == DISK.replace("horse", "pony")
            assert asked(editor) == []
            editor.prompt(session, "read it")
            assert editor.results(session)[-1] == "1\ta pony\n2\tthe zebra sleeps"
        else:
            assert on_disk(place) == DISK
            (edits,) = asked(editor)
            assert edits["textDocument"] == {"uri": editor.uri, "version": 2}
            assert edits["edits"] == [{"range": span((0, 2), (0, 7)), "newText": "pony"}]
            assert "[it is open in an editor with unsaved changes" in editor.results(session)[1]
        assert editor.end() == 0


def asked(editor: Editor) -> list[Json]:
    """Give the documents' edits that the editor was asked to make."""
    requests = [one["params"] for one in editor.asked if one["method"] == "workspace/applyEdit"]
    return [change for params in requests for change in params["edit"]["documentChanges"]]


def fill(place: Place, text: str) -> None:
    """Write animals.txt, as somebody else would."""
    (place.workspace / "animals.txt").write_text(text)
