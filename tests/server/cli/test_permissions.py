"""`refold permissions`: what a session lets run without a question is shown and taken back."""

from __future__ import annotations

from tests.support.approval_files import change, changed, changing
from tests.support.commands import there
from tests.support.daemons import Json, Place
from tests.support.terminal import on_terminal

SAY: Json = {"text": "Done."}


def allowed(place: Place, *more: Json) -> str:
    """Make a session in which `change` was allowed for good."""
    changing(place, change(), SAY, *more)
    with on_terminal(place, "run", "go") as terminal:
        terminal.until("N: no > ")
        terminal.types("s\n")
        assert terminal.end() == 0
        return terminal.shown.rstrip("\n").split("\n")[-1].removeprefix("session ")


def test_a_grant_is_shown_and_taken_back_and_the_next_call_is_asked_about(place: Place) -> None:
    session = allowed(place, change("two", "c2"), SAY)
    assert there(place, "permissions", session).text == "mode: that of the configuration\nallowed for the session: change\n"
    done = there(place, "permissions", session, "--revoke", "change", "--json")
    assert done.values[0] == {"session": session, "mode": None, "grants": [], "revoked": ["change"]}
    assert there(place, "run", "--session", session, "again").code == 0
    assert changed(place) == ["one"], "without a terminal a call that is asked about does not run"


def test_a_tool_that_was_not_allowed_cannot_be_taken_back(place: Place) -> None:
    session = allowed(place)
    done = there(place, "permissions", session, "--revoke", "other")
    assert (done.code, "other was not allowed" in done.err) == (2, True)
    assert there(place, "permissions", session, "--revoke-all").text.endswith("asked about again: change\n")
    assert there(place, "permissions", session).text == "mode: that of the configuration\n"


def test_a_fork_says_that_it_lets_everything_run(place: Place) -> None:
    place.script(SAY)
    session = there(place, "run", "go", "--permissions", "allow", "--json").values[0]["session"]
    done = there(place, "fork", session)
    assert "lets every tool run without a question" in done.err
    assert there(place, "fork", session, "--json").values[0]["permissions"] == "allow"
