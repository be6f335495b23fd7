"""Commands on a selection, as a whole daemon: a turn about the selected text, and an edit where that text is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_stream import DONE, chunk, text
from tests.support.daemons import Place
from tests.support.editor import CAPABILITIES, DISK, READ, SAID, Editor, editing, on_disk, part, span
from tests.support.fake_provider import FakeProvider, Gate, answer


def block(new: str) -> Any:
    """Give a reply that puts `new` in the place of the selection."""
    return {"text": f"Here it is.\n\n```replacement\n{new}\n```\n"}


def code_actions(editor: Editor) -> dict[str, Any]:
    """Give the actions on the second line, by command."""
    return {action["command"]["command"]: action for action in editor.actions((1, 0), (2, 0))}


def test_an_explanation_is_a_turn_about_the_selected_text_and_edits_nothing(place: Place) -> None:
    place.script({"text": "It sleeps."})
    with editing(place) as editor:
        editor.begin()
        editor.open("a horse\nthe 🦓 sleeps\n", version=5)
        action = code_actions(editor)["refold.explain"]
        assert (action["title"], action["kind"]) == ("refold: explain selection", "refold.explain")
        started = editor.run("refold.explain", *action["command"]["arguments"])
        assert set(started) == {"session", "input", "turn", "seq"}
        assert editor.until_told("window/showMessage") == {"type": 3, "message": "refold: It sleeps."}
        events = editor.call("session/read", {"session": started["session"], "view": "events"})["events"]
        (accepted,) = [event for event in events if event["type"] == "input/accepted"]
        assert (accepted["seq"], accepted["data"]["input"]) == (started["seq"], started["input"])
        reference = accepted["data"]["content"][1]["text"]
        assert reference.startswith("The selection is animals.txt, line 2 column 1 to line 3 column 1")
        assert "```\nthe 🦓 sleeps\n```" in reference
        (row,) = editor.call("session/list", {"limit": 10})["sessions"]
        assert (row["title"], row["cwd"]) == ("Explain animals.txt:2-3", str(place.workspace))
        assert editor.asked == []
        assert editor.end() == 0


def test_a_clean_buffer_is_edited_on_disk_and_the_editor_is_not_asked(place: Place) -> None:
    place.script(block("the lion sleeps"), READ, SAID)
    with editing(place) as editor:
        editor.begin()
        editor.open(DISK)
        session = editor.session()
        argument = code_actions(editor)["refold.edit"]["command"]["arguments"][0]
        result = editor.run("refold.edit", argument | {"session": session, "wait": True, "instruction": "A lion."})
        assert (result["session"], result["outcome"]["reason"]) == (session, {"kind": "completed"})
        assert result["outcome"]["edit"] == {"path": str(place.workspace / "animals.txt"), "unsaved": False, "version": 1}
        assert on_disk(place) == "a horse\nthe lion sleeps\n"
        assert editor.asked == []
        editor.prompt(session, "read it: the editor has not reloaded it yet")
        assert editor.results(session) == ["1\ta horse\n2\tthe lion sleeps"]


def test_a_dirty_buffer_is_edited_by_the_editor_with_its_version_and_stays_unsaved(place: Place) -> None:
    place.script(block("the lion sleeps"))
    with editing(place) as editor:
        editor.begin()
        editor.open(DISK)
        editor.change("a mare\nthe zebra sleeps\n", version=2)
        argument = code_actions(editor)["refold.fix"]["command"]["arguments"][0]
        result = editor.run("refold.fix", argument | {"wait": True, "diagnostics": ["line 2: no zebra here"]})
        assert result["outcome"]["edit"] == {"path": str(place.workspace / "animals.txt"), "unsaved": True, "version": 2}
        (asked,) = editor.asked
        assert (asked["method"], type(asked["id"])) == ("workspace/applyEdit", int)
        (change,) = asked["params"]["edit"]["documentChanges"]
        assert change["textDocument"] == {"uri": editor.uri, "version": 2}
        assert change["edits"] == [{"range": span((1, 0), (2, 0)), "newText": "the lion sleeps\n"}]
        assert on_disk(place) == DISK


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"text": "It is fine."}, "Nothing was changed: the reply has no replacement."),
        (
            {"text": "```replacement\nhalf"},
            "Nothing was changed: the replacement in the reply is not closed, so it may be cut.",
        ),
        ({"status": 400, "text": "{}"}, "Nothing was changed: the turn was not completed"),
    ],
)
def test_a_reply_that_says_no_edit_changes_nothing_and_the_person_is_told(place: Place, reply: Any, said: str) -> None:
    place.script(reply)
    with editing(place) as editor:
        editor.begin()
        editor.open(DISK)
        editor.run("refold.fix", editor.argument((1, 0), (2, 0)))
        message = editor.until_told("window/showMessage")
        assert message["type"] == 2
        assert message["message"].startswith(f"refold: {said}")
        assert (on_disk(place), editor.asked) == (DISK, [])


def test_an_edit_that_the_editor_refuses_is_told_with_its_reason(place: Place) -> None:
    place.script(block("x"))
    with editing(place) as editor:
        editor.begin()
        editor.answers["workspace/applyEdit"] = {"applied": False, "failureReason": "version 9 now"}
        editor.open("unsaved\n")
        editor.run("refold.edit", editor.argument((0, 0), (1, 0)))
        assert editor.until_told("window/showMessage")["message"].endswith("animals.txt: version 9 now.")


def test_e05_what_is_typed_while_the_model_thinks_is_kept(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(gate, text(block("the lion sleeps")["text"]), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with editing(place) as editor:
            editor.begin()
            editor.open(DISK)
            editor.run("refold.edit", editor.argument((1, 0), (2, 0), version=1))
            editor.change(part((0, 0), (0, 0), "first\n"), version=2)
            assert editor.actions((0, 0), (0, 0)) == [], "so the change was taken in"
            gate.open()
            (change,) = editor.until_asked("workspace/applyEdit")["edit"]["documentChanges"]
            assert change["textDocument"]["version"] == 2
            assert change["edits"] == [{"range": span((2, 0), (3, 0)), "newText": "the lion sleeps\n"}]
            assert editor.until_told("window/showMessage")["message"].endswith("animals.txt in the editor; it is unsaved.")


def test_a_selection_of_an_older_version_is_refused_and_begins_nothing(place: Place) -> None:
    with editing(place) as editor:
        editor.begin()
        editor.open(DISK)
        editor.change("other\n", version=2)
        refused = editor.run("refold.edit", editor.argument((0, 0), (1, 0), version=1))
        assert (refused["code"], "version 2 now" in refused["message"]) == (-32801, True)
        assert editor.call("session/list", {"limit": 10})["sessions"] == []


def test_a_command_in_a_session_that_is_busy_or_unknown_is_refused_as_turn_start_is(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(gate, text("Hello."), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with editing(place) as editor:
            editor.begin()
            editor.open(DISK)
            session = editor.session()
            editor.call("turn/start", {"session": session, "content": [{"type": "text", "text": "hello"}]})
            busy = editor.run("refold.explain", editor.argument((0, 0), (1, 0), session=session))
            assert (busy["code"], busy["data"]["kind"]) == (-31000, "session.busy")
            unknown = editor.run(
                "refold.explain", editor.argument((0, 0), (1, 0), session="018f0000-0000-7000-8000-000000000001")
            )
            assert unknown["data"]["kind"] == "session.unknown"
            gate.open()
            editor.call("turn/wait", {"session": session, "turn": 1})
            assert editor.end() == 0


def test_a_document_outside_of_the_folders_is_asked_about_in_its_own_folder(place: Place) -> None:
    place.script(SAID)
    other = place.root / "other" / "notes.txt"
    other.parent.mkdir()
    other.write_text("notes\n")
    with editing(place) as editor:
        editor.begin()
        editor.open("notes\n", uri=other.as_uri())
        argument = {"uri": other.as_uri(), "range": span((0, 0), (1, 0)), "wait": True}
        session = editor.run("refold.explain", argument)["session"]
        info = editor.call("session/open", {"session": session, "mode": "read"})["info"]
        assert Path(info["cwd"]) == other.parent


def test_nothing_is_edited_when_the_editor_has_gone(place: Place) -> None:
    """`onDisconnect: finish` lets the step end well; its edit is for nobody."""
    gate = Gate()
    with FakeProvider(answer(gate, text(block("the lion sleeps")["text"]), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url, '[log]\nlevel = "info"\n')
        with editing(place) as editor:
            editor.begin()
            editor.open(DISK)
            started = editor.run("refold.edit", editor.argument((1, 0), (2, 0)))
            editor.process.close_input()
            editor.process.error_line(b"the connection ends: inputEnded")
            gate.open()
            editor.process.read_to_end()
            assert editor.process.wait() == 1
    end = asyncio.run(place.recorded(started["session"]))[-1]
    assert (end["type"], end["data"]["reason"]) == ("turn/end", {"kind": "completed"})
    assert on_disk(place) == DISK


WITH_PROGRESS: Any = CAPABILITIES | {"window": {"workDoneProgress": True}}


def progress(editor: Editor, token: str) -> list[str]:
    """Read until the progress of `token` ends; give its kinds and messages."""
    seen: list[str] = []
    while not (seen and seen[-1].startswith("end")):
        params = editor.until_told("$/progress")
        if params["token"] == token:
            value = params["value"]
            seen.append(f"{value['kind']} {value.get('title') or value.get('message')}")
    return seen


def test_the_progress_of_a_command_is_shown_by_the_client_s_token(place: Place) -> None:
    place.script({"text": "It sleeps."})
    with editing(place) as editor:
        editor.begin()
        editor.open(DISK)
        assert editor.capabilities["executeCommandProvider"]["workDoneProgress"]
        params = {"command": "refold.explain", "arguments": [editor.argument((0, 0), (1, 0))], "workDoneToken": "mine"}
        editor.call("workspace/executeCommand", params)
        assert progress(editor, "mine") == [
            "begin refold: explain selection",
            "report step 1: waiting for the model",
            "end completed",
        ]
        assert editor.asked == []


def test_without_a_token_the_client_is_asked_for_one_and_its_button_stops_the_turn(place: Place) -> None:
    """The button is LSP's: whoever presses it is still a client that uses nothing but LSP."""
    gate = Gate()
    with FakeProvider(answer(gate, text("Hello."), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with editing(place) as editor:
            editor.begin(WITH_PROGRESS)
            editor.answers["window/workDoneProgress/create"] = None
            editor.open(DISK)
            started = editor.run("refold.explain", editor.argument((0, 0), (1, 0)))
            token = editor.until_asked("window/workDoneProgress/create")["token"]
            while editor.until_told("$/progress")["value"]["kind"] != "report":
                pass
            editor.process.notify("window/workDoneProgress/cancel", {"token": token})
            assert progress(editor, token) == ["end aborted"]
            assert editor.until_told("window/showMessage")["message"] == "refold: The reply has no text."
            assert not [message for message in editor.told if message["method"].startswith("session")]
    end = asyncio.run(place.recorded(started["session"]))[-1]
    assert end["data"]["reason"]["kind"] == "aborted"


def test_a_client_that_refuses_progress_has_its_command_run(place: Place) -> None:
    place.script({"text": "It sleeps."})
    with editing(place) as editor:
        editor.begin(WITH_PROGRESS)
        editor.answers["window/workDoneProgress/create"] = ["no", "answer of this shape"]
        editor.open(DISK)
        result = editor.run("refold.explain", editor.argument((0, 0), (1, 0), wait=True))
        assert result["outcome"]["text"] == "It sleeps."


def test_a_waiting_command_that_is_cancelled_ends_its_turn(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(gate, text("Hello."), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with editing(place) as editor:
            editor.begin()
            editor.open(DISK)
            session = editor.session()
            argument = editor.argument((0, 0), (1, 0), session=session, wait=True)
            request = editor.process.request("workspace/executeCommand", {"command": "refold.explain", "arguments": [argument]})
            while not provider.requests:
                editor.call("session/list", {"limit": 1})
            editor.process.notify("$/cancelRequest", {"id": request})
            assert editor.process.reply(request)["error"]["code"] == -32800
            end = editor.call("turn/wait", {"session": session, "turn": 1})
            assert end["data"]["reason"]["kind"] == "aborted"


def test_a_client_that_takes_edits_only_while_it_waits_says_so_once(place: Place) -> None:
    place.script(block("the lion sleeps"))
    with editing(place) as editor:
        editor.begin(initializationOptions={"store": str(place.store), "waitForCommands": True})
        editor.open(DISK)
        editor.change("a mare\nthe zebra sleeps\n", version=2)
        result = editor.run("refold.edit", editor.argument((1, 0), (2, 0)))
        assert result["outcome"]["edit"]["unsaved"]
        assert [asked["method"] for asked in editor.asked] == ["workspace/applyEdit"], "it came before the reply"


def test_an_editor_is_told_of_a_clean_buffer_that_a_tool_edited_on_disk(place: Place) -> None:
    change = {"name": "edit_file", "arguments": {"path": "animals.txt", "old": "zebra", "new": "lion"}}
    place.script({"calls": [change]}, SAID, more='[permissions]\nmode = "allow"\n')
    with editing(place) as editor:
        editor.begin()
        editor.open(DISK)
        editor.run("refold.explain", editor.argument((0, 0), (1, 0)))
        path = place.workspace / "animals.txt"
        assert editor.until_told("window/showMessage")["message"] == (
            f"refold: {path} was edited on disk; an editor that does not reload it by itself shows the old text."
        )
