"""`refold delete` and `refold archive`: nobody loses a session by accident, and lists show what they should."""

from __future__ import annotations

import json

import pytest

from tests.support.commands import Here
from tests.support.daemons import Place
from tests.support.terminal import on_terminal


@pytest.fixture
def sessions(refold: Here) -> tuple[str, str]:
    """Two sessions, the second the latest."""
    refold.place.script(*[{"text": "Hi."}] * 2)
    return refold("run", "Hello\x1b[2J you").session, refold("run", "Bye").session


def listed(refold: Here, *arguments: str) -> list[str]:
    """Ids of what is listed."""
    done = refold("sessions", "--json", *arguments)
    return [row["session"] for row in done.values] if done.out else []


def test_without_a_terminal_nothing_goes_unless_it_is_said(refold: Here, sessions: tuple[str, str]) -> None:
    one, two = sessions
    done = refold("delete", one)
    assert (done.code, done.out) == (2, b"")
    assert done.err == "refold: nobody can be asked here; --yes deletes without asking\n"
    done = refold("delete", one, "--yes")
    assert (done.code, done.lines, done.err) == (0, [f"deleted {one}"], "")
    assert listed(refold) == [two]
    assert refold("log", one).code == 2


def test_a_name_that_is_wrong_keeps_all_of_them(refold: Here, sessions: tuple[str, str]) -> None:
    one, two = sessions
    done = refold("delete", one, "nobody", "--yes")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("refold: session.unknown: ")
    assert listed(refold) == [two, one]


def test_several_go_at_once_and_a_name_counts_once(refold: Here, sessions: tuple[str, str]) -> None:
    one, two = sessions
    assert refold("delete", one, two, one, "--yes").lines == [f"deleted {one}", f"deleted {two}"]
    assert listed(refold) == []


@pytest.mark.anyio
async def test_one_that_is_being_written_stays_and_the_others_go(place: Place) -> None:
    place.script(*[{"text": "Hi."}] * 2)
    one, two = [json.loads(place.refold("run", "Hello", "--json").stdout.split("\n")[0])["session"] for _ in range(2)]
    async with place.daemon() as client:
        await client.open_session(one)
        done = place.refold("delete", one, two, "--yes")
        assert (done.returncode, done.stdout) == (7, f"deleted {two}\n")
        assert done.stderr.startswith("refold: session.owned: ")
        assert [row["session"] for row in (await client.list_sessions())["sessions"]] == [one]


@pytest.mark.parametrize(
    ("typed", "code"), [("y\n", 0), ("YES\n", 0), ("\n", 6), ("n\n", 6), ("x\n", 6), ("\x04", 6), ("\x03", 6)]
)
def test_on_a_terminal_somebody_is_asked(refold: Here, sessions: tuple[str, str], place: Place, typed: str, code: int) -> None:
    one, two = sessions
    with on_terminal(place, "delete", one) as terminal:
        shown = terminal.until("> ")
        assert shown == f"  {one}  Hello\\x1b[2J you\nDelete this session for good? y: yes, N: no > "
        terminal.types(typed)
        assert terminal.end() == code
        assert (f"deleted {one}" in terminal.shown) == (code == 0)
    assert listed(refold) == ([two] if code == 0 else [two, one])


def test_what_was_typed_before_the_question_is_no_answer_and_the_end_of_input_is_a_no(
    refold: Here, sessions: tuple[str, str], place: Place
) -> None:
    one, two = sessions
    with on_terminal(place, "delete", one, typed="y\n") as terminal:
        terminal.until("> ")
        terminal.types("\x04")
        assert terminal.end() == 6
        assert terminal.shown.replace("\b", "").replace("^D", "").endswith("N: no > \nNothing was deleted.\n")
    assert listed(refold) == [two, one]


def test_an_archived_session_is_out_of_the_list_until_it_is_brought_back(refold: Here, sessions: tuple[str, str]) -> None:
    one, two = sessions
    done = refold("archive", one)
    assert (done.code, done.lines, done.err) == (0, [f"archived {one}"], "")
    assert listed(refold) == [two]
    assert listed(refold, "--archived") == [two, one]
    assert refold("archive", one, two, "--undo").lines == [f"back {one}", f"back {two}"]
    assert listed(refold) == [two, one]
    assert refold("archive", one, "nobody").code == 2
    assert listed(refold) == [two, one], "all of them or none"
