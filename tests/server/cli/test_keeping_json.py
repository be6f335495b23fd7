"""`--json` of the commands that keep sessions: one object on standard output, or nothing and a sentence beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.approval_files import change, changing
from tests.support.commands import Done, Here, there
from tests.support.daemons import Place
from tests.support.damage import Disk
from tests.support.terminal import on_terminal


@pytest.fixture
def session(refold: Here) -> str:
    """A session of one turn."""
    refold.place.script(*[{"text": "Hi."}] * 2)
    return refold("run", "Hello").session


def told(done: Done, code: int = 0) -> Any:
    """The one object that a command printed."""
    assert (done.code, done.err if code == 0 else "") == (code, "")
    (value,) = done.values
    return value


def test_a_fork_says_what_it_is_and_where_it_comes_from(refold: Here, session: str) -> None:
    value = told(refold("fork", session, "--at", "4", "--json"))
    row = next(row for row in refold("sessions", "--json").values if row["session"] != session)
    assert value == {"session": row["session"], "tail": 4, "parent": row["parent"]}
    assert (value["parent"]["session"], value["parent"]["at"]) == (session, 4)
    titled = told(refold("fork", session, "--at", "4", "--title", "Another", "--json"))
    assert titled["tail"] == refold.events(titled["session"])[-1]["seq"] > 4


def test_archiving_says_which_and_what_they_are_now(refold: Here, session: str) -> None:
    other = refold("run", "Bye").session
    assert told(refold("archive", session, other, session, "--json")) == {"sessions": [session, other], "archived": True}
    assert told(refold("archive", other, "--undo", "--json")) == {"sessions": [other], "archived": False}


def test_deleting_says_which_are_gone(refold: Here, session: str) -> None:
    other = refold("run", "Bye").session
    assert told(refold("delete", other, session, "--yes", "--json")) == {"deleted": [other, session]}
    done = refold("delete", other, "--yes", "--json")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("refold: session.unknown: ")


@pytest.mark.anyio
async def test_one_that_stays_is_not_among_those_that_are_gone(place: Place) -> None:
    place.script(*[{"text": "Hi."}] * 2)
    one, two = (json.loads(place.refold("run", "Hello", "--json").stdout.split("\n")[0])["session"] for _ in range(2))
    async with place.daemon() as client:
        await client.open_session(one)
        done = place.refold("delete", one, two, "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (7, {"deleted": [two]})
    assert done.stderr.startswith("refold: session.owned: ")


def test_whoever_declines_gets_no_object(session: str, place: Place) -> None:
    with on_terminal(place, "delete", session, "--json") as terminal:
        terminal.until("> ")
        terminal.types("n\n")
        assert terminal.end() == 6
        assert "{" not in terminal.shown


def test_an_export_into_a_file_and_its_import_say_what_went(refold: Here, session: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    events = len(refold.events(session))
    assert told(refold("export", session, "-o", str(file), "--json")) == {"session": session, "events": events, "damage": None}
    assert len(file.read_text().split("\n")) == events + 2
    refold("delete", session, "--yes")
    value = told(refold("import", str(file), "--json"))
    folder = str(refold.place.workspace)
    assert value == {"session": session, "cwd": folder, "events": events, "permissions": None, "grants": []}
    file.write_text("nothing\n")
    done = refold("import", str(file), "--json")
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith("refold: session.corrupt: line 1: ")


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_an_export_to_standard_output_has_no_room_for_an_object(refold: Here, session: str, output: list[str]) -> None:
    done = refold("export", session, *output, "--json")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("refold: config.invalid: --json: needs --output")


def test_an_export_of_a_damaged_session_says_how_far_it_came(refold: Here, tmp_path: Path) -> None:
    session = refold("run", "Where is the zebra?").session
    disk = Disk(refold.place.store)
    disk.flip(3, 50)
    done = refold("export", session, "-o", str(tmp_path / "x"), "--json")
    value = told(done, 1)
    assert value["events"] == disk.records[3].record.first
    assert value["damage"] in done.err


def test_an_import_says_what_runs_without_a_question(place: Place) -> None:
    changing(place, change(), {"text": "Done."}, {"text": "Again."})
    with on_terminal(place, "run", "go") as terminal:
        terminal.until("> ")
        terminal.types("s\n")
        assert terminal.end() == 0
        session = terminal.shown.split()[-1]
    for mode in (None, "allow"):
        if mode is not None:
            assert there(place, "run", "more", "--session", session, "--permissions", mode).code == 0
        done = there(place, "import", "-", "--new-id", "--json", given=there(place, "export", session).out)
        (value,) = done.values
        assert (value["permissions"], value["grants"]) == (mode, ["change"])
        assert done.err.startswith("refold: note: as the file says, ")


def test_compacting_a_store_says_its_sizes_in_bytes(refold: Here, session: str) -> None:
    refold("delete", session, "--yes")
    file = refold.place.store / "data.mdb"
    before = file.stat().st_size
    assert told(refold("store", "compact", "--json")) == {
        "path": str(refold.place.store),
        "beforeBytes": before,
        "afterBytes": file.stat().st_size,
        "leases": 1,
        "leftovers": 0,
    }


def test_counting_anew_says_what_was_wrong_and_what_was_passed_over(refold: Here, session: str) -> None:
    assert told(refold("store", "rebuild", "--json")) == {"sessions": 1, "changed": 0, "misplaced": 0, "skipped": []}
    assert refold("run", "Bye").code == 0
    Disk(refold.place.store, 1).flip(0, 60)
    value = told(refold("store", "rebuild", "--json"), 1)
    assert value["sessions"] == 1
    assert [skipped["kind"] for skipped in value["skipped"]] == ["session.corrupt"]
    assert isinstance(session, str)
