"""`refold log` and `refold export` from a place on, and following what comes."""

from __future__ import annotations

import json
import signal

import pytest

from tests.support.commands import Here, finish, start


@pytest.fixture
def session(refold: Here) -> str:
    """A session of one turn."""
    refold.place.script(*[{"text": "Hi."}] * 3)
    return refold("run", "Hello").session


def test_only_what_lies_behind_a_place_is_shown(refold: Here, session: str) -> None:
    events = refold("log", session, "--view", "events", "--json").lines
    assert refold("log", session, "--view", "events", "--json", "--after", "3").lines == events[4:]
    assert refold("export", session, "--after", "3").lines == events[4:]
    assert refold("export", session).lines[1:] == events
    tail = str(len(events) - 1)
    assert refold("export", session, "--after", tail).out == b""
    entries = refold("log", session, "--json").values
    assert refold("log", session, "--json", "--after", str(entries[0]["seq"])).values == entries[1:]
    nodes = refold("log", session, "--json", "--view", "surface").values
    assert refold("log", session, "--json", "--view", "surface", "--after", str(nodes[0]["seq"])).values == nodes[1:]


def test_a_part_is_written_to_a_file_and_counted(refold: Here, session: str) -> None:
    events = refold("export", session).lines[1:]
    path = refold.place.workspace / "part.jsonl"
    done = refold("export", session, "--after", "3", "--output", "part.jsonl", "--json")
    assert done.values == [{"session": session, "events": len(events) - 4, "damage": None}]
    assert path.read_text(encoding="utf-8").split("\n")[:-1] == events[4:]


def test_what_does_not_go_together_is_refused(refold: Here, session: str) -> None:
    for wrong in (
        ("log", session, "--follow"),
        ("log", session, "--view", "header", "--after", "1"),
        ("export", session, "--after", "1", "--at", "4"),
        ("export", session, "--follow", "--output", "x"),
        ("export", session, "--after", "9999"),
        ("log", session, "--view", "events", "--after", "9999"),
        ("export", session, "--after", "-1"),
    ):
        done = refold(*wrong)
        assert (done.code, done.out) == (2, b""), wrong


@pytest.mark.parametrize("command", ["log", "export"])
def test_whoever_follows_gets_each_event_once_in_order_until_a_signal(refold: Here, session: str, command: str) -> None:
    before = refold.events(session)
    more = ("--view", "events", "--json") if command == "log" else ()
    process = start(refold.place, command, session, *more, "--after", str(len(before) - 2), "--follow")
    assert process.stdout is not None
    taken = [json.loads(process.stdout.readline())]
    assert refold("run", "And now?", "--session", session).code == 0
    wanted = refold.events(session)[len(before) - 1 :]
    while len(taken) < len(wanted):
        taken.append(json.loads(process.stdout.readline()))
    assert taken == wanted
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    assert (done.code, done.out, done.err) == (6, b"", "")
