"""`refold log`: four views for people and programs, of logs that are finished, being written, or were left by a kill."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from refold_protocol.session.codec import decode_event
from tests.support.chat_stream import call as call_entry
from tests.support.chat_stream import calls, text
from tests.support.commands import Done, Here, finish, start
from tests.support.copies import copied, unchanged
from tests.support.fake_provider import FakeProvider, Gate, answer

VIEWS = ("transcript", "surface", "events", "header")
LOOK = {"text": "I look.", "reasoning": "Hm.", "calls": [{"name": "list_files", "id": "c0"}]}
REPLY = {"text": "Two animals.\x1b[2J"}


@pytest.fixture
def session(refold: Here) -> str:
    """A session with one turn of two steps."""
    refold.place.script(LOOK, REPLY)
    return refold("run", "How many?").session


def test_the_transcript_is_what_a_person_reads(refold: Here, session: str) -> None:
    done = refold("log", session)
    assert done.lines == [
        "> How many?",
        "Hm.",
        "I look.",
        "→ list_files {}",
        "│ animals.txt",
        "Two animals.\\x1b[2J",
    ]
    assert refold("log", session, "--view", "transcript").out == done.out


def test_the_transcript_for_programs_is_one_entry_a_line(refold: Here, session: str) -> None:
    entries = refold("log", session, "--json").values
    assert [entry["kind"] for entry in entries] == ["user", "assistant", "tool", "assistant"]
    assert entries[2]["tool"] == "list_files"
    assert entries[3]["content"] == [{"type": "text", "text": "Two animals.\x1b[2J"}]


def test_the_surface_is_what_the_model_sees(refold: Here, session: str) -> None:
    lines = refold("log", session, "--view", "surface").lines
    assert [line.split(" ")[-1] for line in lines if re.match(r" +\d+ \w+/", line)] == [
        "user/message",
        "assistant/message",
        "tool/result",
        "assistant/message",
    ]
    assert "→ list_files {}  [c0]" in lines
    assert "user: │ animals.txt  [c0]" in lines
    nodes = refold("log", session, "--view", "surface", "--json").values
    assert [node["message"]["role"] for node in nodes] == ["user", "assistant", "user", "assistant"]


def test_the_events_for_programs_are_the_stored_lines(refold: Here, session: str) -> None:
    lines = refold("log", session, "--view", "events", "--json").lines
    assert [decode_event(line.encode()).seq for line in lines] == list(range(len(lines)))
    assert all(json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":")) == line for line in lines)


def test_each_event_is_one_line_for_a_person_however_long_it_is(refold: Here) -> None:
    refold.place.script({"text": "x" * 100_000 + "\n\x1b[2J", "chunk": 1_000_000})
    session = refold("run", "go").session
    lines = refold("log", session, "--view", "events").lines
    assert [int(line[:6]) for line in lines] == list(range(len(lines)))
    assert max(map(len, lines)) <= 6 + 1 + 18 + 1 + 140
    assert lines[-1].split() == [str(len(lines) - 1), "turn/end", "completed"]


def test_the_header_is_what_every_request_begins_with(refold: Here, session: str) -> None:
    done = refold("log", session, "--view", "header")
    assert done.lines[0] == "config"
    assert "tool list_files" in done.lines
    (header,) = refold("log", session, "--view", "header", "--json").values
    assert header["config"]["model"] == "workspace"
    assert header["system"] in done.text


def test_a_log_without_a_request_has_no_header(refold: Here, session: str) -> None:
    begun = copied(refold.place, session, unchanged, count=3)
    assert refold("log", begun, "--view", "header").lines == ["no request was made yet"]
    assert refold("log", begun, "--view", "header", "--json").values == [None]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_look_writes_nothing(refold: Here, session: str, view: str, form: list[str]) -> None:
    before = refold.events(session)
    done = refold("log", session, "--view", view, *form)
    assert (done.code, done.err) == (0, "")
    assert refold("log", session, "--view", view, *form).out == done.out
    assert refold.events(session) == before


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """A provider that plays what the test says."""
    with FakeProvider() as played:
        yield played


CALL = calls(call_entry(0, "c0", "list_files", "{}"))


@pytest.mark.parametrize("end", ["writing", "killed"])
def test_c01_a_turn_that_is_open_is_balanced_in_memory_only_when_nobody_writes_it(
    refold: Here, provider: FakeProvider, end: str
) -> None:
    gate = Gate()
    provider.play([answer(text("Half a sent"), gate, CALL, end="hang")])
    refold.place.provider(provider.base_url)
    process = start(refold.place, "run", "go", "--json", bufsize=0)
    assert process.stdout is not None
    session = Done(0, process.stdout.readline(), "").session
    gate.reached.wait()
    while not any("Half a sent" in json.dumps(event) for event in refold.events(session)):  # committed in its own time
        assert process.poll() is None
    if end == "killed":
        process.send_signal(signal.SIGKILL)
        finish(process)
    events = refold.events(session)
    assert events[-1]["type"] == "assistant/chunk"  # what is recorded, and nothing else
    surface = refold("log", session, "--view", "surface", "--json").values
    transcript = refold("log", session, "--json").values
    if end == "killed":
        assert [node["type"] for node in surface] == ["user/message", "assistant/message"]
        assert surface[1]["message"]["content"] == [{"type": "text", "text": "Half a sent"}]
        assert refold("log", session).lines == [
            "> go",
            "Half a sent [interrupted]",
            "[turn 1 was interrupted: its process ended first]",
        ]
        assert [entry["kind"] for entry in transcript] == ["user", "assistant", "end"]
    else:
        assert [node["type"] for node in surface] == ["user/message"]
        assert refold("log", session).lines == ["> go"]
        assert [entry["kind"] for entry in transcript] == ["user"]
    for view in VIEWS:
        assert refold("log", session, "--view", view).code == 0
    assert refold("verify", session).code == 0
    assert refold.events(session) == events
    if end == "writing":
        process.send_signal(signal.SIGINT)
        assert finish(process).code == 6


def test_a_session_that_another_process_writes_can_be_read_and_not_continued(refold: Here, provider: FakeProvider) -> None:
    gate = Gate()
    provider.play([answer(text("Half a sent"), gate, end="hang")])
    refold.place.provider(provider.base_url)
    process = start(refold.place, "run", "go", "--json", bufsize=0)
    assert process.stdout is not None
    session = Done(0, process.stdout.readline(), "").session
    gate.reached.wait()
    owned = refold("run", "me too", "--session", session)
    assert (owned.code, owned.out) == (7, b"")
    assert owned.err.startswith(f"refold: session.owned: process {process.pid} on ")
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 6
