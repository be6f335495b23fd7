"""Which folders are opened as a store, with which settings; and that a refusal writes nothing."""

from __future__ import annotations

import errno
import os
import resource
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import lmdb
import pytest

from refold_protocol.errors import ConfigError, LogBusyError, SessionFormatUnsupportedError, StorageFullError
from refold_storage.disk import filesystem_type
from refold_storage.lmdb_store import open_store
from refold_storage.shared_environments import REGISTRY
from refold_storage.store import LmdbStore
from refold_storage.store_opening import NEW_FILE, open_environment
from tests.support.store_child import StoreChild
from tests.support.stores import NEW, SESSION, chunks, filled, lines_of, new_uuid, until

pytestmark = pytest.mark.anyio


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder with its bytes and the time of its last change."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def names(folder: Path) -> list[str]:
    """What a folder holds."""
    return sorted(path.name for path in folder.iterdir())


async def opened(folder: Path, *, create: bool = True) -> LmdbStore:
    return await open_store(folder, new_uuid=new_uuid, clock=lambda: 1_234, create=create)


async def made(folder: Path, **meta: bytes) -> None:
    """Make a store with a session in it, and change rows of `meta`."""
    store = await opened(folder)
    await filled(store, chunks(3))
    with store.environment.writing() as transaction:
        for name, value in meta.items():
            transaction.put(name.encode(), value, db=store.environment.databases.meta)
    await store.close()


async def test_a_new_store_has_its_databases_a_version_and_a_private_folder(tmp_path: Path) -> None:
    store = await opened(tmp_path / "deep" / "store")
    with store.environment.reading() as transaction:
        meta = store.environment.databases.meta
        assert transaction.get(b"format", db=meta) == b"0"
        assert transaction.get(b"created", db=meta) == b"1234"
    await store.close()
    assert (tmp_path / "deep" / "store").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep" / "store" / "data.mdb").stat().st_mode & 0o077 == 0
    environment = lmdb.open(str(tmp_path / "deep" / "store"), max_dbs=8, readonly=True)
    assert sorted(environment.dbs()) == [b"blobs", b"children", b"meta", b"recent", b"records", b"sessions"]
    environment.close()


async def test_the_names_of_a_new_store_are_made_durable_up_to_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))

    monkeypatch.setattr("refold_storage.store_opening.os.fsync", note)
    await made(tmp_path / "deep" / "store")
    assert synced == [str(tmp_path / "deep" / "store"), str(tmp_path / "deep"), str(tmp_path)]
    await (await opened(tmp_path / "deep" / "store")).close()
    assert len(synced) == 3


async def test_opening_a_store_and_reading_it_writes_nothing(tmp_path: Path) -> None:
    await made(tmp_path)
    before = (tmp_path / "data.mdb").read_bytes()
    store = await opened(tmp_path)
    assert len(lines_of(await store.open(SESSION, "read"))) == 3
    idle = await store.open(SESSION, "write")
    await idle.close()
    await store.close()
    assert (tmp_path / "data.mdb").read_bytes() == before


