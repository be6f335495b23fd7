"""`refold demo`: a turn with tools on the current folder, and its proof by another process."""

from __future__ import annotations

import pytest

from tests.support.commands import Here, there
from tests.support.daemons import Place


def test_the_demo_shows_a_turn_its_proof_and_where_the_log_is(refold: Here) -> None:
    done = refold("demo", "Where does the zebra sleep?")
    assert (done.code, done.err) == (0, "")
    lines = done.lines
    assert lines[0] == "> Where does the zebra sleep?"
    assert '→ search_text {"pattern":"zebra"}' in lines
    assert "    the zebra sleeps" in lines
    (session,) = (line.split(" ")[1] for line in lines if line.startswith("session "))
    assert "4 requests, 3 tool calls, 106 events. Another process rebuilds every request:" in lines
    assert f"verified 4/4 requests, 106 events  {session}" in lines
    assert lines[-2] == f"the log is session {session} in {refold.place.store}"
    assert lines[-1] == f"read it: refold log {session}   rebuild a request: refold rebuild {session} 1.1"
    assert refold("verify", session).code == 0


def test_what_to_run_next_is_named_as_the_demo_was_called(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    program = refold.place.root / "bin" / "refold"
    program.parent.mkdir()
    program.touch()
    monkeypatch.setattr("sys.argv", [str(program), "demo"])
    assert refold("demo").lines[-1].startswith(f"read it: {program} log ")


def test_the_demo_has_a_question_of_its_own(refold: Here) -> None:
    assert refold("demo").lines[0] == "> Which file defines chain_step?"


def test_a_blank_question_is_refused(refold: Here) -> None:
    assert refold("demo", " ").code == 2
    assert not refold.place.store.exists()


def test_the_demo_runs_no_code_of_the_folder_that_it_looks_at(place: Place) -> None:
    package = place.workspace / "refold_server"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(99)\n")
    (place.workspace / "msgspec.py").write_text("raise SystemExit(98)\n")
    done = there(place, "demo", "Where does the zebra sleep?")
    assert done.code == 0
    assert any(line.startswith("verified 4/4 requests") for line in done.lines)


def test_the_demo_takes_the_store_and_the_configuration_that_it_is_given(refold: Here) -> None:
    store, config = refold.place.root / "other", refold.place.root / "other.toml"
    config.write_text('[tools]\nenabled = ["list_files"]\n')
    done = refold("demo", "zebra", f"--store={store}", f"--config={config}")
    assert done.code == 0
    assert f" in {store}" in done.lines[-2]
    assert not refold.place.store.exists()
