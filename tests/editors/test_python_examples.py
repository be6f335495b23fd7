"""The example programs do what their first lines say, run the way a person runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold_client.blocking import BlockingClient, spawn_blocking
from tests.support.chat_stream import reply, text
from tests.support.commands import Done, finish, places
from tests.support.daemons import SERVE, Place
from tests.support.fake_provider import Answer, FakeProvider, answer
from tests.support.neovim import Ending

EXAMPLES = Path(__file__).parents[2] / "editors" / "python" / "examples"


def start(place: Place, example: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start an example in the place's workspace, with our `refold` on its PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = place.env | places(place) | {"PATH": path}
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=place.workspace, env=env, stdout=pipe, stderr=pipe, bufsize=0)


def ask(place: Place, *arguments: str) -> Done:
    return finish(start(place, "ask.py", *arguments))


def session_of(done: Done) -> str:
    word, name = done.err.strip().split("\n")[-1].split(" ")
    assert word == "session"
    return name


def test_ask_prints_the_answer_and_names_tools_and_the_session(place: Place) -> None:
    place.script({"calls": [{"name": "list_files"}]}, {"text": "There is one file, ü."}, {"text": "Still one."})
    first = ask(place, "What is here?")
    assert (first.code, first.text) == (0, "There is one file, ü.\n")
    assert first.err.startswith("[list_files]\n")
    place.script({"text": "Still one."})
    again = ask(place, "And now?", "--session", session_of(first))
    assert (again.code, again.text, session_of(again)) == (0, "Still one.\n", session_of(first))


def test_ask_tells_by_its_exit_code_how_the_turn_ended(place: Place) -> None:
    place.script({"text": "Half", "finish": "length"})
    assert ask(place, "go").code == 5
    place.script({"status": 400, "text": "no"})
    failed = ask(place, "go")
    assert failed.code == 4
    assert "the turn ended: " in failed.err
    nowhere = ask(place, "go", "--session", "01234567-89ab-7def-8123-456789abcdef")
    assert (nowhere.code, nowhere.text) == (1, "")
    assert nowhere.err.startswith("ask: ")


def test_ask_streams_and_its_interrupt_is_the_turns(place: Place) -> None:
    with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        process = start(place, "ask.py", "go")
        assert process.stdout is not None
        assert process.stdout.read(4) == b"Half"
        process.send_signal(signal.SIGINT)
        done = finish(process)
    assert (done.code, done.text) == (6, "\n")
    log = place.refold("log", session_of(done), "--view", "events", "--json").stdout
    last = json.loads(log.strip().split("\n")[-1])
    assert last["data"]["reason"]["cause"]["kind"] == "user"


@contextmanager
def writer(place: Place, *answers: Answer) -> Generator[BlockingClient]:
    """A daemon that writes what an example follows; it plays these answers."""
    with FakeProvider(*answers) as provider, place.errors.open("ab") as errors:
        place.provider(provider.base_url)
        options = {"store": str(place.store)}
        with spawn_blocking(SERVE, env=place.daemon_env, stderr=errors, options=options) as client:
            yield client


def lines(process: subprocess.Popen[bytes], turns: int = 1) -> list[Any]:
    """Read what a follower prints until so many turns have ended."""
    assert process.stdout is not None
    told: list[Any] = []
    data = b""
    while turns:
        piece = process.stdout.read(1)
        assert piece, process.stderr and process.stderr.read().decode()
        data += piece
        if piece == b"\n":
            told.append(json.loads(data))
            turns -= told[-1]["type"] == "turn/end"
            data = b""
    return told


def child(pid: int) -> int:
    """Give the process id of a process's only child."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    (found,) = (int(one) for task in tasks for one in (task / "children").read_text().split())
    return found


def test_follow_goes_on_behind_its_cursor_when_its_daemon_is_killed_and_when_it_is_started_again(place: Place) -> None:
    with writer(place, *(answer(reply(said)) for said in ("One.", "Two.", "Three."))) as client:
        session: str = client.open_session(cwd=place.workspace)["session"]
        client.prompt(session, "first")
        follower = start(place, "follow.py", session, "cursor.json")
        told = lines(follower)
        os.kill(child(follower.pid), signal.SIGKILL)
        client.prompt(session, "second")
        told += lines(follower)
        serving = Ending(child(follower.pid))
        follower.send_signal(signal.SIGINT)
        done = finish(follower)
        assert (done.code, done.text) == (0, "")
        assert done.err.count("starting another daemon") == 1
        serving.wait()
        client.prompt(session, "third")
        follower = start(place, "follow.py", session, "cursor.json")
        told += lines(follower)
        follower.send_signal(signal.SIGINT)
        assert finish(follower).code == 0
    log = place.refold("log", session, "--view", "events", "--json").stdout
    assert told == [json.loads(line) for line in log.strip().split("\n")][: len(told)]
    assert [event["seq"] for event in told] == list(range(len(told)))


@pytest.mark.parametrize("arguments", [(), ("a",), ("a", "b", "c")])
def test_follow_says_how_it_is_used(place: Place, arguments: tuple[str, ...]) -> None:
    done = finish(start(place, "follow.py", *arguments))
    assert (done.code, done.err) == (2, "usage: follow.py SESSION CURSOR_FILE\n")


def test_follow_ends_when_there_is_no_such_session_or_the_cursor_is_another_ones(place: Place) -> None:
    name = "01234567-89ab-7def-8123-456789abcdef"
    done = finish(start(place, "follow.py", name, "cursor.json"))
    assert (done.code, done.text) == (1, "")
    (place.workspace / "cursor.json").write_text('{"session":"other","after":3,"writer":null}')
    done = finish(start(place, "follow.py", name, "cursor.json"))
    assert done.code == 1
    assert "the cursor of session other" in done.err
