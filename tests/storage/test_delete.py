"""What the LMDB store has on disk after deletions: nothing that nobody needs, and everything that somebody does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold_protocol.errors import SessionAlreadyOwnedError, SessionFormatUnsupportedError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_storage.changes import hidden_numbers
from refold_storage.lmdb_store import open_store
from refold_storage.record_keys import parse_record_key, session_key
from refold_storage.records import decode_record
from refold_storage.store import LmdbStore
from tests.support.store_child import StoreChild
from tests.support.stores import OTHER, SESSION, chunks, filled, lines_of, new, new_uuid, tool_result

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[LmdbStore]:
    opened = await open_store(tmp_path, new_uuid=new_uuid)
    yield opened
    await opened.close()


def kept(store: LmdbStore) -> dict[int, int]:
    """The last seq that is on disk under each number."""
    found: dict[int, int] = {}
    with store.environment.reading() as transaction, transaction.cursor(db=store.environment.databases.records) as cursor:
        for key, value in cursor:
            number, first = parse_record_key(key)
            found[number] = decode_record(first, value).last
    return found


def hidden(store: LmdbStore) -> list[int]:
    with store.environment.reading() as transaction:
        return hidden_numbers(transaction, store.environment.databases)


def rows(store: LmdbStore) -> list[int]:
    """How many rows `sessions`, `records`, `recent` and `children` have."""
    databases = store.environment.databases
    with store.environment.reading() as transaction:
        return [
            transaction.stat(each)["entries"]
            for each in (databases.sessions, databases.records, databases.recent, databases.children)
        ]


async def test_a_deleted_parent_keeps_just_what_its_forks_need(store: LmdbStore) -> None:
    await (await filled(store, chunks(900))).close()
    await store.fork(SESSION, 600, new("far"))
    await store.fork(SESSION, 99, new("near"))
    assert kept(store) == {1: 899}
    await store.delete(SESSION)
    assert (kept(store), hidden(store)) == ({1: 600}, [1])
    await store.delete(SessionId("far"))
    assert (kept(store), hidden(store)) == ({1: 99}, [1])
    near = await store.open(SessionId("near"), "write")
    assert [event.seq for event in near.read()] == list(range(100))
    near.append(chunks(1))
    await near.close()
    await store.delete(SessionId("near"))
    assert rows(store) == [0, 0, 0, 0]


async def test_a_fork_that_goes_before_its_parent_takes_nothing_along(store: LmdbStore) -> None:
    await (await filled(store, chunks(900))).close()
    await store.fork(SESSION, 600, new(OTHER))
    await store.delete(OTHER)
    assert (kept(store), hidden(store)) == ({1: 899}, [])
    await store.delete(SESSION)
    assert rows(store) == [0, 0, 0, 0]


async def test_hidden_origins_go_with_the_last_fork_that_needs_them(store: LmdbStore) -> None:
    await (await filled(store, chunks(60))).close()
    await store.fork(SESSION, 49, new("two"))
    two = await store.open(SessionId("two"), "write")
    two.append(chunks(60))
    await two.close()
    await store.fork(two.id, 99, new("three"))
    await store.fork(two.id, 40, new("four"))
    await store.delete(two.id)
    await store.delete(SESSION)
    assert (kept(store), hidden(store)) == ({1: 49, 2: 99}, [1, 2])
    await store.delete(SessionId("three"))
    assert (kept(store), hidden(store)) == ({1: 40}, [1])
    await store.delete(SessionId("four"))
    assert rows(store) == [0, 0, 0, 0]


async def test_deleting_gives_pages_back_to_the_store(store: LmdbStore) -> None:
    for number in range(4):
        await (await filled(store, [tool_result(1 << 20, "")], new(f"s{number}"))).close()
    used = store.vitals().used_bytes
    for number in range(20):
        await store.delete(SessionId(f"s{number}"))
        await (await filled(store, [tool_result(1 << 20, "")], new(f"s{number + 4}"))).close()
    assert store.vitals().used_bytes < used + (3 << 20)


async def test_a_session_that_another_process_writes_is_not_deleted(store: LmdbStore, tmp_path: Path) -> None:
    with StoreChild("write", tmp_path, 3) as child:
        assert child.answer() == "-1"
        assert child.ask() == "2"
        with pytest.raises(SessionAlreadyOwnedError) as caught:
            await store.delete(SESSION)
        assert caught.value.details["pid"] == child.pid
        assert child.ask() == "5"
    await store.delete(SESSION)


async def test_readers_in_another_process_are_told_of_a_deletion(store: LmdbStore, tmp_path: Path) -> None:
    await (await filled(store, chunks(300))).close()
    with StoreChild("read", tmp_path) as child:
        assert child.answer() == "299"
        assert child.ask() == "299"
        await store.delete(SESSION)
        assert child.ask() == "gone"


async def test_a_session_of_a_later_release_is_not_deleted(store: LmdbStore) -> None:
    await (await filled(store, chunks(3))).close()
    with store.environment.writing() as transaction:
        databases = store.environment.databases
        value = transaction.get(session_key(SESSION), db=databases.sessions)
        assert value is not None
        transaction.put(session_key(SESSION), value[:-1] + b',"shelves":1}', db=databases.sessions)
    with pytest.raises(SessionFormatUnsupportedError):
        await store.delete(SESSION)
    with pytest.raises(SessionFormatUnsupportedError):
        await store.set_archived(SESSION, True)
    assert len(lines_of(await store.open(SESSION, "read"))) == 3


async def test_a_reader_notices_a_deletion_whatever_the_records_say(store: LmdbStore) -> None:
    """The records are still there, for a fork, and their session is not."""
    await (await filled(store, chunks(300))).close()
    await store.fork(SESSION, 299, new(OTHER))
    reader = await store.open(SESSION, "read")
    await store.delete(SESSION)
    with pytest.raises(SessionNotFoundError):
        reader.lines(0)
    assert len(lines_of(await store.open(OTHER, "read"))) == 300
