"""Compaction: what is free leaves the file, what is kept stays as it was, and nobody else is there meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from refold_protocol.errors import (
    ConfigError,
    LogBusyError,
    LogUnwritableError,
    SessionFormatUnsupportedError,
    StorageFullError,
)
from refold_protocol.ids import SessionId
from refold_storage import locks as occupancy
from refold_storage.changes import hide
from refold_storage.damage import walk_chain
from refold_storage.environment import Environment
from refold_storage.lease import Leases, lease_name
from refold_storage.lmdb_store import open_store
from refold_storage.locks import OCCUPANCY_FILE, occupy
from refold_storage.record_keys import record_key
from refold_storage.records import HEAD_BYTES
from refold_storage.store import LmdbStore
from refold_storage.store_compaction import compact_store
from refold_storage.store_opening import COPY_FILE
from tests.support.store_child import StoreChild
from tests.support.stores import OTHER, SESSION, chunks, filled, lines_of, new, new_uuid, tool_result

pytestmark = pytest.mark.anyio


async def opened(folder: Path) -> LmdbStore:
    return await open_store(folder, new_uuid=new_uuid)


async def family(folder: Path) -> dict[str, list[bytes]]:
    """Make a store with forks whose parent is gone, and much that is free. Gives the lines that are left."""
    store = await opened(folder)
    await (await filled(store, [*chunks(300), tool_result(1 << 20, ""), *chunks(300)])).close()
    await store.fork(SESSION, 200, new(OTHER))
    await store.fork(OTHER, 100, new("third"))
    child = await store.open(OTHER, "write")
    child.append(chunks(300))
    await child.close()
    await (await filled(store, [tool_result(2 << 20, ""), *chunks(9)], new("big"))).close()
    await store.delete(SESSION)
    await store.delete(SessionId("big"))
    await (await filled(store, [*chunks(5)], new("alive"))).close()
    lines = await contents(store)
    await store.close()
    return lines


async def contents(store: LmdbStore) -> dict[str, list[bytes]]:
    """The lines of every session, each verified against its chain."""
    found: dict[str, list[bytes]] = {}
    for session in store.survey():
        assert isinstance(session, str)
        reader = await store.open(SessionId(session), "read")
        found[session] = lines_of(reader)
        assert [link.line for link in walk_chain(reader)] == found[session]
    return found


async def after(folder: Path) -> dict[str, list[bytes]]:
    """The same of a store that has to be opened."""
    store = await opened(folder)
    found = await contents(store)
    await store.close()
    return found


async def test_compacting_shrinks_the_file_and_keeps_every_session(tmp_path: Path) -> None:
    lines = await family(tmp_path)
    before = (tmp_path / "data.mdb").stat().st_size
    done = compact_store(tmp_path)
    assert (done.before_bytes, done.after_bytes) == (before, (tmp_path / "data.mdb").stat().st_size)
    assert done.after_bytes < before / 10
    assert sorted(lines) == sorted(["alive", OTHER, "third"])
    assert await after(tmp_path) == lines
    store = await opened(tmp_path)
    assert {record.id for _, record in store.recent(limit=9)} == set(lines)
    for name in lines:
        handle = await store.open(SessionId(name), "write")
        handle.append(chunks(50))
        await handle.close()
    await store.fork(OTHER, 60, new("fourth"))
    await contents(store)
    await store.close()


def files_with(folder: Path, data: bytes) -> list[str]:
    """The names of the files in which some bytes stand."""
    return [path.name for path in folder.rglob("*") if path.is_file() and data in path.read_bytes()]


async def test_the_bytes_of_deleted_sessions_are_in_no_file_any_more(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await (await filled(store, [tool_result(600, ""), *chunks(3)])).close()
    with store.environment.reading() as transaction:
        record = transaction.get(record_key(1, 0), db=store.environment.databases.records)
    assert record is not None
    await store.delete(SESSION)
    await store.close()
    assert files_with(tmp_path, record[HEAD_BYTES:]) == ["data.mdb"]
    compact_store(tmp_path)
    assert files_with(tmp_path, record[HEAD_BYTES:]) == []


async def test_lock_files_of_sessions_that_are_gone_are_swept_and_others_stay(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await (await filled(store, chunks(3))).close()
    await (await filled(store, chunks(3), new(OTHER))).close()
    await (await store.create(new("never"))).close()
    await store.delete(OTHER)
    await store.close()
    name = lease_name(OTHER)
    (tmp_path / "leases" / name[:2] / f"{name}.lock.follow").touch()
    assert compact_store(tmp_path).leases == 3
    assert [path.stem for path in (tmp_path / "leases").glob("*/*")] == [lease_name(SESSION)]
    assert compact_store(tmp_path).leases == 0


async def test_what_a_broken_import_left_is_swept(tmp_path: Path) -> None:
    lines = await family(tmp_path)
    store = await opened(tmp_path)
    databases = store.environment.databases
    with store.environment.writing() as transaction:
        hide(transaction, databases, 99)
        transaction.put(record_key(99, 0), b"x" * 500, db=databases.records)
    await store.close()
    assert compact_store(tmp_path).leftovers == 1
    assert await after(tmp_path) == lines
    store = await opened(tmp_path)
    with store.environment.reading() as transaction:
        assert transaction.get(record_key(99, 0), db=store.environment.databases.records) is None
    await store.close()


async def test_a_store_that_is_open_is_not_compacted(tmp_path: Path) -> None:
    await family(tmp_path)
    before = (tmp_path / "data.mdb").read_bytes()
    store = await opened(tmp_path)
    with pytest.raises(LogBusyError):
        compact_store(tmp_path)
    await store.close()
    with StoreChild("own", tmp_path) as child:
        assert child.answer() == "ready"
        with pytest.raises(LogBusyError):
            compact_store(tmp_path)
        child.kill()
    assert (tmp_path / "data.mdb").read_bytes() == before
    compact_store(tmp_path)


async def test_a_lease_that_is_held_stops_a_compaction_whoever_holds_it(tmp_path: Path) -> None:
    """A release that knows nothing of the store's lock holds leases all the same."""
    lines = await family(tmp_path)
    lease = await Leases(tmp_path, lambda: 1, "an older release").take(SESSION)
    with pytest.raises(LogBusyError) as caught:
        compact_store(tmp_path)
    assert caught.value.details["holder"] == os.getpid()
    lease.release()
    compact_store(tmp_path)
    assert await after(tmp_path) == lines


