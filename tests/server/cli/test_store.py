"""`refold store`: the file shrinks when nobody is there, what lists show is counted anew, an old copy is accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refold_storage.locks import lock_holders
from tests.support.commands import Here
from tests.support.daemons import Place
from tests.support.damage import Disk
from tests.support.terminal import on_terminal


@pytest.fixture
def sessions(refold: Here) -> tuple[str, str]:
    """Two sessions."""
    return refold("run", "Where is the zebra?").session, refold("run", "Where is the horse?").session


def test_compacting_shrinks_the_file_and_deleted_text_is_gone_from_it(refold: Here, sessions: tuple[str, str]) -> None:
    one, two = sessions
    kept = refold("export", two).out
    refold("delete", one, "--yes")
    file = refold.place.store / "data.mdb"
    before = file.stat().st_size
    done = refold("store", "compact")
    assert (done.code, done.err) == (0, "")
    now = file.stat().st_size
    assert now < before
    assert done.lines[0] == f"{before // 1024} KiB before, {now // 1024} KiB now ({refold.place.store})"
    assert done.lines[1:] == ["1 lock files of sessions that are gone removed"]
    assert refold("export", two).out == kept
    assert refold("verify", "--all").code == 0


@pytest.mark.anyio
async def test_a_store_that_is_open_is_not_compacted_and_who_has_it_open_is_named(place: Place) -> None:
    async with place.daemon() as client:
        await client.open_session(cwd=place.workspace)
        before = (place.store / "data.mdb").read_bytes()
        done = place.refold("store", "compact")
        assert (done.returncode, done.stdout) == (7, "")
        assert done.stderr.startswith("refold: log.busy: ")
        assert f"is open in process {client.pid}; close every editor" in done.stderr
        assert (place.store / "data.mdb").read_bytes() == before


def test_nobody_is_named_where_nobody_holds_a_lock(tmp_path: Path) -> None:
    (tmp_path / "free").touch()
    assert lock_holders(tmp_path / "free") == ()
    assert lock_holders(tmp_path / "gone") == ()


@pytest.mark.parametrize("work", ["compact", "rebuild", "accept"])
def test_without_a_store_nothing_is_made(refold: Here, work: str) -> None:
    done = refold("store", work)
    assert (done.code, done.out) == (2, b"")
    assert not refold.place.store.exists()


def test_what_lists_show_is_counted_anew_from_the_logs(refold: Here, sessions: tuple[str, str]) -> None:
    rows = refold("sessions", "--json").out
    Disk(refold.place.store).change_row(sessions[0], summary={"title": "Another", "titled": True})
    assert refold("sessions", "--json").out != rows
    done = refold("store", "rebuild")
    assert (done.code, done.err) == (0, "")
    assert done.lines == ["counted: 2 sessions; corrected: 1 of them, 0 places in the list"]
    assert refold("sessions", "--json").out == rows


def test_a_session_that_cannot_be_counted_is_named_and_the_others_are_counted(refold: Here, sessions: tuple[str, str]) -> None:
    del sessions
    Disk(refold.place.store, 1).flip(1, 60)
    done = refold("store", "rebuild")
    assert done.code == 1
    assert done.lines[0].startswith("counted: 1 sessions; ")
    assert done.lines[1].startswith("passed over: ")
    assert refold("sessions", "--json").code == 0


def test_on_a_terminal_it_shows_how_far_it_is(refold: Here, sessions: tuple[str, str], place: Place) -> None:
    del sessions
    with on_terminal(place, "store", "rebuild") as terminal:
        assert terminal.end() == 0
        assert "2 of 2 sessions" in terminal.shown
    with on_terminal(place, "store", "compact") as terminal:
        assert terminal.end() == 0
        assert "KiB before, " in terminal.shown
    assert refold("verify", "--all").code == 0


def test_an_old_copy_is_told_by_all_and_gone_on_with_once_it_is_accepted(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    file = refold.place.store / "data.mdb"
    copy = file.read_bytes()
    before = refold("export", session).out
    assert refold("run", "--session", session, "And now?").code == 0
    file.write_bytes(copy)
    for command in (("verify", "--all"), ("run", "--session", session, "And now?"), ("sessions", "--all")):
        done = refold(*command)
        assert (done.code, done.out) == (7, b"")
        assert "older than what was kept in it" in done.err
        assert "`refold store accept`" in done.err
    examined = refold("doctor")
    assert examined.code == 1
    assert b"`refold store accept`" in examined.out
    assert file.read_bytes() == copy
    done = refold("store", "accept")
    assert (done.code, done.err, done.lines) == (0, "", [f"accepted as it is: {refold.place.store}"])
    assert refold("export", session).out == before
    assert refold("verify", "--all").code == 0
    assert refold("doctor").code == 0
    assert refold("run", "--session", session, "And now?").code == 0
    assert json.loads(refold("store", "accept", "--json").out) == {"path": str(refold.place.store)}
