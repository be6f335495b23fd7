"""When accepted events are committed, by whom, and what a waiting flush is told."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold_protocol.errors import LogBusyError, LogError, LogUnwritableError, StorageFullError
from refold_storage.commit import COMMIT_BYTES
from refold_storage.interface import Handle
from refold_storage.lmdb_store import open_store
from refold_storage.pending_writes import PendingWrites
from refold_storage.store import LmdbStore
from tests.storage.test_environment import open_transactions
from tests.support.store_child import StoreChild
from tests.support.stores import (
    NEW,
    OTHER,
    SESSION,
    DiskFaults,
    chunk,
    chunks,
    filled,
    lines_of,
    new,
    new_uuid,
    tool_result,
    until,
)

pytestmark = pytest.mark.anyio

NEVER = 3_600.0


class Stages:
    """A fail point that counts commits, can hold one up and can make one fail."""

    def __init__(self) -> None:
        self.commits = 0
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.fail_next = False

    def __call__(self, stage: str) -> None:
        self.threads.add(threading.get_ident())
        self.commits += stage == "committed"
        if stage == "begun":
            self.reached.set()
            self.gate.wait()
            failing, self.fail_next = self.fail_next, False
            if failing:
                raise StorageFullError("says the test")


@pytest.fixture
def stages() -> Stages:
    return Stages()


@pytest.fixture
async def store(tmp_path: Path, stages: Stages) -> AsyncGenerator[LmdbStore]:
    """A store whose commits happen only on request."""
    opened = await open_store(tmp_path, new_uuid=new_uuid, commit_seconds=NEVER, fail_point=stages)
    yield opened
    await opened.close()


async def until_durable(handle: Handle, seq: int) -> None:
    """Wait, without asking for it, until the events up to `seq` are durable."""
    reached = asyncio.Event()
    stop = handle.watch_durable(lambda durable: reached.set() if durable >= seq else None)
    await reached.wait()
    stop()


async def test_what_nobody_flushes_is_committed_in_the_background(tmp_path: Path) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid, commit_seconds=0.001)
    handle = await store.create(NEW)
    for _ in range(3):
        events = handle.append(chunks(3))
        await until_durable(handle, events[-1].seq)
    assert store.get(SESSION).tail == 8
    await store.close()


async def test_many_unwritten_bytes_are_committed_without_waiting(store: LmdbStore, stages: Stages) -> None:
    handle = await store.create(NEW)
    handle.append([tool_result(COMMIT_BYTES // 2)])
    assert stages.commits == 0
    handle.append([tool_result(COMMIT_BYTES // 2)])
    await until_durable(handle, 1)
    assert stages.commits == 1


async def test_sessions_that_wait_together_are_committed_together_by_one_thread(store: LmdbStore, stages: Stages) -> None:
    handles = [await store.create(new(f"s{number}")) for number in range(8)]
    for handle in handles:
        handle.append(chunks(4))
    await asyncio.gather(*(handle.flush() for handle in handles))
    assert stages.commits == 1
    assert len(stages.threads) == 1
    assert threading.get_ident() not in stages.threads


async def test_appending_does_not_wake_the_commit_thread_again_and_again(store: LmdbStore, stages: Stages) -> None:
    handle = await store.create(NEW)
    for _ in range(500):
        handle.append([chunk()])
        await asyncio.sleep(0)
    assert stages.commits == 0
    await handle.flush()
    assert stages.commits == 1


async def test_events_accepted_during_a_commit_are_in_the_next_one(store: LmdbStore, stages: Stages) -> None:
    handle = await store.create(NEW)
    stages.gate.clear()
    handle.append(chunks(3))
    first = asyncio.ensure_future(handle.flush())
    await asyncio.to_thread(stages.reached.wait)
    handle.append(chunks(4, 3))
    second = asyncio.ensure_future(handle.flush())
    assert [event.seq for event in handle.read()] == list(range(7))
    await asyncio.sleep(0)
    stages.gate.set()
    assert await first >= 2
    assert await second == 6
    assert stages.commits == 2
    reader = await store.open(SESSION, "read")
    assert lines_of(reader) == lines_of(handle)


async def test_a_flush_is_not_disappointed_by_a_commit_that_began_before_it(store: LmdbStore, stages: Stages) -> None:
    handle = await store.create(NEW)
    stages.gate.clear()
    stages.fail_next = True
    handle.append(chunks(3))
    first = asyncio.ensure_future(handle.flush())
    await asyncio.to_thread(stages.reached.wait)
    second = asyncio.ensure_future(handle.flush())
    await asyncio.sleep(0)
    stages.gate.set()
    with pytest.raises(StorageFullError):
        await first
    assert await second == 2


async def test_a_cancelled_flush_does_not_stop_the_commit(store: LmdbStore, stages: Stages) -> None:
    handle = await store.create(NEW)
    stages.gate.clear()
    handle.append(chunks(3))
    waiting = asyncio.ensure_future(handle.flush())
    await asyncio.to_thread(stages.reached.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    stages.gate.set()
    await until_durable(handle, 2)
    assert stages.commits == 1


async def test_a_cancelled_close_still_flushes_and_then_frees_the_lease(store: LmdbStore, stages: Stages) -> None:
    handle = await store.create(NEW)
    stages.gate.clear()
    handle.append(chunks(3))
    closing = asyncio.ensure_future(handle.close())
    await asyncio.to_thread(stages.reached.wait)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert store.is_owned(SESSION)
    stages.gate.set()
    await handle.close()
    assert not store.is_owned(SESSION)
    assert store.get(SESSION).tail == 2


async def test_a_flush_that_takes_too_long_names_the_process_that_has_the_write_lock(
    store: LmdbStore, stages: Stages, tmp_path: Path
) -> None:
    handle = await filled(store, chunks(1))
    told: list[LogError | None] = []
    handle.watch_trouble(told.append)
    with StoreChild("hold", tmp_path) as child:
        assert child.answer() == "ready"
        child.signal(signal.SIGSTOP)
        handle.append(chunks(3))
        with pytest.raises(LogBusyError) as caught:
            await handle.flush(timeout=0.05)
        with pytest.raises(LogBusyError):
            await handle.flush(timeout=0.05)
        assert isinstance(handle.trouble, LogBusyError)
        assert handle.trouble.details["holder"] == child.pid
        assert caught.value.details["holder"] == child.pid
        assert str(child.pid) in caught.value.message
        assert handle.durable == 0
        assert len(lines_of(handle)) == 4
        child.signal(signal.SIGCONT)
        assert child.ask() == "free"
        assert await handle.flush() == 3
    assert [type(error) for error in told] == [LogBusyError, type(None)]
    assert handle.trouble is None


async def test_a_disk_that_is_slow_is_not_laid_to_the_process_that_waits_for_it(store: LmdbStore, stages: Stages) -> None:
    handle = await filled(store, chunks(1))
    stages.reached.clear()
    stages.gate.clear()
    handle.append(chunks(3))
    with pytest.raises(LogBusyError) as caught:
        await asyncio.gather(handle.flush(timeout=0.05), asyncio.to_thread(stages.reached.wait))
    assert caught.value.details.get("holder") is None
    assert "process" not in caught.value.message
    stages.gate.set()
    assert await handle.flush() == 3


async def test_a_handle_closed_while_the_log_is_busy_frees_its_lease_and_writes_nothing_later(
    tmp_path: Path, stages: Stages
) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid, flush_seconds=0.05, fail_point=stages)
    await (await filled(store, chunks(2))).close()
    handle = await store.open(SESSION, "write")
    with StoreChild("hold", tmp_path) as child:
        assert child.answer() == "ready"
        handle.append(chunks(5))
        with pytest.raises(LogBusyError):
            await handle.close()
        assert not store.is_owned(SESSION)
        again = await store.open(SESSION, "write")
        again.append([chunk("mine")])
        assert child.ask() == "free"
    assert await again.flush(timeout=60) == 2
    assert b"mine" in lines_of(again)[2]
    await store.close()


async def test_a_lease_is_kept_while_its_events_are_on_their_way_to_the_disk(tmp_path: Path, stages: Stages) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid, flush_seconds=0.05, fail_point=stages)
    handle = await filled(store, chunks(2))
    slow = threading.Event()

    def written(stage: str) -> None:
        if stage == "written":
            stages.reached.set()
            slow.wait()

    stages.reached.clear()
    store.commits.fail_point = written
    handle.append(chunks(5))
    with pytest.raises(LogBusyError):
        await handle.close()
    assert store.is_owned(SESSION)
    slow.set()
    await until(lambda: not store.is_owned(SESSION))
    assert store.get(SESSION).tail == 6
    await store.close()


async def test_no_more_is_accepted_when_commits_do_not_keep_up_and_memory_is_used_up(tmp_path: Path, stages: Stages) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid, backlog_bytes=1_000, fail_point=stages)
    handle = await store.create(NEW)
    stages.gate.clear()
    handle.append([tool_result(2_000)])
    with pytest.raises(LogBusyError):
        handle.append(chunks(1))
    assert handle.tail == 0
    stages.gate.set()
    await handle.flush()
    assert handle.append(chunks(1))[0].seq == 1
    await store.close()


async def test_a_full_disk_is_tried_again_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold_storage.commit.RETRY_SECONDS", (0.001, 0.01))
    faults = DiskFaults()
    store = await open_store(tmp_path, new_uuid=new_uuid, commit_seconds=0.001, fail_point=faults)
    handle = await store.create(NEW)
    faults.full = True
    handle.append(chunks(3))
    with pytest.raises(StorageFullError):
        await handle.flush()
    await until(lambda: len(faults.stages) >= 20)
    assert handle.durable == -1
    faults.full = False
    await until_durable(handle, 2)
    assert handle.trouble is None
    await store.close()


async def test_a_log_that_somebody_else_wrote_past_the_lease_is_not_written_and_others_are(
    store: LmdbStore, tmp_path: Path
) -> None:
    """Storage never repairs: the intruder's events stay, and this writer is told."""
    handle = await filled(store, chunks(2))
    other = await store.create(new(OTHER))
    for lock in (tmp_path / "leases").rglob("*.lock"):
        lock.unlink()
    with StoreChild("write", tmp_path, 3) as child:
        assert child.answer() == "1"
        assert child.ask() == "4"
    handle.append(chunks(1))
    other.append(chunks(1))
    assert (await asyncio.gather(handle.flush(), other.flush(), return_exceptions=True))[1] == 0
    with pytest.raises(LogUnwritableError, match="somebody else wrote"):
        await handle.flush()
    assert store.get(SESSION).tail == 4
    with pytest.raises(LogUnwritableError):
        await handle.close()


