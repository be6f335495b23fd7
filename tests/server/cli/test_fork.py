"""`refold fork`: a session that begins with another's events, and what is refused."""

from __future__ import annotations

import pytest

from tests.support.commands import Here


@pytest.fixture
def session(refold: Here) -> str:
    """A session of one turn."""
    refold.place.script(*[{"text": "Hi."}] * 3)
    return refold("run", "Hello").session


def test_a_fork_is_named_and_goes_on_behind_its_parents_events(refold: Here, session: str) -> None:
    done = refold("fork", session)
    assert (done.code, done.err) == (0, "")
    (child,) = done.lines
    events = refold.events(session)
    assert refold.events(child) == events
    assert refold("run", "And now?", "--session", child).code == 0
    own = refold.events(child)[len(events) :]
    assert own[0]["data"]["reason"] == "fork"
    assert refold.events(session) == events
    assert refold("verify", child).code == 0


def test_a_fork_can_be_cut_anywhere_and_have_a_title(refold: Here, session: str) -> None:
    (child,) = refold("fork", session, "--at", "4", "--title", "Another way").lines
    events = refold.events(child)
    assert events[:5] == refold.events(session)[:5]
    assert [event["type"] for event in events[5:]][-2:] == ["instance/start", "session/title"]
    rows = refold("sessions", "--json").values
    assert [row["title"] for row in rows] == ["Another way", "Hello"]
    assert rows[0]["parent"]["at"] == 4


def test_what_cannot_be_forked_is_told(refold: Here, session: str) -> None:
    tail = refold.events(session)[-1]["seq"]
    done = refold("fork", session, "--at", str(tail + 1))
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("refold: seq.range: ")
    assert refold("fork", "nobody").code == 2
    for wrong in ("-1", "x", "1.5", ""):
        done = refold("fork", session, f"--at={wrong}")
        assert done.code == 2
        assert "is not the number of an event" in done.err
    assert "a title has 1 to 200 characters" in refold("fork", session, "--title", "").err
    assert len(refold("sessions", "--json").values) == 1
