"""A log can be looked at in whatever state it is: each record, or what is wrong with it and which events it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_protocol.errors import SessionCorruptionError, SessionHandleClosedError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import CHAIN_START, chain
from refold_storage.interface import Handle
from refold_storage.lmdb_store import open_store
from refold_storage.record_keys import record_key
from refold_storage.records import Damage, Record
from refold_storage.store import LmdbStore
from tests.support.damage import Disk
from tests.support.stores import OTHER, SESSION, chunks, filled, lines_of, new, new_uuid

pytestmark = pytest.mark.anyio

COUNT = 900


async def opened(folder: Path) -> LmdbStore:
    return await open_store(folder, new_uuid=new_uuid)


@pytest.fixture
async def disk(tmp_path: Path) -> Disk:
    """A closed store with a session of several records."""
    store = await opened(tmp_path)
    await (await filled(store, chunks(COUNT))).close()
    await store.close()
    return Disk(tmp_path)


async def inspected(disk: Disk, session: SessionId = SESSION) -> list[Record | Damage]:
    """Look at a log with a store of its own."""
    store = await opened(disk.store)
    try:
        return list((await store.open_damaged(session)).inspect())
    finally:
        await store.close()


def damages(pieces: list[Record | Damage]) -> list[tuple[int, int]]:
    """Where something is wrong. What lies between must be whole and follow."""
    expected = 0
    for piece in pieces:
        assert piece.first == expected
        expected = piece.last + 1
    return [(piece.first, piece.last) for piece in pieces if isinstance(piece, Damage)]


async def test_a_whole_log_is_its_records(disk: Disk) -> None:
    assert await inspected(disk) == [stored.record for stored in disk.records]
    assert len(disk.records) > 5


@pytest.mark.parametrize("at", [0, 3])
async def test_a_missing_record_is_an_item_with_the_events_that_it_had(disk: Disk, at: int) -> None:
    disk.drop(at)
    record = disk.records[at].record
    pieces = await inspected(disk)
    assert damages(pieces) == [(record.first, record.last)]
    assert pieces[at] == Damage(record.first, record.last, "no record holds them")
    assert pieces[:at] + pieces[at + 1 :] == [stored.record for stored in disk.records if stored.record != record]


async def test_what_is_missing_at_the_end_is_no_item(disk: Disk) -> None:
    disk.drop(-1, -2)
    assert await inspected(disk) == [stored.record for stored in disk.records[:-2]]
    disk.drop(*range(len(disk.records)))
    assert await inspected(disk) == []


@pytest.mark.parametrize("at", [0, 3, -1])
async def test_a_record_that_cannot_be_read_keeps_its_digest_where_its_head_is_whole(disk: Disk, at: int) -> None:
    record = disk.records[at].record
    disk.flip(at, 2, 0x40)
    (found,) = [piece for piece in await inspected(disk) if isinstance(piece, Damage)]
    assert (found.first, found.last, found.digest) == (record.first, record.last, record.digest)
    disk.cut(at, 39)
    (found,) = [piece for piece in await inspected(disk) if isinstance(piece, Damage)]
    assert (found.first, found.last, found.digest) == (record.first, record.last, None)


async def test_a_record_that_reaches_into_the_next_one_is_damage(disk: Disk) -> None:
    record = disk.records[2].record
    disk.put(record_key(1, record.first + 5), disk.records[3].value)
    pieces = await inspected(disk)
    assert damages(pieces)[0] == (record.first, record.first + 4)
    assert isinstance(pieces[2], Damage)
    assert f"holds events up to {record.last}" in pieces[2].message


async def test_events_behind_the_end_that_the_row_names_are_given(disk: Disk) -> None:
    """Row and records do not agree; which of them is wrong is for the reader to say."""
    disk.put(record_key(1, COUNT), disk.records[0].value)
    pieces = await inspected(disk)
    assert damages(pieces) == []
    assert pieces[-1].last >= COUNT


@pytest.mark.parametrize("tail", [-1, 0, COUNT - 2])
async def test_a_row_that_ends_before_its_records_hides_none_of_them(disk: Disk, tail: int) -> None:
    disk.change_row(SESSION, tail=tail)
    assert await inspected(disk) == [stored.record for stored in disk.records]


async def test_events_that_came_after_the_look_are_left_out(disk: Disk) -> None:
    store = await opened(disk.store)
    reader = await store.open_damaged(SESSION)
    handle = await store.open(SESSION, "write")
    handle.append(chunks(300))
    await handle.flush()
    pieces = list(reader.inspect())
    assert pieces[-1].last == COUNT - 1
    assert isinstance(pieces[-1], Record)
    assert pieces[-1].digest == reader.head_digest == chain(lines_of(handle)[:COUNT])
    assert reader.refresh() == COUNT + 299
    assert list(reader.inspect())[-1].last == list(handle.inspect())[-1].last == COUNT + 299
    await store.close()


async def test_a_damaged_log_is_opened_for_inspection_only(disk: Disk) -> None:
    disk.change_digest(-1)
    store = await opened(disk.store)
    with pytest.raises(SessionCorruptionError):
        await store.open(SESSION, "read")
    examined = await store.open_damaged(SESSION)
    assert (examined.tail, examined.access) == (COUNT - 1, "read")
    assert len(list(examined.inspect())) == len(disk.records)
    walk = examined.inspect()
    await store.close()
    with pytest.raises(SessionHandleClosedError):
        next(walk)


async def test_a_session_that_is_not_there_cannot_be_examined(disk: Disk) -> None:
    store = await opened(disk.store)
    with pytest.raises(SessionNotFoundError):
        await store.open_damaged(OTHER_ID)
    await store.close()


OTHER_ID = SessionId(OTHER)


async def forked(disk: Disk, at: int) -> tuple[LmdbStore, Handle]:
    """Fork the session at an event, and let the fork have 50 events of its own. Give store and fork, both open."""
    store = await opened(disk.store)
    await store.fork(SESSION, at, new(OTHER))
    handle = await store.open(OTHER_ID, "write")
    handle.append(chunks(50, first=5_000))
    await handle.flush()
    return store, handle


async def test_a_fork_is_looked_at_through_its_parents_records(disk: Disk) -> None:
    """The border lies inside a record of the parent, which is cut there."""
    at = disk.records[3].record.first + 2
    store, handle = await forked(disk, at)
    pieces = list(handle.inspect())
    assert damages(pieces) == []
    digest = CHAIN_START
    for piece in pieces:
        assert isinstance(piece, Record)
        digest = chain(piece.lines, digest)
        assert digest == piece.digest
    assert (pieces[-1].last, digest) == (at + 50, handle.head_digest)
    assert pieces[3].last == at
    await store.close()


async def test_damage_of_the_parent_is_damage_of_the_fork_as_far_as_it_inherited(disk: Disk) -> None:
    at = disk.records[3].record.first + 2
    store, _ = await forked(disk, at)
    await store.close()
    parent = Disk(disk.store, 1)
    parent.flip(3, 2, 0x40)
    parent.drop(5)
    pieces = await inspected(disk, OTHER_ID)
    assert damages(pieces) == [(parent.records[3].record.first, at)]
    assert isinstance(pieces[4], Record)
    damaged = pieces[3]
    assert isinstance(damaged, Damage)
    assert damaged.digest is not None
    assert chain(pieces[4].lines, damaged.digest) == pieces[4].digest
    parent.drop(3)
    assert damages(await inspected(disk, OTHER_ID)) == [(parent.records[3].record.first, at)]
