"""Stores and configurations that are not as they should be: one clear sentence, the right code, nothing written."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import lmdb
import pytest

from tests.support.commands import Here, there
from tests.support.daemons import Place

READERS = (["log", "s"], ["rebuild", "s", "1.1"], ["cache", "s"], ["prefix", "s"], ["verify", "s"], ["verify", "--all"])
"""Commands that only read."""

EVERY = (*READERS, ["run", "go"], ["run", "go", "--session", "s"], ["demo"])


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("command", READERS)
def test_commands_that_read_make_no_store(refold: Here, command: list[str]) -> None:
    done = refold(*command)
    assert (done.code, done.out) == (2, b"")
    assert done.err == f"refold: config.invalid: store.path: there is no store in {refold.place.store}\n"
    assert not refold.place.store.exists()


def test_going_on_with_a_session_makes_no_store(refold: Here) -> None:
    done = refold("run", "go", "--session", "s")
    assert (done.code, done.err.count("there is no store in")) == (2, 1)
    assert not refold.place.store.exists()


@pytest.mark.parametrize("command", EVERY)
@pytest.mark.parametrize("where", ["file", "below-a-file", "name-of-no-folder"])
def test_a_store_that_cannot_be_there_is_told(refold: Here, command: list[str], where: str) -> None:
    file = refold.place.root / "file"
    file.write_text("not a store")
    store = {"file": str(file), "below-a-file": str(file / "store"), "name-of-no-folder": ""}[where]
    done = refold(*command, "--store", store)
    assert done.code == 2
    assert done.err.startswith("refold: config.invalid: store.path: ")
    assert file.read_text() == "not a store"


@pytest.mark.parametrize("command", EVERY)
def test_a_folder_of_something_else_is_left_as_it_is(refold: Here, command: list[str]) -> None:
    refold.place.store.mkdir()
    (refold.place.store / "data.mdb").write_bytes(b"not a database" * 1_000)
    before = files(refold.place.store)
    done = refold(*command)
    assert done.code == 7
    assert done.err.startswith("refold: session.format: ")
    assert "holds no store that this release of refold reads" in done.err
    assert files(refold.place.store) == before


@pytest.mark.parametrize("command", EVERY)
def test_a_store_of_another_format_is_refused_and_nothing_is_written(refold: Here, command: list[str]) -> None:
    session = refold("run", "go").session
    with lmdb.open(str(refold.place.store), 1 << 30, max_dbs=8, lib_version=0) as store:
        meta = store.open_db(b"meta")
        with store.begin(write=True) as transaction:
            assert transaction.replace(b"format", b"1", db=meta) == b"0"
    before = files(refold.place.store)
    done = refold(*(session if word == "s" else word for word in command))
    assert done.code == 7
    assert done.err.startswith("refold: session.format: ")
    assert "version 1" in done.err
    after = files(refold.place.store)
    assert {name: after[name] for name in before if name != "lock.mdb"} == {
        name: data for name, data in before.items() if name != "lock.mdb"
    }


@pytest.mark.parametrize("command", EVERY)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("model = 3\n", 'model: expects "provider/model"; it is 3 ({file}, line 1)'),
        ("[store]\npaht = 'x'\n", "store.paht: there is no such setting; did you mean 'path'? ({file}, line 2)"),
        ("model = \n", "configuration: not valid TOML: Invalid value ({file}, line 1)"),
        ("[retry]\nattempts = 0\n", "retry.attempts: expects a whole number from 1 to 20; it is 0 ({file}, line 2)"),
    ],
)
def test_a_wrong_configuration_is_told_by_its_key(refold: Here, command: list[str], text: str, complaint: str) -> None:
    refold.place.configure(text)
    done = refold(*command)
    assert done.code == 2
    assert done.err.startswith(f"refold: config.invalid: {complaint.format(file=refold.place.config)}")
    assert not refold.place.store.exists()


@pytest.mark.parametrize("command", EVERY)
@pytest.mark.parametrize("file", ["missing.toml", ".", "latin-1.toml"])
def test_a_configuration_that_cannot_be_read_is_told(refold: Here, command: list[str], file: str) -> None:
    (refold.place.root / "latin-1.toml").write_bytes(b'model = "\xe9/x"\n')
    done = refold(*command, "--config", str(refold.place.root / file))
    assert done.code == 2
    assert done.err.startswith("refold: config.invalid: ")
    assert str(refold.place.root / file) in done.err or "--config" in done.err
    assert not refold.place.store.exists()


def test_options_go_before_the_environment(refold: Here) -> None:
    other = refold.place.root / "other"
    refold.place.configure("model = 3\n")
    good = refold.place.root / "good.toml"
    good.write_text("")
    assert refold("run", "go", "--store", str(other), "--config", str(good)).code == 0
    assert (other / "data.mdb").exists()
    assert not refold.place.store.exists()


def test_a_relative_store_lies_in_the_current_folder(refold: Here) -> None:
    assert refold("run", "go", "--store", "here").code == 0
    assert (refold.place.workspace / "here" / "data.mdb").exists()


NOISE = "".join(chr(33 + byte % 94) for byte in os.urandom(400_000))
"""Text that hardly deflates."""


def test_c04_a_store_that_may_not_grow_ends_the_turn_with_seven_and_keeps_what_was_durable(refold: Here) -> None:
    refold.place.script({"text": NOISE * 6, "chunk": 4_000}, more="[store]\nmap_bytes = 1048576\nmax_bytes = 1048576\n")
    done = refold("run", "go")
    assert done.code == 7
    assert "refold: log.full: " in done.err
    assert done.lines[-1] == f"session {done.session}"
    assert refold("verify", done.session).code == 0
    refold.place.configure("")
    assert refold("run", "Where is the zebra?", "--session", done.session).code == 0
    assert refold("verify", done.session).code == 0


def test_c04_a_limit_on_the_size_of_files_is_a_full_disk(place: Place) -> None:
    place.script({"text": NOISE * 3, "chunk": 4_000})
    done = there(place, "run", "go", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)))
    assert done.code == 7
    told = done.err.rstrip("\n").split("\n")
    assert told[0].startswith("refold: WARNING: refold_storage.commit: the log waits for space: ")
    assert told[1].startswith("refold: log.full: ")
    assert len(told) == 2
    assert there(place, "verify", done.session).code == 0


def test_a_prompt_for_which_there_is_no_space_leaves_no_session_and_names_none(place: Place) -> None:
    limit = 70_000  # an empty store fits
    done = there(
        place, "run", "-", given=NOISE.encode(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    assert (done.code, done.out) == (7, b"")
    assert "refold: log.full: " in done.err
    assert "Traceback" not in done.err
    assert there(place, "verify", "--all").text == "0 sessions checked\n"
