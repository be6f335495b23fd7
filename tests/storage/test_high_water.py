"""The high-water mark: a store that lacks what it promised is noticed, whatever made it so, and nothing is committed to it."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import lmdb
import pytest

from refold_protocol.errors import ConfigError, LogBusyError, LogUnwritableError
from refold_storage.high_water import MARK_FILE, NO_COMMIT, SLOTS, Commit, HighWaterMark, last_commit
from refold_storage.lmdb_store import accept_store, open_store
from refold_storage.store import LmdbStore
from refold_storage.store_compaction import compact_store
from tests.support.store_child import StoreChild
from tests.support.stores import SESSION, chunks, filled, new_uuid

pytestmark = pytest.mark.anyio


async def opened(folder: Path) -> LmdbStore:
    return await open_store(folder, new_uuid=new_uuid)


async def more(folder: Path, commits: int) -> int:
    """Commit so many times to the session of a store; give where its log ends."""
    store = await opened(folder)
    handle = await (store.open(SESSION, "write") if list(store.survey()) else filled(store, chunks(1)))
    for _ in range(commits):
        handle.append(chunks(1))
        await handle.flush()
    await store.close()
    return handle.durable


async def tail(folder: Path) -> int:
    store = await opened(folder)
    try:
        return store.get(SESSION).tail
    finally:
        await store.close()


def noted(folder: Path) -> Commit:
    mark = HighWaterMark(folder)
    try:
        return mark.newest()
    finally:
        mark.close()


async def test_each_commit_is_counted_in_the_data_and_in_the_file(tmp_path: Path) -> None:
    await more(tmp_path, 3)
    before = noted(tmp_path)
    await more(tmp_path, 2)
    assert noted(tmp_path) == Commit(before.number + 2, before.transaction + 2)
    store = await opened(tmp_path)
    with store.environment.reading() as transaction:
        assert last_commit(transaction, store.environment.databases.meta) == noted(tmp_path)
    await store.close()


@pytest.mark.parametrize("commits", [4, 5])
async def test_a_number_that_a_killed_opener_left_is_set_right_and_nothing_is_lost(tmp_path: Path, commits: int) -> None:
    """LMDB goes on from the number in its lock file where somebody else seems to have it open: from the wrong one of its
    two first pages, or, where that is the right one, with numbers that are used already."""
    end = await more(tmp_path, commits)
    with StoreChild("dying", tmp_path) as other:
        assert other.answer() == "locked"
        store = await opened(tmp_path)
    assert store.get(SESSION).tail == end
    await store.close()
    assert await more(tmp_path, 1) == end + 1


async def test_a_commit_that_vanished_stops_an_open_store_before_it_writes(tmp_path: Path) -> None:
    end = await more(tmp_path, 3)
    store = await opened(tmp_path)
    before = (tmp_path / "data.mdb").read_bytes()
    HighWaterMark(tmp_path).put(Commit(noted(tmp_path).number + 1, noted(tmp_path).transaction + 1))
    handle = await store.open(SESSION, "write")
    handle.append(chunks(1))
    with pytest.raises(LogUnwritableError, match=r"older than what was kept in it .*`refold store accept`"):
        await handle.flush()
    with pytest.raises(LogUnwritableError):
        await store.set_archived(SESSION, True)
    with pytest.raises(LogUnwritableError):
        await store.close()
    assert (tmp_path / "data.mdb").read_bytes() == before
    assert handle.durable == end


async def test_transactions_that_lmdb_counts_anew_stop_an_open_store_before_it_writes(tmp_path: Path) -> None:
    await more(tmp_path, 4)
    store = await opened(tmp_path)
    before = (tmp_path / "data.mdb").read_bytes()
    with StoreChild("zero", tmp_path) as child:  # not this process, which would lose LMDB's locks when it closes the file
        assert child.answer() == "zero"
    with pytest.raises(LogUnwritableError, match="older than what was kept"):
        await store.set_archived(SESSION, True)
    await store.close()
    assert (tmp_path / "data.mdb").read_bytes() == before


async def test_an_old_copy_is_refused_until_it_is_accepted_and_again_when_it_is_restored_again(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    old = await more(store, 2)
    shutil.copy(store / "data.mdb", copy)
    await more(store, 3)
    for _ in range(2):
        shutil.copy(copy, store / "data.mdb")
        with pytest.raises(LogUnwritableError, match="`refold store accept`"):
            await opened(store)
        accept_store(store)
        assert await tail(store) == old
        assert await more(store, 2) == old + 2


async def test_a_whole_folder_that_is_restored_needs_no_word(tmp_path: Path) -> None:
    old = await more(tmp_path / "store", 2)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    await more(tmp_path / "store", 3)
    assert await tail(tmp_path / "copy") == old


async def test_a_copy_without_the_file_is_opened_and_promises_what_it_has(tmp_path: Path) -> None:
    await more(tmp_path, 2)
    before = noted(tmp_path)
    (tmp_path / MARK_FILE).unlink()
    await tail(tmp_path)
    assert noted(tmp_path) == before


async def test_a_store_of_a_release_that_did_not_count_is_counted_from_its_next_commit(tmp_path: Path) -> None:
    end = await more(tmp_path, 2)
    environment = lmdb.open(str(tmp_path), max_dbs=8, lib_version=0)
    meta = environment.open_db(b"meta")
    with environment.begin(write=True) as transaction:
        transaction.delete(b"commits", db=meta)
    environment.close()
    (tmp_path / MARK_FILE).unlink()
    assert await tail(tmp_path) == end
    assert noted(tmp_path) == NO_COMMIT
    assert await more(tmp_path, 1) == end + 1
    assert noted(tmp_path).number == 1


async def test_a_data_file_that_vanished_is_no_new_store(tmp_path: Path) -> None:
    await more(tmp_path, 2)
    number = noted(tmp_path).number
    (tmp_path / "data.mdb").unlink()
    with pytest.raises(LogUnwritableError, match="its data file is empty"):
        await opened(tmp_path)
    accept_store(tmp_path)
    assert noted(tmp_path).number > number
    store = await opened(tmp_path)
    assert list(store.survey()) == []
    await store.close()


async def test_a_compaction_goes_on_counting_though_lmdb_begins_anew(tmp_path: Path) -> None:
    end = await more(tmp_path, 5)
    before = noted(tmp_path)
    compact_store(tmp_path)
    assert await tail(tmp_path) == end
    assert noted(tmp_path).number > before.number
    assert noted(tmp_path).transaction < before.transaction
    assert await more(tmp_path, 2) == end + 2


async def test_only_a_store_that_is_there_and_open_nowhere_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no store in"):
        accept_store(tmp_path / "none")
    store = await opened(tmp_path / "store")
    with pytest.raises(LogBusyError, match="this process"):
        accept_store(tmp_path / "store")
    await store.close()
    with StoreChild("own", tmp_path / "store") as child:
        assert child.answer() == "ready"
        with pytest.raises(LogBusyError, match="is open in process"):
            accept_store(tmp_path / "store")


def test_who_comes_late_with_a_commit_takes_no_newer_one_away(tmp_path: Path) -> None:
    mark = HighWaterMark(tmp_path)
    for number in (7, 9, 8, 2 * SLOTS, SLOTS + 1):
        mark.put(Commit(number, number))
    assert mark.newest() == Commit(2 * SLOTS, 2 * SLOTS)
    mark.close()


def test_what_was_written_in_part_is_not_believed(tmp_path: Path) -> None:
    mark = HighWaterMark(tmp_path)
    mark.put(Commit(1, 1))
    mark.put(Commit(2, 2))
    file = os.open(tmp_path / MARK_FILE, os.O_RDWR)
    os.pwrite(file, struct.pack("<Q", 99), 2 * 24)
    os.close(file)
    assert mark.newest() == Commit(1, 1)
    mark.close()
