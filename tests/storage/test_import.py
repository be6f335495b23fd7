"""How the LMDB store reads a log in: in batches, hidden until the end, and gone when something ends it.

Invariant: An import is seen when all of it is on disk, or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from refold_protocol.errors import SessionNotFoundError
from refold_protocol.session.codec import chain
from refold_storage.changes import hidden_numbers
from refold_storage.lmdb_store import open_store
from refold_storage.record_keys import parse_record_key
from refold_storage.records import decode_record
from refold_storage.store import LmdbStore
from tests.support.stores import OTHER, SESSION, filled, lines_of, long_note, new, new_uuid, notes, until

pytestmark = pytest.mark.anyio

BIG = [*(long_note(150_000, "") for _ in range(8)), *notes(40)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[LmdbStore]:
    opened = await open_store(tmp_path, new_uuid=new_uuid)
    yield opened
    await opened.close()


def stored(store: LmdbStore, number: int) -> list[tuple[int, int]]:
    """First seq and count of each record under a number."""
    found: list[tuple[int, int]] = []
    with store.environment.reading() as transaction, transaction.cursor(db=store.environment.databases.records) as cursor:
        for key, value in cursor:
            owner, first = parse_record_key(key)
            if owner == number:
                found.append((first, len(decode_record(first, value).lines)))
    return found


def hidden(store: LmdbStore) -> list[int]:
    with store.environment.reading() as transaction:
        return hidden_numbers(transaction, store.environment.databases)


async def test_a_log_is_read_in_by_batches_and_seen_when_all_of_it_is_there(store: LmdbStore) -> None:
    handle = await filled(store, BIG)
    lines = lines_of(handle)
    seen: list[int] = []

    def watched() -> Iterator[bytes]:
        for line in lines:
            seen.append(len(stored(store, 2)))
            with pytest.raises(SessionNotFoundError):
                store.get(new(OTHER).id)
            yield line

    record = await store.import_session(replace(handle.record, id=OTHER), watched())
    assert record.tail == len(lines) - 1
    assert seen[0] == 0
    assert 0 < seen[4] < seen[-1]
    assert hidden(store) == []


async def test_small_events_fill_their_records_across_batches(store: LmdbStore) -> None:
    handle = await filled(store, notes(6_000))
    await store.import_session(replace(handle.record, id=OTHER), lines_of(handle))
    assert [link for link in stored(store, 2) if link[1] < 20][:-1] == []
    assert (await store.open(OTHER, "read")).head_digest == chain(lines_of(handle))


async def test_an_import_that_is_cancelled_leaves_nothing_and_its_lease_is_free_afterwards(store: LmdbStore) -> None:
    handle = await filled(store, BIG)
    lines = lines_of(handle)
    for wanted in range(0, len(lines), 7):
        begun: list[int] = []

        def counted(begun: list[int] = begun) -> Iterator[bytes]:
            for line in lines:
                begun.append(1)
                yield line

        caller = asyncio.ensure_future(store.import_session(replace(handle.record, id=OTHER), counted()))
        await until(lambda begun=begun, wanted=wanted, caller=caller: len(begun) > wanted or caller.done())
        caller.cancel()
        try:
            await caller
        except asyncio.CancelledError:
            await until(lambda: not store.is_owned(OTHER))
            assert list(store.survey()) == [SESSION]
        else:
            await store.delete(OTHER)
        assert hidden(store) == []
    with store.environment.reading() as transaction, transaction.cursor(db=store.environment.databases.records) as cursor:
        assert {parse_record_key(key)[0] for key in cursor.iternext(keys=True, values=False)} == {1}


async def test_a_growing_map_does_not_confuse_an_import(tmp_path: Path) -> None:
    big = await open_store(tmp_path / "big", new_uuid=new_uuid)
    handle = await filled(big, [long_note(150_000, "") for _ in range(40)])
    lines = lines_of(handle)
    small = await open_store(tmp_path / "small", new_uuid=new_uuid, map_bytes=1 << 20)
    for name in ("one", "two"):
        await small.import_session(replace(handle.record, id=new(name).id), lines)
    other = await filled(small, notes(3))
    assert lines_of(await small.open(new("one").id, "read")) == lines == lines_of(await small.open(new("two").id, "read"))
    assert len(lines_of(other)) == 3
    assert hidden(small) == []
    await big.close()
    await small.close()
