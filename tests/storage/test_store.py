"""What can happen between two looks at a store, and what a closed one says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from refold_protocol.errors import LogUnwritableError, SessionAlreadyExistsError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_storage.lease import Lease, Leases
from refold_storage.lmdb_store import epoch_ms, open_store
from refold_storage.record_keys import session_key
from refold_storage.store import LmdbStore
from tests.support.store_child import StoreChild
from tests.support.stores import NEW, SESSION, chunks, filled, new_uuid

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[LmdbStore]:
    opened = await open_store(tmp_path, new_uuid=new_uuid)
    yield opened
    await opened.close()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen just before the next lease is taken."""

    def arrange(event: Callable[[], None]) -> None:
        original = Leases.take

        async def take(leases: Leases, session: SessionId) -> Lease:
            event()
            return await original(leases, session)

        monkeypatch.setattr(Leases, "take", take)

    return arrange


async def test_a_session_that_another_process_creates_meanwhile_exists(
    store: LmdbStore, tmp_path: Path, meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    def create() -> None:
        with StoreChild("write", tmp_path, 3) as child:
            assert child.answer() == "-1"
            assert child.ask() == "2"

    meanwhile(create)
    with pytest.raises(SessionAlreadyExistsError):
        await store.create(NEW)
    assert not store.is_owned(SESSION)
    assert store.get(SESSION).tail == 2


async def test_a_session_that_vanishes_before_its_lease_is_taken_is_unknown(
    store: LmdbStore, meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    def delete() -> None:
        with store.environment.writing() as transaction:
            transaction.delete(session_key(SESSION), db=store.environment.databases.sessions)

    await (await filled(store, chunks(2))).close()
    meanwhile(delete)
    with pytest.raises(SessionNotFoundError):
        await store.open(SESSION, "write")
    assert not store.is_owned(SESSION)


async def test_a_refresh_reads_nothing_when_nobody_committed_anything(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await filled(store, chunks(2))
    reader = await store.open(SESSION, "read")
    looked: list[str] = []
    monkeypatch.setattr(store.environment, "reading", lambda: looked.append("looked") or reading())
    reading = type(store.environment).reading.__get__(store.environment)
    assert reader.refresh() == 1
    assert looked == []
    handle.append(chunks(1))
    await handle.flush()
    assert reader.refresh() == 2
    assert looked == ["looked"]


async def test_a_closed_store_says_so(store: LmdbStore) -> None:
    await store.close()
    with pytest.raises(LogUnwritableError, match="closed"):
        await store.create(NEW)
    with pytest.raises(LogUnwritableError, match="closed"):
        await store.open(SESSION, "read")
    for use in (lambda: store.get(SESSION), lambda: store.recent(limit=1), lambda: store.is_owned(SESSION)):
        with pytest.raises(LogUnwritableError, match="closed"):
            use()


async def test_a_commit_that_is_announced_before_it_can_be_seen_is_not_missed(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the page that names a commit is synced, its number is there already and a new view still begins before it."""
    writer = await store.create(NEW)
    writer.append(chunks(1))
    await writer.flush()
    announced = store.environment.last_transaction
    with monkeypatch.context() as syncing:
        syncing.setattr(store.environment, "last_transaction", lambda: announced() + 1)
        reader = await store.open(SESSION, "read")
    writer.append(chunks(1, 1))
    await writer.flush()
    assert reader.refresh() == 1


async def test_the_last_transaction_rises_with_every_commit_of_any_process(store: LmdbStore, tmp_path: Path) -> None:
    before = store.last_transaction()
    with StoreChild("write", tmp_path, 1) as child:
        assert child.answer() == "-1"
        assert store.last_transaction() == before
        assert child.ask() == "0"
        assert store.last_transaction() > before


def test_the_clock_counts_milliseconds_since_1970() -> None:
    assert 1_700_000_000_000 < epoch_ms() < 10_000_000_000_000
