"""`refold import`: the session of a file, to the byte, or a refusal with its line; never half of it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from refold_server.cli.cli_import import BLOCK_BYTES
from tests.support.approval_files import change, changing
from tests.support.commands import Here, finish, start, there
from tests.support.daemons import Place
from tests.support.exports import long_export, refold_lines
from tests.support.terminal import on_terminal


@pytest.fixture
def session(refold: Here) -> str:
    """A session with tools, of several records."""
    return refold("run", "Where is the zebra?").session


@pytest.fixture
def file(refold: Here, session: str) -> Path:
    """Its export."""
    path = refold.place.root / "session.jsonl"
    assert refold("export", session, "-o", str(path)).code == 0
    return path


def listed(refold: Here) -> list[str]:
    """Ids of the sessions of the folder."""
    done = refold("sessions", "--json")
    return [row["session"] for row in done.values] if done.out else []


def test_a_deleted_session_comes_back_from_its_export_as_it_was(refold: Here, session: str, file: Path) -> None:
    before = refold("sessions", "--json").out
    assert refold("delete", session, "--yes").code == 0
    done = refold("import", str(file))
    assert (done.code, done.lines, done.err) == (0, [session], "")
    assert refold("sessions", "--json").out == before
    assert refold("export", session).out == file.read_bytes()
    assert refold("verify", session, "--strict").code == 0
    refold.place.script({"text": "And on."})
    assert refold("run", "go on", "--session", session).code == 0


def test_an_id_that_is_there_is_refused_and_another_one_can_be_had(refold: Here, session: str, file: Path) -> None:
    done = refold("import", str(file))
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("refold: session.exists: ")
    assert "--new-id" in done.err
    (other,) = there(refold.place, "import", "-", "--new-id", given=file.read_bytes()).lines
    assert listed(refold) == [other, session]
    assert refold("export", other).lines[1:] == refold_lines(file)[1:]
    assert refold("verify", "--all").code == 0


def test_an_import_makes_a_store_but_not_for_a_file_that_is_none(refold: Here, file: Path, tmp_path: Path) -> None:
    store = tmp_path / "new"
    wrong = tmp_path / "wrong"
    wrong.write_text("nothing\n")
    done = refold("import", str(wrong), "--store", str(store))
    assert (done.code, store.exists()) == (1, False)
    assert done.err.startswith("refold: session.corrupt: line 1: ")
    assert refold("import", str(file), "--store", str(store)).code == 0
    assert refold("verify", "--all", "--store", str(store)).code == 0


def test_a_changed_file_is_refused_with_its_line_and_leaves_nothing(refold: Here, session: str, file: Path) -> None:
    refold("delete", session, "--yes")
    lines = file.read_bytes().split(b"\n")
    for changed, said in [
        (lines[:20] + lines[21:], "line 21: "),
        ([*lines[:20], lines[20][:30]], "line 21: "),
        (lines[:20], "line 20: the file ends here"),
        ([lines[0].replace(b'"format":0', b'"format":7'), *lines[1:]], "line 1: format version 7"),
        ([line.replace(b"zebra", b"zebro") for line in lines], "lines 2 to "),
    ]:
        file.write_bytes(b"\n".join(changed))
        done = refold("import", str(file))
        assert (done.code, done.out) == (7 if "format" in said else 1, b"")
        assert f": {said}" in done.err
    assert listed(refold) == []


def test_an_import_that_is_killed_leaves_nothing_to_see_and_can_be_made_again(refold: Here, session: str) -> None:
    """Killed when a batch of lines is on disk, behind which it waits for more."""
    refold("delete", session, "--yes")
    data = long_export(session)
    process = start(refold.place, "import", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    file = refold.place.store / "data.mdb"
    before = file.stat().st_mtime_ns
    process.stdin.write(data[: 3 * BLOCK_BYTES])
    process.stdin.flush()
    until_written(process, file, before)
    process.kill()
    process.communicate()
    assert refold("sessions", "--all", "--json").out == b""
    assert refold("log", session).code == 2
    assert "1 leftovers of broken imports removed" in refold("store", "compact").lines
    assert there(refold.place, "import", "-", given=data).lines == [session]
    assert refold("export", session).out.split(b"\n")[1:] == data.split(b"\n")[1:]


def test_a_signal_takes_an_import_back(refold: Here, session: str, file: Path) -> None:
    refold("delete", session, "--yes")
    file.write_bytes(long_export(session, 60_000))
    data = refold.place.store / "data.mdb"
    before = data.stat().st_mtime_ns
    process = start(refold.place, "import", str(file))
    until_written(process, data, before)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.code, done.out, done.err) == (6, b"", "")
    assert refold("sessions", "--all", "--json").out == b""
    assert not any("leftovers" in line for line in refold("store", "compact").lines)


def until_written(process: subprocess.Popen[bytes], file: Path, before: int) -> None:
    """Wait until a process has written to a file since `before`, in ns."""
    while file.stat().st_mtime_ns == before:
        assert process.poll() is None


def test_a_file_that_cannot_be_read_is_told(refold: Here) -> None:
    for name in ("gone", "."):
        done = refold("import", name)
        assert (done.code, done.out) == (2, b"")
        assert done.err.startswith(f"refold: config.invalid: FILE: {name} cannot be read: ")


NOTE = "refold: note: as the file says, {} may run in this session without a question, in {}; "


def noted(place: Place, data: bytes) -> str:
    """What is told beside the id of an import under a new one."""
    done = there(place, "import", "-", "--new-id", given=data)
    assert (done.code, len(done.lines)) == (0, 1)
    return done.err


def test_what_a_file_lets_run_without_a_question_is_told(place: Place) -> None:
    changing(place, change(), {"text": "Done."}, {"text": "Again."})
    with on_terminal(place, "run", "go") as terminal:
        terminal.until("> ")
        terminal.types("s\n")
        assert terminal.end() == 0
        session = terminal.shown.split()[-1]
    data = there(place, "export", session).out
    assert noted(place, data).startswith(NOTE.format("change", place.workspace))
    without = there(place, "export", session, "--at", "3").out
    assert noted(place, without) == ""
    assert there(place, "run", "more", "--session", session, "--permissions", "allow").code == 0
    data = there(place, "export", session).out
    assert noted(place, data).startswith(NOTE.format("every tool", place.workspace))
