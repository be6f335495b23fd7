"""`refold run` and calls that change something: asked on a terminal, denied without one, and as --permissions says.

Invariant: What was typed before a question is no answer to it; without a terminal a call is denied.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import TextIO

import anyio
import pytest

from refold_protocol.session.messages import text_content
from refold_server.cli.approval_prompt import ApprovalPrompt
from refold_server.cli.terminal import AsyncOutputStream
from refold_server.cli.turn_output import TurnPrinter
from tests.support.approval_files import CHANGER, change, changed, changing, course, decisions
from tests.support.chat_stream import call, calls, chunk, reply
from tests.support.commands import Here, there
from tests.support.daemons import Json, Place
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loop_host import calls as calls_of
from tests.support.loops import CLIENT, echo, scripted_session
from tests.support.plugin_files import named, results, write_plugin
from tests.support.terminal import Terminal, on_terminal

SAY: Json = {"text": "Done."}
TERMINAL: Json = {"kind": "cli", "name": "terminal"}
NO_TERMINAL: Json = {"kind": "cli", "name": "no terminal"}
PROMPT = "May change run? y: once, s: for this session, N: no > "


def session_of(terminal: Terminal) -> str:
    """The session that the last line names."""
    word, name = terminal.shown.rstrip("\n").split("\n")[-1].split(" ")
    assert word == "session"
    return name


def recorded(place: Place, session: str) -> list[Json]:
    return asyncio.run(place.recorded(session))


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("y\n", ("allowed", "once")),
        ("YES\n", ("allowed", "once")),
        ("s\n", ("allowed", "session")),
        ("n\n", ("denied", "once")),
        ("\n", ("denied", "once")),
        ("\x04", ("denied", "once")),
        ("sure\n no \n", ("denied", "once")),
    ],
    ids=repr,
)
def test_a_person_is_asked_in_the_place_of_the_call_and_the_default_is_no(
    place: Place, typed: str, decision: tuple[str, str]
) -> None:
    changing(place, change(), SAY)
    with on_terminal(place, "run", "go") as terminal:
        shown = terminal.until(PROMPT)
        assert shown == ('I change it.\n→ change {"line":"one"}\n? change asks to run\nchange {"line":"one"}\n' + PROMPT), (
            "what came before stands above, on lines of its own"
        )
        assert changed(place) == []
        for line in typed.splitlines(keepends=True):  # a terminal hands over one line at a time
            terminal.types(line)
            if line == "sure\n":
                terminal.until(f"sure\n{PROMPT}")
        assert terminal.end() == 0
        behind = terminal.shown.removeprefix(shown)
        events = recorded(place, session_of(terminal))
    assert decisions(events) == [(*decision, TERMINAL)]
    assert changed(place) == (["one"] if decision[0] == "allowed" else [])
    denied = "" if decision[0] == "allowed" else "✗ The user did not allow this call of change. It did not run.\n"
    assert behind.replace("\x04", "").split("\n", 1)[1].endswith(f"{denied}Done.\nsession {events and session_of(terminal)}\n")


def test_what_was_typed_before_a_question_is_no_answer(place: Place) -> None:
    changing(place, change(), SAY)
    with on_terminal(place, "run", "go") as terminal:
        terminal.types("y\n")
        terminal.until(PROMPT)
        terminal.types("n\n")
        assert terminal.end() == 0
    assert changed(place) == []


def test_ctrl_c_at_a_question_interrupts_the_turn(place: Place) -> None:
    changing(place, change(), SAY)
    with on_terminal(place, "run", "go") as terminal:
        terminal.until(PROMPT)
        terminal.types("\x03")
        assert terminal.end() == 6
        events = recorded(place, session_of(terminal))
    assert [row[0] for row in decisions(events)] == ["cancelled"]
    assert results(events)[0]["error"]["code"] == "ABORTED_BEFORE_DISPATCH"
    assert f"{PROMPT}^C\n" in terminal.shown, "what follows begins on a line of its own"
    assert "turn was stopped by the user\n" in terminal.shown
    assert changed(place) == []


def test_a_terminal_that_goes_away_at_a_question_ends_the_turn(place: Place) -> None:
    changing(place, change(), SAY)
    with on_terminal(place, "run", "go", stdout=subprocess.DEVNULL) as terminal:
        terminal.until(PROMPT)
        terminal.process.send_signal(signal.SIGHUP)
        terminal.end()
    assert changed(place) == []
    events = recorded(place, there(place, "sessions", "--json").values[0]["session"])
    assert [row[0] for row in decisions(events)] == ["cancelled"]


def test_a_question_that_nobody_answers_in_time_is_left_while_the_turn_goes_on(place: Place) -> None:
    gate = Gate()
    wanted = calls(call(0, "c1", "change", '{"line":"one"}')) + chunk({}, "tool_calls")
    with FakeProvider(answer(wanted), answer(gate, reply("Done."))) as provider:
        more = "permissions.approval_timeout_s = 0.3\n" + named(write_plugin(place, "changer", CHANGER))
        place.provider(provider.base_url, more)
        with on_terminal(place, "run", "go") as terminal:
            terminal.until(f"{PROMPT}\n✗ Nobody answered within 0.3 s whether change may run, so it did not.\n")
            gate.open()
            assert terminal.end() == 0
    assert changed(place) == []


def nowhere() -> TextIO:
    """A stream that nobody reads."""
    return Path(os.devnull).open("w")


@pytest.mark.anyio
async def test_when_the_turn_is_over_nothing_is_asked_any_more() -> None:
    """However it ended: also where no decision could be recorded."""
    host = ScriptedHost(ScriptedProvider(calls_of(("c1", "write", "{}")), says("done")), {"write": echo})
    host.alone = host.asking = {"write"}
    keyboard = os.openpty()
    with nowhere() as nothing:
        async with scripted_session(host) as session:
            outlet = AsyncOutputStream(nothing, best_effort=True)
            asker = ApprovalPrompt(session, TurnPrinter(outlet, outlet), keyboard[1])
            asked = anyio.Event()
            session.instance.approvals.watch(lambda _: asked.set(), lambda _: None)
            await session.start(text_content("go"), CLIENT)
            await asked.wait()
            event = list(session.session_log.handle.read())[-1]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asker.show, [event])
                await anyio.wait_all_tasks_blocked()
                asker.stop()
            await asker.show([event])
            assert len(session.instance.approvals.open) == 1
    for one in keyboard:
        os.close(one)


def test_a_program_s_output_holds_no_question(place: Place) -> None:
    changing(place, change(), SAY)
    out = place.root / "out.jsonl"
    with out.open("wb") as file, on_terminal(place, "run", "go", "--json", stdout=file) as terminal:
        terminal.until(PROMPT)
        terminal.types("y\n")
        assert terminal.end() == 0
    lines = out.read_text().split("\n")
    assert lines[0].startswith('{"session"')
    assert lines[-2].startswith('{"type":"turn/end"')
    assert changed(place) == ["one"]


def test_without_a_terminal_a_call_is_denied_and_it_is_said_once_how_to_allow_it(refold: Here) -> None:
    place = refold.place
    changing(place, change("one"), change("two", "c2"), SAY)
    done = refold("run", "go")
    assert done.code == 0
    assert done.err.count("✗ Nobody could be asked whether change may run, so it did not.") == 2
    hint = "refold: a call was denied: there is no terminal on which somebody could be asked whether it may run; "
    assert done.err.count(hint + "--permissions allow lets such calls run\n") == 1
    events = refold.events(done.session)
    assert decisions(events) == [("denied", "once", NO_TERMINAL)] * 2
    assert changed(place) == []
    assert refold("verify", done.session).code == 0


def test_b03_the_hint_stands_beside_a_program_s_output_too(refold: Here) -> None:
    changing(refold.place, change(), SAY)
    done = refold("run", "go", "--json")
    assert done.values[-1]["type"] == "turn/end"
    assert "--permissions allow lets such calls run" in done.err


@pytest.mark.parametrize(("mode", "did"), [("allow", ["one"]), ("deny", [])])
def test_permissions_are_said_on_the_command_line_and_kept_by_the_session(refold: Here, mode: str, did: list[str]) -> None:
    place = refold.place
    changing(place, change(), SAY)
    first = refold("run", "go", "--permissions", mode)
    assert changed(place) == did
    assert refold.events(first.session)[1]["data"]["permissions"] == {"mode": mode}
    changing(place, change("two"), SAY)
    second = refold("run", "go on", "--session", first.session)
    events = refold.events(first.session)
    assert second.code == 0
    assert len(changed(place)) == 2 * len(did)
    assert course(events) == ["tool/call", "tool/result"] * 2, "nobody was asked"


def test_permissions_of_a_session_that_goes_on_are_changed_and_the_model_is_told(refold: Here) -> None:
    place = refold.place
    changing(place, change("one"), SAY)
    session = refold("run", "go").session
    changing(place, change("two"), SAY)
    done = refold("run", "go on", "--session", session, "--permissions", "allow")
    assert done.code == 0
    assert changed(place) == ["two"]
    told = [event for event in refold.events(session) if event["type"] == "context/message"]
    assert "Permissions changed" in told[-1]["data"]["content"][0]["text"]
    count = len([event for event in refold.events(session) if event["type"] == "session/settings"])
    changing(place, SAY)
    refold("run", "again", "--session", session, "--permissions", "allow")
    after = [event for event in refold.events(session) if event["type"] == "session/settings"]
    assert len(after) == count, "a setting that is in force is not recorded again"


def test_the_log_says_what_was_asked_and_what_was_decided(refold: Here) -> None:
    changing(refold.place, change("\x1b[2J"), SAY)
    session = refold("run", "go").session
    lines = refold("log", session, "--view", "events").text
    assert 'approval/asked     may change run? change {"line":"\\u001b[2J"}\n' in lines
    assert "approval/decided   denied (cli: no terminal)\n" in lines
    assert "Nobody could be asked" in refold("log", session).text


def test_a_prompt_from_standard_input_leaves_nobody_to_ask(place: Place) -> None:
    changing(place, change(), SAY)
    end = os.openpty()
    done = there(place, "run", "-", given=b"go", stderr=end[1])
    for one in end:
        os.close(one)
    assert done.code == 0
    assert changed(place) == []
