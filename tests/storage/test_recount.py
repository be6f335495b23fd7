"""The catalogue's caches, damaged on purpose, come back from the logs; what is data stays."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.ids import SessionId
from refold_protocol.session.session_totals import EMPTY_SUMMARY
from refold_storage import catalog
from refold_storage.lmdb_store import open_store
from refold_storage.record_keys import recent_key, record_key, session_key
from refold_storage.store import LmdbStore
from tests.support.stores import HandClock, chunks, filled, new, new_uuid, prompt

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[LmdbStore]:
    """A store with five sessions, one after the other, some of them archived."""
    clock = HandClock(10_000)
    opened = await open_store(tmp_path, new_uuid=new_uuid, clock=clock)
    for number in range(5):
        clock.now += 1_000
        await (await filled(opened, [prompt(f"Question {number}"), *chunks(400)], new(f"s{number}"))).close()
    await opened.set_archived(SessionId("s1"), True)
    yield opened
    await opened.close()


async def test_lost_summaries_and_places_come_back_and_what_is_data_stays(store: LmdbStore) -> None:
    before = store.recent(limit=10)
    databases = store.environment.databases
    with store.environment.writing() as transaction:
        for number in (1, 3):
            row = catalog.find(transaction, databases, SessionId(f"s{number}"))
            assert row is not None
            catalog.put(transaction, databases, replace(row, summary=EMPTY_SUMMARY), row)
        transaction.delete(recent_key(before[0][0][0], 5), db=databases.recent)
        transaction.put(recent_key(77, 77), session_key(SessionId("s0")), db=databases.recent)
        transaction.put(recent_key(78, 78), session_key(SessionId("nobody")), db=databases.recent)
    assert store.recent(limit=10) != before
    recount = await store.rebuild_catalogue()
    assert (recount.sessions, recount.changed, recount.misplaced, recount.skipped) == (5, 2, 3, ())
    assert store.recent(limit=10) == before
    assert [record.archived for _, record in before] == [False, False, False, True, False]


async def test_an_empty_list_is_made_anew(store: LmdbStore) -> None:
    before = store.recent(limit=10)
    with store.environment.writing() as transaction:
        transaction.drop(store.environment.databases.recent, delete=False)
    assert store.recent(limit=10) == []
    assert (await store.rebuild_catalogue()).misplaced == 5
    assert store.recent(limit=10) == before


async def test_what_cannot_be_read_is_named_and_the_others_are_counted(store: LmdbStore) -> None:
    databases = store.environment.databases
    with store.environment.writing() as transaction:
        transaction.delete(record_key(2, 0), db=databases.records)
        transaction.put(session_key(SessionId("s3")), b"{", db=databases.sessions)
        row = catalog.find(transaction, databases, SessionId("s4"))
        assert row is not None
        catalog.put(transaction, databases, replace(row, summary=EMPTY_SUMMARY), row)
        listed = transaction.stat(databases.recent)["entries"]
    recount = await store.rebuild_catalogue()
    assert (recount.sessions, recount.changed, recount.misplaced) == (3, 1, 0)
    assert [type(error) for error in recount.skipped] == [SessionCorruptionError] * 2
    assert store.get(SessionId("s4")).summary.title == "Question 4"
    with store.environment.reading() as transaction:
        assert transaction.stat(databases.recent)["entries"] == listed
    assert not any(store.is_owned(SessionId(f"s{number}")) for number in range(5))
