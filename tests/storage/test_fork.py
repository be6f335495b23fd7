"""How the LMDB store makes a fork: what it writes, how much, and what can come between."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import lmdb
import pytest

from refold_protocol.errors import LogBusyError, LogError, LogUnwritableError, SessionCorruptionError, SessionNotFoundError
from refold_storage import catalog
from refold_storage.lmdb_store import open_store
from refold_storage.record_keys import RecordSegment, parse_child_key, parse_child_value, record_key
from refold_storage.records import decode_record
from refold_storage.store import LmdbStore
from tests.support.store_child import StoreChild
from tests.support.stores import NEW, OTHER, SESSION, chunks, filled, new, new_uuid, prompt, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[LmdbStore]:
    opened = await open_store(tmp_path, new_uuid=new_uuid)
    yield opened
    await opened.close()


def segments(store: LmdbStore, session: str) -> tuple[tuple[int, int], ...]:
    """Owners and last seqs of a session's segments."""
    with store.environment.reading() as transaction:
        row = catalog.find(transaction, store.environment.databases, new(session).id)
    assert row is not None
    assert all(isinstance(segment, RecordSegment) for segment in row.segments)
    return tuple((segment.owner, segment.last) for segment in row.segments)


def children(store: LmdbStore) -> dict[tuple[int, int], int]:
    """Who needs whose events: the rows of `children`."""
    with store.environment.reading() as transaction, transaction.cursor(db=store.environment.databases.children) as cursor:
        return {parse_child_key(key): parse_child_value(value)[0] for key, value in cursor}


def records(store: LmdbStore) -> int:
    with store.environment.reading() as transaction:
        return transaction.stat(store.environment.databases.records)["entries"]


async def test_a_fork_of_a_fork_names_the_first_owners(store: LmdbStore) -> None:
    await (await filled(store, chunks(60))).close()
    await store.fork(SESSION, 49, new("two"))
    two = await store.open(new("two").id, "write")
    two.append(chunks(60))
    await two.close()
    await store.fork(two.id, 99, new("three"))
    await store.fork(two.id, 49, new("four"))
    await store.fork(two.id, 10, new("five"))
    await store.fork(new("three").id, 99, new("six"))
    assert segments(store, "two") == ((1, 49),)
    assert segments(store, "three") == segments(store, "six") == ((1, 49), (2, 99))
    assert segments(store, "four") == ((1, 49),)
    assert segments(store, "five") == ((1, 10),)
    assert children(store) == {(1, 2): 49, (1, 3): 49, (2, 3): 99, (1, 4): 49, (1, 5): 10, (1, 6): 49, (2, 6): 99}


async def test_a_fork_writes_no_event_and_reads_two_records_however_long_the_history_is(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await store.create(NEW)
    read: list[int] = []

    def counted(first: int, value: bytes) -> object:
        read.append(first)
        return decode_record(first, value)

    for number in range(6):
        parent.append([prompt(), *chunks(1_000)])
        await parent.flush()
        before = records(store)
        read.clear()
        with monkeypatch.context() as counting:
            counting.setattr("refold_storage.reader.decode_record", counted)
            await store.fork(SESSION, parent.tail - 3, new(f"fork {number}"))
        assert records(store) == before
        assert len(read) <= 2


async def test_a_parent_that_is_damaged_where_it_is_forked_is_refused(store: LmdbStore) -> None:
    await (await filled(store, chunks(900))).close()
    with store.environment.writing() as transaction:
        transaction.delete(record_key(1, 0), db=store.environment.databases.records)
    with pytest.raises(SessionCorruptionError):
        await store.fork(SESSION, 3, new(OTHER))
    assert (await store.fork(SESSION, 899, new(OTHER))).tail == 899


async def test_a_fork_waits_for_the_write_lock_and_gives_up_in_time(tmp_path: Path) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid, flush_seconds=0.2)
    await (await filled(store, chunks(3))).close()
    with StoreChild("hold", tmp_path) as child:
        assert child.answer() == "ready"
        with pytest.raises(LogBusyError) as caught:
            await store.fork(SESSION, 1, new(OTHER))
        assert caught.value.details["holder"] == child.pid
        assert not store.is_owned(OTHER)
        assert child.ask() == "free"
    assert (await store.fork(SESSION, 2, new(OTHER))).tail == 2
    await store.close()


