"""Plugins and commands: a run without a daemon is guarded too, output stays clean, and doctor tells what is loaded."""

from __future__ import annotations

import json

import pytest

from refold_server.cli.cli_doctor import report_lines
from refold_server.cli.doctor_findings import ConfigInForce, Examination, PluginState, Versions
from refold_server.cli.terminal import Style
from tests.support.commands import Here, there
from tests.support.plugin_files import named, write_plugin, write_tools

GUARD = """
from refold_server.plugins import PRE_EXECUTE, Deny
print("at import")
def register(registry):
    async def guard(call):
        print("in a handler")
        return Deny("no reading here") if call.name == "read_file" else None
    registry.on(PRE_EXECUTE, guard)
"""
READ = {"text": "I look.", "calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}, "id": "c0"}]}


def test_a_run_without_a_daemon_is_guarded_and_its_output_is_the_log_alone(refold: Here) -> None:
    refold.place.script(READ, {"text": "I stop."}, more=named(write_plugin(refold.place, "guard", GUARD)))
    done = refold("run", "read it", "--json")
    assert done.code == 0
    (result,) = (row["data"] for row in done.values if row.get("type") == "tool/result")
    assert result["content"] == [{"type": "text", "text": "no reading here"}]
    assert (result["isError"], result["error"]["code"]) == (True, "DENIED")
    assert "at import" in done.err
    assert "in a handler" in done.err


def test_the_demo_is_guarded_and_proves_itself(refold: Here) -> None:
    refold.place.configure(named(write_plugin(refold.place, "guard", GUARD)))
    done = refold("demo", "Which animal sleeps?")
    assert done.code == 0
    assert "no reading here" in done.text
    assert "in a handler" not in done.text


def test_a_body_is_rebuilt_to_the_byte_whatever_a_plugin_prints(refold: Here) -> None:
    refold.place.script({"text": "ok"}, more=named(write_plugin(refold.place, "guard", GUARD)))
    session = refold("run", "go").session
    done = refold("rebuild", session, "1.1")
    assert json.loads(done.out)["messages"]
    assert "at import" in done.err


def test_a_plugin_that_cannot_be_used_stops_a_command_with_a_sentence_and_no_store_is_made(refold: Here) -> None:
    path = write_plugin(refold.place, "bad", "1 / 0")
    refold.place.script({"text": "ok"}, more=named(path))
    done = refold("run", "go")
    assert (done.code, done.out) == (2, b"")
    reason = f"the plugin of {path} cannot be used: cannot be imported: ZeroDivisionError: division by zero"
    assert done.err == f"refold: config.invalid: plugins.paths: {reason} ({refold.place.config}, line 2)\n"
    assert not refold.place.store.exists()


def test_a_list_of_sessions_needs_no_plugin(refold: Here) -> None:
    refold.place.script({"text": "ok"})
    session = refold("run", "go").session
    refold.place.configure('tools.enabled = ["note"]\n' + named(write_plugin(refold.place, "bad", "1 / 0")))
    done = refold("sessions", "--json")
    assert done.code == 0
    assert session in done.text


def test_doctor_tells_which_plugins_are_loaded_and_which_cannot_be(refold: Here) -> None:
    good = write_tools(refold.place, "x", "z", "a")
    guard = write_plugin(refold.place, "guard", GUARD)
    bad = write_plugin(refold.place, "bad", "1 / 0")
    refold.place.configure(named(good, bad, guard))
    (told,) = refold("doctor", "--json").values
    assert told["plugins"] == [
        {"origin": str(good), "plugin": "x", "tools": ["z", "a"]},
        {"origin": str(bad)},
        {"origin": str(guard), "plugin": "guard", "seams": ["tools/pre-execute"]},
    ]
    done = refold("doctor")
    assert done.code == 1
    assert f"plugin    {bad} (cannot be loaded)" in done.lines
    assert f"plugin    guard: seams tools/pre-execute ({guard})" in done.lines
    assert any(line.startswith("✗ plugins.paths: ") and "ZeroDivisionError" in line for line in done.lines)
    assert "at import" in done.err


def test_one_that_never_ends_its_import_keeps_no_command(refold: Here) -> None:
    place = refold.place
    path = write_plugin(place, "slow", "import threading\nthreading.Event().wait()\n")
    place.configure(f"{named(path)}load_timeout_s = 0.1\n")
    reason = f"plugins.paths: the plugin of {path} cannot be used: it is still being loaded after 0.1 s; "
    done = there(place, "run", "go")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"refold: config.invalid: {reason}")
    done = there(place, "doctor", "--json")
    assert (done.code, done.err) == (1, "")
    (finding,) = done.values[0]["findings"]
    assert finding["message"].startswith(reason)


def test_doctor_tells_of_a_tool_that_nobody_brings(refold: Here) -> None:
    refold.place.configure('tools.enabled = ["zz"]\n' + named(write_tools(refold.place, "x", "z", "a")))
    done = refold("doctor", "--json")
    assert done.code == 1
    (finding,) = done.values[0]["findings"]
    assert finding["message"].startswith("tools.enabled: there is no tool 'zz'; did you mean 'z'?")


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (PluginState("/p.py"), "plugin    /p.py (cannot be loaded)"),
        (PluginState("/p.py", "p"), "plugin    p: brings nothing (/p.py)"),
        (
            PluginState("/p.py", "p", ("a", "b"), ("p/x",), ("log/observe",)),
            "plugin    p: tools a, b; event types p/x; seams log/observe (/p.py)",
        ),
    ],
)
def test_a_plugin_is_told_in_one_line(state: PluginState, line: str) -> None:
    facts = Examination(Versions("0", "3", "1", "0"), ConfigInForce("/c", True), plugins=(state,))
    assert line in list(report_lines(facts, Style(colour=False)))


def test_a_plugin_that_cannot_be_loaded_keeps_nobody_from_reading_a_session(refold: Here) -> None:
    refold.place.script({"text": "It sleeps."})
    session = refold("run", "Does it sleep?").session
    bad = write_plugin(refold.place, "bad", "raise ValueError('not today')")
    refold.place.configure(named(bad))
    for command in ("log", "verify", "cache", "meter", "requests", "prefix"):
        done = refold(command, session)
        assert done.code == 0, (command, done.err)
        assert "not today" in done.err
        assert "goes on without it" in done.err
    assert refold("run", "again", "--session", session).code == 2