async def test_nobody_opens_a_store_while_it_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant: Nobody has a store open while it is compacted, nor LMDB's lock file while waiting for that."""
    lines = await family(tmp_path)
    monkeypatch.setattr(occupancy, "OCCUPY_SECONDS", 0.0)
    stages: list[str] = []

    def look(stage: str) -> None:
        stages.append(stage)
        with pytest.raises(LogBusyError):
            occupy(tmp_path)
        with StoreChild("compact", tmp_path) as child:
            assert child.answer().startswith("busy")

    compact_store(tmp_path, fail_point=look)
    assert stages == ["swept", "copied", "replaced"]
    assert await after(tmp_path) == lines


async def test_an_opener_waits_for_a_compaction_and_opens_what_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data file is replaced between the opener's look at it and its lock."""
    lines = await family(tmp_path)
    real = occupancy.occupy

    def late(folder: Path) -> occupancy.StoreLock:
        with StoreChild("compact", folder) as child:
            assert child.answer().startswith("from")
        return real(folder)

    monkeypatch.setattr("refold_storage.store_opening.open_environment.__kwdefaults__", {"occupied": late, "accept": False})
    store = await opened(tmp_path)
    monkeypatch.undo()
    assert await contents(store) == lines
    handle = await store.open(OTHER, "write")
    handle.append(chunks(3))
    await handle.close()
    lines[OTHER] += (await store.open(OTHER, "read")).lines(len(lines[OTHER]))
    await store.close()
    assert await after(tmp_path) == lines


@pytest.mark.parametrize("commits", [0, 1])
async def test_several_that_wait_for_a_compaction_all_open_what_it_made(tmp_path: Path, commits: int) -> None:
    """LMDB's lock file keeps the number of the old file's last transaction while anybody has it open. The copy begins to
    count anew: with that number, every second time, all of its sessions would be gone."""
    lines = await family(tmp_path)
    store = await opened(tmp_path)
    for _ in range(commits):
        await store.set_archived(SessionId("third"), True)
    await store.close()
    with StoreChild("late", tmp_path) as one, StoreChild("late", tmp_path) as two:
        assert (one.answer(), two.answer()) == ("late", "late")
        compact_store(tmp_path)
        assert [one.ask(), two.ask()] == [" ".join(sorted(lines))] * 2
        assert await after(tmp_path) == lines


def broken(error: Exception) -> Callable[[Environment, int], None]:
    def copy_to(environment: Environment, file: int) -> None:
        os.write(file, b"half a copy")
        raise error

    return copy_to


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (lmdb.DiskError("mdb_env_copyfd2", errno.ENOSPC), StorageFullError),
        (OSError(errno.EIO, "broken"), LogUnwritableError),
    ],
)
async def test_a_copy_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, meaning: type[Exception]
) -> None:
    lines = await family(tmp_path)
    with monkeypatch.context() as failing:
        failing.setattr(Environment, "copy_to", broken(error))
        with pytest.raises(meaning):
            compact_store(tmp_path)
    assert not (tmp_path / COPY_FILE).exists()
    assert await after(tmp_path) == lines
    compact_store(tmp_path)
    assert await after(tmp_path) == lines


async def test_a_copy_that_lacks_something_never_replaces_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = await family(tmp_path)
    (tmp_path / "empty").mkdir()
    await (await opened(tmp_path / "empty")).close()
    other = (tmp_path / "empty" / "data.mdb").read_bytes()

    def copy_to(environment: Environment, file: int) -> None:
        os.write(file, other)

    monkeypatch.setattr(Environment, "copy_to", copy_to)
    with pytest.raises(LogUnwritableError, match="does not hold"):
        compact_store(tmp_path)
    assert await after(tmp_path) == lines


async def test_what_holds_no_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        compact_store(tmp_path)
    assert files_with(tmp_path, b"") == []
    lmdb.open(str(tmp_path), lib_version=0).close()
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1_000)
    with pytest.raises(SessionFormatUnsupportedError):
        compact_store(tmp_path)
    assert not (tmp_path / OCCUPANCY_FILE).exists()


async def test_a_copy_that_a_dead_process_left_goes_with_the_next_opening(tmp_path: Path) -> None:
    lines = await family(tmp_path)
    (tmp_path / COPY_FILE).write_bytes(b"half")
    assert await after(tmp_path) == lines
    assert not (tmp_path / COPY_FILE).exists()