async def test_a_handle_whose_loop_is_gone_does_not_disturb_the_commit_thread(tmp_path: Path) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid, commit_seconds=0.001)

    def elsewhere() -> None:
        async def leave() -> None:
            (await store.create(NEW)).append(chunks(3))

        asyncio.run(leave())

    await asyncio.to_thread(elsewhere)
    handle = await filled(store, chunks(2), new(OTHER))
    while not store.recent(limit=2)[1:]:
        handle.append(chunks(1))
        await handle.flush()
    assert store.get(SESSION).tail == 2
    await handle.close()


async def test_no_read_transaction_is_left_open_by_any_use(store: LmdbStore) -> None:
    handle = await filled(store, chunks(2_000))
    reader = await store.open(SESSION, "read")
    halves = [handle.read(), reader.read(), handle.read(500), reader.records()]
    for half in halves:
        next(half)
        assert open_transactions(store.environment) == []
    handle.append(chunks(10))
    await handle.flush()
    reader.refresh()
    reader.lines(3, max_bytes=10)
    store.get(SESSION)
    store.recent(limit=3)
    await reader.close()
    assert open_transactions(store.environment) == []


async def test_what_is_accepted_while_no_thread_is_to_be_had_is_committed_once_there_is_one(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once an event is accepted, nothing that fails may say otherwise."""
    handle = await store.create(NEW)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert len(handle.append(chunks(3))) == 3
    assert await handle.flush() == 2


async def test_a_bug_that_ends_the_commit_thread_is_told_to_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(tmp_path, new_uuid=new_uuid)
    handle, idle = await store.create(NEW), await store.create(new(OTHER))
    told: list[LogError | None] = []
    idle.watch_trouble(told.append)

    def share(*_: object) -> None:
        raise ZeroDivisionError("says the test")

    with monkeypatch.context() as patch:
        patch.setattr(PendingWrites, "share", share)
        handle.append(chunks(1))
        with pytest.raises(LogUnwritableError, match="says the test"):
            await handle.flush()
    assert [type(error) for error in told] == [LogUnwritableError]
    with pytest.raises(LogUnwritableError, match="start again"):
        await handle.close()
    await idle.close()
    await store.close()


async def test_a_thread_of_a_closed_store_is_gone(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = await open_store(tmp_path, new_uuid=new_uuid)
    await filled(store, chunks(2))
    assert set(threading.enumerate()) - before
    await store.close()
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("refold")] == []
