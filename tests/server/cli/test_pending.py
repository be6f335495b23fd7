"""Inputs that wait since a crash, on the command line: named and not run, run by --pending, taken back by --withdraw."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from refold_protocol.ids import InputId, SessionId
from refold_protocol.session.events import Draft, InputAccepted, InstanceStart
from refold_protocol.session.messages import Source, text_content
from refold_server.clock import uuid7
from refold_server.sessions.session_settings import PERMISSIONS
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import open_store
from tests.support.commands import Done, Here
from tests.support.daemons import Place

REPLY = {"text": "Forty-two."}
HINT = "(refold run --session s1 --pending runs the oldest, refold run --session s1 --withdraw takes back all that waits)\n"
FEED, ROOF = InputId("feed"), InputId("roof")
SAYS = {FEED: "Feed the\nzebra\x1b", ROOF: "Mend the roof"}
CLI = Source("cli")


def crashed(place: Place, *waiting: InputAccepted) -> None:
    """Make session s1, whose process ended when it had accepted some inputs."""

    async def make() -> None:
        store = await open_store(place.store, new_uuid=uuid7)
        handle = await store.create(NewSession(SessionId("s1"), str(place.workspace), 1_000))
        handle.append([Draft(InstanceStart(1, "new")), *(Draft(one) for one in waiting)])
        await store.close()

    anyio.run(make)


def accepted(given: InputId, mode: str = "prompt") -> InputAccepted:
    return InputAccepted(given, mode, text_content(SAYS[given]), CLI)


def told(refold: Here, kind: str) -> list[Any]:
    """Data of the session's events of a type."""
    return [event["data"] for event in refold.events("s1") if event["type"] == kind]


def texts(refold: Here) -> list[str]:
    """What was asked in the session's turns."""
    return [one["content"][0]["text"] for one in told(refold, "user/message") if one["source"]["kind"] == "cli"]


@pytest.fixture
def two(refold: Here) -> Here:
    """Commands beside session s1, in which two inputs wait."""
    crashed(refold.place, accepted(FEED), accepted(ROOF, "steer"))
    refold.place.script(*[REPLY] * 2)
    return refold


def proved(refold: Here) -> None:
    done = refold("verify", "s1", "--strict")
    assert done.code == 0, done.text


def test_an_input_that_waits_since_a_crash_is_named_and_not_run(refold: Here) -> None:
    crashed(refold.place, accepted(FEED))
    refold.place.script(REPLY)
    done = refold("run", "go", "--session", "s1")
    assert done.code == 0
    assert done.lines == ["Forty-two.", "session s1"]
    assert done.err == "(an earlier input waits and is not run: Feed the zebra\\x1b)\n" + HINT
    assert texts(refold) == ["go"]


def test_the_oldest_that_waits_is_run_in_place_of_a_prompt_then_the_next(two: Here) -> None:
    done = two("run", "--session", "s1", "--pending")
    assert (done.code, done.lines) == (0, ["Forty-two.", "session s1"])
    assert done.err == "(an earlier input waits and is not run: Mend the roof)\n" + HINT
    done = two("run", "--pending", "--session", "s1")
    assert (done.code, done.lines, done.err) == (0, ["Forty-two.", "session s1"], "")
    assert texts(two) == list(SAYS.values())
    assert [start["trigger"]["input"] for start in told(two, "turn/start")] == [FEED, ROOF]
    proved(two)


def test_a_program_reads_the_turn_of_what_waited_like_any_other(two: Here) -> None:
    tail = two.events("s1")[-1]["seq"]
    done = two("run", "--session", "s1", "--pending", "--json")
    assert (done.code, done.values[0]) == (0, {"session": "s1"})
    assert done.values[1:] == two.events("s1")[tail + 1 :]
    assert done.values[-1]["type"] == "turn/end"


def test_an_injection_that_waits_joins_by_a_turn_without_a_reply(refold: Here) -> None:
    crashed(refold.place, accepted(ROOF, "inject"))
    done = refold("run", "--session", "s1", "--pending")
    assert (done.code, done.lines) == (0, ["session s1"])
    assert [start["trigger"]["kind"] for start in told(refold, "turn/start")] == ["injection"]
    proved(refold)


def nothing_waits(done: Done) -> None:
    assert (done.code, done.out) == (2, b"")
    assert done.err == "refold: config.invalid: --pending: no input waits in session s1\n"


def test_where_nothing_waits_nothing_is_run(refold: Here) -> None:
    crashed(refold.place)
    before = refold.events("s1")
    nothing_waits(refold("run", "--session", "s1", "--pending"))
    done = refold("run", "--session", "s1", "--withdraw")
    assert (done.code, done.lines, done.err) == (0, ["session s1"], "(no input waits)\n")
    assert refold.events("s1") == before


def test_all_that_waits_is_taken_back_and_nothing_is_run(two: Here) -> None:
    two.place.configure('model = "none/x"\n')
    assert two("run", "--session", "s1", "--pending").code == 2, "its model is not there"
    done = two("run", "--session", "s1", "--withdraw")
    assert (done.code, done.lines) == (0, ["session s1"])
    assert done.err == "(taken back: Feed the zebra\\x1b)\n(taken back: Mend the roof)\n"
    settled = told(two, "input/settled")
    assert [(one["input"], one["how"]) for one in settled] == [(FEED, "withdrawn"), (ROOF, "withdrawn")]
    assert told(two, "turn/start") == []
    two.place.configure("")
    nothing_waits(two("run", "--session", "s1", "--pending"))
    proved(two)


def test_a_program_reads_what_was_recorded_when_inputs_were_taken_back(two: Here) -> None:
    tail = two.events("s1")[-1]["seq"]
    done = two("run", "--session", "s1", "--withdraw", "--json")
    assert (done.code, done.values[0]) == (0, {"session": "s1"})
    assert done.values[1:] == two.events("s1")[tail + 1 :]
    assert [event["type"] for event in done.values[1:]] == ["instance/start", "input/settled", "input/settled"]


def test_what_the_session_says_of_its_permissions_is_no_input_that_a_person_runs(refold: Here) -> None:
    crashed(refold.place, InputAccepted(InputId("p"), "inject", text_content("Ask first."), PERMISSIONS))
    nothing_waits(refold("run", "--session", "s1", "--pending"))
    refold.place.script(REPLY)
    done = refold("run", "go", "--session", "s1")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--pending"], "--pending: needs --session"),
        (["--withdraw"], "--withdraw: needs --session"),
        (["--withdraw", "--session", "s1", "--permissions", "ask"], "--withdraw: runs no turn"),
        (["--pending", "--session", "s1", "--model", "a/b"], "no provider 'a' is configured"),
        (["--pending", "--session", "s2"], "there is no session s2"),
        (["--withdraw", "--session", "s2"], "there is no session s2"),
    ],
)
def test_what_does_not_go_together_is_told_and_nothing_is_done(two: Here, arguments: list[str], complaint: str) -> None:
    before = two.events("s1")
    done = two("run", *arguments)
    assert (done.code, done.out) == (2, b"")
    assert complaint in done.err
    assert two.events("s1") == before