async def test_a_store_is_closed_in_time_though_a_change_that_was_given_up_still_waits_for_a_stopped_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the change waits in LMDB, where nothing ends it but the lock."""
    monkeypatch.setattr("refold_storage.shared_environments.STOP_SECONDS", 0.05)
    store = await open_store(tmp_path, new_uuid=new_uuid, flush_seconds=0.05)
    await (await filled(store, chunks(3))).close()
    with StoreChild("hold", tmp_path) as child:
        assert child.answer() == "ready"
        child.signal(signal.SIGSTOP)
        with pytest.raises(LogBusyError):
            await store.fork(SESSION, 1, new(OTHER))
        await store.close()
        with pytest.raises(LogUnwritableError, match="while another process held up"):
            await open_store(tmp_path, new_uuid=new_uuid)
        child.signal(signal.SIGCONT)
        assert child.ask() == "free"


async def test_a_fork_that_is_under_way_is_finished_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    reached, go = threading.Event(), threading.Event()

    def stop(stage: str) -> None:
        if stage == "written" and threading.current_thread().name == "refold change":
            reached.set()
            go.wait()

    store = await open_store(tmp_path, new_uuid=new_uuid, fail_point=stop)
    await (await filled(store, chunks(3))).close()
    caller = asyncio.ensure_future(store.fork(SESSION, 1, new(OTHER)))
    await until(reached.is_set)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert store.is_owned(OTHER)
    go.set()
    await until(lambda: not store.is_owned(OTHER))
    assert store.get(new(OTHER).id).tail == 1
    await store.close()


async def test_a_store_that_is_closed_finishes_its_forks_first(tmp_path: Path) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid)
    await (await filled(store, chunks(3))).close()
    caller = asyncio.ensure_future(store.fork(SESSION, 1, new(OTHER)))
    await asyncio.sleep(0)
    await store.close()
    assert (await caller).tail == 1


async def test_a_fork_that_fails_for_another_reason_than_space_is_the_end_of_writing(tmp_path: Path) -> None:
    def break_it(stage: str) -> None:
        if stage == "written" and threading.current_thread().name == "refold change":
            raise lmdb.Error("mdb_txn_commit says the test")

    store = await open_store(tmp_path, new_uuid=new_uuid, fail_point=break_it)
    handle = await filled(store, chunks(3))
    told: list[LogError | None] = []
    handle.watch_trouble(told.append)
    with pytest.raises(LogUnwritableError, match=r"says the test.*start again"):
        await store.fork(SESSION, 1, new(OTHER))
    assert isinstance(handle.trouble, LogUnwritableError)
    await until(lambda: bool(told))  # nothing of this session was on its way
    assert [type(error) for error in told] == [LogUnwritableError]
    handle.append(chunks(1))
    with pytest.raises(LogUnwritableError):
        await handle.flush()
    with pytest.raises(LogUnwritableError):
        await store.close()


async def test_a_fork_that_does_not_fit_the_map_makes_it_grow(tmp_path: Path) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid, map_bytes=1 << 20)
    await (await filled(store, chunks(3))).close()
    before = store.environment.map_bytes
    number = 0
    while store.environment.map_bytes == before:
        await store.fork(SESSION, 1, new(f"fork {number}" + "x" * 30_000))
        number += 1
    assert store.get(new("fork 0" + "x" * 30_000).id).tail == 1
    await store.close()


async def test_a_parent_that_vanished_is_unknown(store: LmdbStore) -> None:
    with pytest.raises(SessionNotFoundError):
        await store.fork(SESSION, 0, new(OTHER))
    assert not store.is_owned(OTHER)
