"""What a store promises when commits fail, held against the LMDB store and the in-memory double alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold_protocol.errors import LogUnwritableError, SessionHandleClosedError, StorageFullError
from refold_storage.damage import walk_chain
from refold_storage.interface import Store
from tests.support.stores import NEW, OTHER, SESSION, StoreKind, chunk, chunks, filled, lines_of, new, tool_result

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "lmdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    return StoreKind(None if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def store(kind: StoreKind) -> AsyncGenerator[Store]:
    opened = await kind.open(backlog_bytes=10_000)
    yield opened
    kind.faults.full = False
    if not kind.faults.broken:
        await opened.close()


async def test_a_full_disk_loses_nothing_and_a_later_flush_succeeds(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, chunks(3))
    reader = await store.open(SESSION, "read")
    kind.faults.full = True
    handle.append(chunks(3, 3))
    with pytest.raises(StorageFullError):
        await handle.flush()
    with pytest.raises(StorageFullError):
        await handle.flush()
    assert isinstance(handle.trouble, StorageFullError)
    assert (handle.tail, handle.durable) == (5, 2)
    assert len(lines_of(handle)) == 6
    assert reader.refresh() == 2
    handle.append(chunks(1, 6))
    kind.faults.full = False
    assert await handle.flush() == 6
    assert handle.trouble is None
    assert reader.refresh() == 6
    assert lines_of(reader) == lines_of(handle)
    assert len(list(walk_chain(reader))) == 7


async def test_what_was_durable_before_needs_no_disk(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, chunks(3))
    kind.faults.full = True
    handle.append(chunks(1))
    assert await handle.flush(2) == 2


async def test_events_are_accepted_on_a_full_disk_until_their_memory_is_used_up(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, chunks(1))
    kind.faults.full = True
    handle.append([tool_result(20_000)])
    with pytest.raises(StorageFullError):
        await handle.flush()
    with pytest.raises(StorageFullError):
        handle.append(chunks(1))
    assert handle.tail == 1
    kind.faults.full = False
    await handle.flush()
    assert handle.append(chunks(1))[0].seq == 2


async def test_a_handle_that_cannot_flush_says_so_when_it_is_closed_and_frees_its_lease(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, chunks(2))
    kind.faults.full = True
    handle.append(chunks(5))
    with pytest.raises(StorageFullError):
        await handle.close()
    await handle.close()
    with pytest.raises(SessionHandleClosedError):
        handle.append(chunks(1))
    assert not store.is_owned(SESSION)
    kind.faults.full = False
    again = await store.open(SESSION, "write")
    assert again.tail == 1
    again.append([chunk("other")])
    assert await again.flush() == 2


async def test_one_full_session_does_not_harm_another(kind: StoreKind, store: Store) -> None:
    one, two = await store.create(NEW), await store.create(new(OTHER))
    kind.faults.full = True
    one.append(chunks(3))
    with pytest.raises(StorageFullError):
        await one.flush()
    kind.faults.full = False
    two.append(chunks(2))
    assert await two.flush() == 1
    assert await one.flush() == 2


async def test_a_commit_that_fails_for_another_reason_is_the_end_of_writing(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, chunks(3))
    idle = await store.create(new(OTHER))
    kind.faults.broken = True
    handle.append(chunks(3))
    with pytest.raises(LogUnwritableError):
        await handle.flush()
    kind.faults.broken = False
    with pytest.raises(LogUnwritableError):
        await handle.flush()
    assert isinstance(handle.trouble, LogUnwritableError)
    assert [event.seq for event in handle.append(chunks(1))] == [6]
    idle.append(chunks(1))
    with pytest.raises(LogUnwritableError):
        await idle.flush()
    with pytest.raises(LogUnwritableError):
        await handle.close()
    kind.faults.broken = True


async def test_an_unwritable_log_takes_events_until_their_memory_is_used_up(kind: StoreKind, store: Store) -> None:
    handle = await store.create(NEW)
    kind.faults.broken = True
    handle.append([tool_result(20_000)])
    with pytest.raises(LogUnwritableError):
        await handle.flush()
    with pytest.raises(LogUnwritableError):
        handle.append(chunks(1))


async def test_watchers_are_told_when_commits_fail_and_when_one_succeeds_again(kind: StoreKind, store: Store) -> None:
    handle, other = await filled(store, chunks(1)), await filled(store, chunks(1), new(OTHER))
    told: list[tuple[str, type[object] | None, int]] = []
    stops = [
        each.watch_trouble(lambda error, each=each, name=name: told.append((name, error and type(error), each.durable)))
        for name, each in (("one", handle), ("other", other))
    ]
    handle.append(chunks(1))
    await handle.flush()
    assert told == [], "all is well"
    kind.faults.full = True
    handle.append(chunks(1))
    with pytest.raises(StorageFullError):
        await handle.flush()
    kind.faults.full = False
    await handle.flush()
    assert told == [("one", StorageFullError, 1), ("one", None, 2)]
    await other.close()
    stops[0]()
    kind.faults.full = True
    handle.append(chunks(1))
    with pytest.raises(StorageFullError):
        await handle.flush()
    assert len(told) == 2


async def test_everybody_is_told_when_nothing_can_be_written_any_more(kind: StoreKind, store: Store) -> None:
    writing, idle, gone = await filled(store, chunks(1)), await store.create(new(OTHER)), await store.create(new("gone"))
    reader = await store.open(SESSION, "read")
    told: list[str] = []
    for name, each in (("writing", writing), ("idle", idle), ("gone", gone), ("reader", reader)):
        each.watch_trouble(lambda error, name=name: told.append(f"{name} {type(error).__name__}"))
    await gone.close()
    kind.faults.broken = True
    writing.append(chunks(1))
    with pytest.raises(LogUnwritableError):
        await writing.flush()
    assert sorted(told) == ["idle LogUnwritableError", "writing LogUnwritableError"]


async def test_what_ends_all_that_stands_open_is_taken_though_the_memory_is_used_up(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, chunks(1))
    kind.faults.full = True
    handle.append([tool_result(20_000)])
    with pytest.raises(StorageFullError):
        await handle.flush()
    assert handle.append(chunks(2), closing=True)[-1].seq == 3
    with pytest.raises(StorageFullError):
        handle.append(chunks(1))
    kind.faults.full = False
    assert await handle.flush() == 3
