"""Processes that are killed at any moment: what they said was durable is there, and the log is a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_storage.damage import walk_chain
from refold_storage.lmdb_store import open_store
from tests.support.store_child import StoreChild
from tests.support.stores import SESSION, chunks, filled, new_uuid

pytestmark = pytest.mark.anyio

ROUNDS = 16


async def check(folder: Path, durable: int) -> int:
    """The log holds all that was durable and its chain is whole; going on is possible. Gives the tail found."""
    store = await open_store(folder, new_uuid=new_uuid)
    assert not store.is_owned(SESSION)
    reader = await store.open(SESSION, "read")
    tail = reader.tail
    assert tail >= durable
    assert [event.seq for event in reader.read()] == list(range(tail + 1))
    assert len(list(walk_chain(reader))) == tail + 1
    handle = await store.open(SESSION, "write")
    handle.append(chunks(1))
    assert await handle.flush() == tail + 1
    await store.close()
    return tail + 1


async def test_a_killed_process_loses_nothing_that_was_durable(tmp_path: Path) -> None:
    """The kill comes at a moment of the parent's choosing, mostly between commits."""
    tail = -1
    for number in range(ROUNDS):
        with StoreChild("flood", tmp_path, number) as child:
            told = [int(child.answer()) for _ in range(1 + number % 7)]
            child.kill()
            told += [int(line) for line in child.rest()]
        assert told == sorted(told)
        assert told[0] > tail
        tail = await check(tmp_path, told[-1])


async def test_a_process_that_dies_in_the_middle_of_a_commit_loses_nothing_that_was_durable(tmp_path: Path) -> None:
    """It kills itself with the write lock held, before the commit, or right behind it and before anybody was told."""
    durable = -1
    for number in range(ROUNDS):
        with StoreChild("die", tmp_path, number) as child:
            told = [int(line) for line in child.rest()]
        durable = max([durable, *told])
        store = await open_store(tmp_path, new_uuid=new_uuid)
        known = [record.tail for _, record in store.recent(limit=1)]
        await store.close()
        if known:
            durable = await check(tmp_path, durable)
    assert durable > 0


async def test_what_was_committed_in_the_background_outlives_a_kill(tmp_path: Path) -> None:
    with StoreChild("accept", tmp_path, 5) as child:
        assert child.answer() == "4"
        child.kill()
    assert await check(tmp_path, 4) == 5


async def test_a_reader_in_another_process_sees_each_commit(tmp_path: Path) -> None:
    with StoreChild("write", tmp_path, 3) as writer:
        assert writer.answer() == "-1"
        assert writer.ask() == "2"
        with StoreChild("read", tmp_path) as reader:
            assert reader.answer() == "2"
            for tail in range(5, 305, 3):
                assert writer.ask() == str(tail)
                assert reader.ask() == str(tail)


async def test_who_goes_on_with_a_session_sees_a_commit_behind_which_its_owner_was_killed(tmp_path: Path) -> None:
    """LMDB's lock file says which commit views show. It was not told of this one; only who takes the write lock finds out."""
    store = await open_store(tmp_path, new_uuid=new_uuid)
    handle = await filled(store, chunks(2))
    before = handle.durable
    await handle.close()
    with StoreChild("cut", tmp_path, 3) as child:
        child.rest()
    again = await store.open(SESSION, "write")
    assert again.tail == before + 3
    again.append(chunks(1))
    assert await again.flush() == before + 4
    await store.close()
