"""`refold run` with a real inference engine behind it, and the proof of what it sent by another command."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.daemons import Json, Place, types
from tests.support.engine import chain_engine
from tests.support.engine_models import SPOKEN
from tests.support.prefixes import without_opener

pytestmark = pytest.mark.engine


def verified(place: Place, session: str) -> str:
    """The line that `refold verify` prints of a session."""
    done = place.refold("verify", session)
    assert done.returncode == 0, done.stdout
    return done.stdout


def events_of(done: subprocess.CompletedProcess[str]) -> tuple[str, list[Json]]:
    """The session and the events that `refold run --json` printed."""
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.split("\n")[:-1]
    return json.loads(first)["session"], [json.loads(line) for line in rest]


def test_a_person_reads_the_reply_and_the_name_of_the_session(place: Place) -> None:
    with chain_engine(place.root, "read_file", {"path": "animals.txt"}) as base_url:
        place.provider(base_url, name="engine")
        done = place.refold("run", "Which animal sleeps?")
        assert done.returncode == 0, done.stderr
        said, named = done.stdout.rstrip("\n").split("\n")
        assert said == SPOKEN
        word, session = named.split(" ")
        assert word == "session"
        assert "read_file" in done.stderr
        assert "verified 2/2 requests" in verified(place, session)

        again = place.refold("run", "Are you sure?", "--session", session)
        assert again.returncode == 0, again.stderr
        assert again.stdout == done.stdout
        assert "verified 4/4 requests" in verified(place, session)


def test_a_program_reads_events_and_the_log_has_the_same(place: Place) -> None:
    with chain_engine(place.root, "search_text", {"pattern": "zebra"}) as base_url:
        place.provider(base_url, name="engine")
        session, told = events_of(place.refold("run", "Where is the zebra?", "--json"))
        same, more = events_of(place.refold("run", "And now?", "--json", "--session", session))
    assert same == session
    shown = place.refold("log", session, "--view", "events", "--json")
    assert [json.loads(line) for line in shown.stdout.split("\n")[:-1]] == told + more
    assert types(told)[-1] == types(more)[-1] == "turn/end"
    (result,) = [event["data"] for event in told if event["type"] == "tool/result"]
    assert result["content"][0]["text"] == "animals.txt:2: the zebra sleeps"
    assert "verified 4/4 requests" in verified(place, session)


def test_a_rebuilt_body_is_what_the_engine_would_get_again(place: Place) -> None:
    """Its length and digest are those that were recorded when it was sent."""
    with chain_engine(place.root) as base_url:
        place.provider(base_url, name="engine")
        session, told = events_of(place.refold("run", "What is here?", "--json"))
    sent = [event["data"] for event in told if event["type"] == "request/sent"]
    for data in sent:
        body = place.refold("rebuild", session, f"{data['turn']}.{data['step']}").stdout
        assert len(body.encode()) == data["bytes"]
        assert without_opener(json.loads(body)["messages"][1:])[0] == {"role": "user", "content": "What is here?"}