async def test_a_folder_with_other_files_in_it_may_become_a_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data.mdb").touch()
    await made(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize(("version", "word"), [(b"1", "refold is the older"), (b"17", "refold is the older"), (b"x", "name")])
async def test_a_store_of_another_version_is_refused_and_nothing_is_written(
    tmp_path: Path, version: bytes, word: str, locked: bool
) -> None:
    await made(tmp_path, format=version)
    if not locked:
        (tmp_path / "lock.mdb").unlink()
    before = snapshot(tmp_path)
    with pytest.raises(SessionFormatUnsupportedError, match=word):
        await opened(tmp_path)
    after = snapshot(tmp_path)
    before.pop("lock.mdb", None)
    if locked:
        after.pop("lock.mdb")  # LMDB notes readers there
    assert after == before


def database_of_something_else(folder: Path) -> None:
    environment = lmdb.open(str(folder), max_dbs=4, lib_version=0)
    with environment.begin(write=True) as transaction:
        transaction.put(b"meta", b"plain data")
    environment.close()


def other_databases(folder: Path) -> None:
    environment = lmdb.open(str(folder), max_dbs=4, lib_version=0)
    environment.open_db(b"tables")
    environment.close()


def later_lmdb(folder: Path) -> None:
    environment = lmdb.open(str(folder), max_dbs=4, lib_version=1)
    environment.open_db(b"meta")
    environment.close()


def text(folder: Path) -> None:
    (folder / "data.mdb").write_text("dear diary\n" * 1000)


def short(folder: Path) -> None:
    (folder / "data.mdb").write_bytes(b"abc")


def torn(folder: Path) -> None:
    (folder / "data.mdb").write_bytes(struct.pack("=QHHIII", 0, 0, 8, 0, 0xBEEFC0DE, 1) + os.urandom(10_000))


def cut_off(folder: Path) -> None:
    environment = lmdb.open(str(folder), max_dbs=4, lib_version=0)
    for name in (b"a", b"b", b"c"):
        environment.open_db(name)
    environment.close()
    with (folder / "data.mdb").open("r+b") as file:
        file.truncate(8192)


@pytest.mark.parametrize("make", [database_of_something_else, other_databases, later_lmdb, text, short, torn, cut_off])
async def test_a_file_that_is_no_store_is_refused_and_nothing_is_written(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path)
    (tmp_path / "lock.mdb").unlink(missing_ok=True)
    before = snapshot(tmp_path)
    with pytest.raises(SessionFormatUnsupportedError, match="holds no store"):
        await opened(tmp_path)
    assert snapshot(tmp_path) == before


async def test_a_store_that_lacks_a_database_is_refused(tmp_path: Path) -> None:
    await made(tmp_path)
    environment = lmdb.open(str(tmp_path), max_dbs=8, lib_version=0)
    database = environment.open_db(b"blobs")
    with environment.begin(write=True) as transaction:
        transaction.drop(database)
    environment.close()
    with pytest.raises(SessionFormatUnsupportedError, match="missing"):
        await opened(tmp_path)


async def test_a_store_that_is_not_there_is_made_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no store in"):
        await opened(tmp_path / "store", create=False)
    assert names(tmp_path) == []
    await made(tmp_path / "store")
    await (await opened(tmp_path / "store", create=False)).close()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("path", ["file", "file/below", "long" * 100, "long" * 100 + "/below"])
async def test_a_path_that_is_no_folder_is_a_wrong_setting(tmp_path: Path, path: str, create: bool) -> None:
    """A name too long is refused by every look at it, like a folder that may not be entered; root may enter each."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        await opened(tmp_path / path, create=create)
    assert caught.value.key == "store.path"


async def test_the_map_is_a_tebibyte_where_nothing_else_is_said(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert store.environment.map_bytes == 1 << 40
    assert (tmp_path / "data.mdb").stat().st_size < 1 << 20
    await store.close()


def test_a_smaller_address_space_gives_a_smaller_map(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from refold_storage.lmdb_store import open_store\n"
        "async def main():\n"
        "    store = await open_store(sys.argv[1], new_uuid=lambda: 'x')\n"
        "    print(store.environment.map_bytes, store.environment.grow())\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    limit = 4 << 30
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=True,
    )
    size, grown = ended.stdout.split()
    assert 1 << 28 <= int(size) < limit
    assert grown == "False"


async def test_the_environment_syncs_every_commit(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert store.environment.syncs
    assert (await filled(store, chunks(1), NEW)).durable == 0
    await store.close()


async def test_an_open_that_waits_too_long_for_the_write_lock_says_so_and_leaves_nothing_open(tmp_path: Path) -> None:
    await made(tmp_path)
    before = REGISTRY.users()
    with StoreChild("hold", tmp_path) as child:
        assert child.answer() == "ready"
        with pytest.raises(LogBusyError, match=f"process {child.pid} held its write lock") as raised:
            await open_store(tmp_path, new_uuid=new_uuid, flush_seconds=0.05)
        assert raised.value.details["holder"] == child.pid
        assert child.ask() == "free"
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "refold open"])
    await until(lambda: REGISTRY.users() == before)
    store = await opened(tmp_path)
    assert store.get(SESSION).tail == 2
    await store.close()


def test_processes_that_make_the_same_store_at_once_make_one(tmp_path: Path) -> None:
    """Each says how many times the store was made, by the number of its last transaction."""
    children = [StoreChild("made", tmp_path / "new") for _ in range(4)]
    assert {child.answer() for child in children} == {"1"}
    for child in children:
        with child:
            pass


async def test_opening_follows_a_map_that_grows_between_two_steps_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes more than the map holds: while LMDB opens the file, and right after that."""
    await made(tmp_path)
    real, told = lmdb.open, 0

    def late(path: str, _: int, **more: Any) -> lmdb.Environment:
        nonlocal told
        told += 1
        if told == 1:
            raise lmdb.MapResizedError("mdb_txn_begin")
        environment = real(path, 1 << 20, **more)
        assert child.ask() == "200002"
        return environment

    with StoreChild("write", tmp_path, 200_000) as child:
        assert child.answer() == "2"
        with monkeypatch.context() as growing:
            growing.setattr("refold_storage.store_opening.lmdb.open", late)
            store = await open_store(tmp_path, new_uuid=new_uuid, map_bytes=1 << 20)
    assert store.get(SESSION).tail == 200_002
    assert store.environment.map_bytes > 1 << 20
    await store.close()


async def test_what_a_process_left_that_died_while_it_made_a_store_goes_with_the_next_opening(tmp_path: Path) -> None:
    (tmp_path / NEW_FILE).write_bytes(b"half")
    await made(tmp_path)
    assert not (tmp_path / NEW_FILE).exists()
    store = await opened(tmp_path)
    assert store.get(SESSION).tail == 2
    await store.close()


async def test_a_store_that_cannot_be_made_leaves_no_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise lmdb.DiskError("mdb_txn_commit", errno.ENOSPC)

    with monkeypatch.context() as failing:
        failing.setattr("refold_storage.store_opening.create_databases", full)
        with pytest.raises(StorageFullError):
            await opened(tmp_path)
    assert "data.mdb" not in names(tmp_path)
    assert NEW_FILE not in names(tmp_path)
    await made(tmp_path)


async def test_openings_and_closings_of_a_store_are_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(tmp_path)
    environment = store.environment
    monkeypatch.setattr("refold_storage.store_opening.TURN_SECONDS", 0.0)
    with StoreChild("turn", tmp_path) as child:
        assert child.answer() == "taken"
        assert not environment.close(0), "a closing that is not its turn leaves all open"
        assert environment.unusable is None
        (tmp_path / "other").symlink_to(tmp_path)
        with pytest.raises(LogBusyError, match=f"process {child.pid} does not end opening or closing the store"):
            open_environment(tmp_path / "other", now=1, map_bytes=None, max_bytes=None, create=True, filesystem=filesystem_type)
        assert child.ask() == "left"
    await store.close()
    assert environment.unusable == "the store was closed"
    await (await opened(tmp_path)).close()
