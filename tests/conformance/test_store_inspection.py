"""What a store promises of looking at a log as it is stored, held against the LMDB store and the in-memory double alike.
(Damage, which the double cannot have: `tests/storage/test_inspection.py`.)"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold_protocol.errors import SessionHandleClosedError, SessionNotFoundError
from refold_storage.interface import Store
from tests.support.stores import NEW, OTHER, SESSION, StoreKind, chunks, filled, lines_of, new

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "lmdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    return StoreKind(None if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def store(kind: StoreKind) -> AsyncGenerator[Store]:
    opened = await kind.open()
    yield opened
    await opened.close()


async def test_an_examined_log_is_the_log_that_is_read(store: Store) -> None:
    handle = await filled(store, chunks(700))
    examined = await store.open_damaged(SESSION)
    assert list(examined.inspect()) == list(examined.records()) == list(handle.inspect()) == list(handle.records())
    assert (examined.tail, examined.head_digest, examined.access) == (699, handle.head_digest, "read")
    await examined.close()
    with pytest.raises(SessionHandleClosedError):
        next(examined.inspect())


async def test_what_is_not_committed_is_not_inspected(store: Store) -> None:
    handle = await store.create(NEW)
    handle.append(chunks(3))
    assert list(handle.inspect()) == []
    await handle.flush()
    handle.append(chunks(2))
    assert [piece.last for piece in handle.inspect()] == [2]
    await handle.flush()


async def test_a_fork_is_inspected_from_its_parents_first_event_on(store: Store) -> None:
    parent = await filled(store, chunks(40))
    await store.fork(SESSION, 24, new(OTHER))
    examined = await store.open_damaged(new(OTHER).id)
    lines = [line for record in examined.records() for line in record.lines]
    assert list(examined.inspect()) == list(examined.records())
    assert lines == lines_of(parent)[:25]


async def test_a_session_that_is_not_there_cannot_be_examined(store: Store) -> None:
    with pytest.raises(SessionNotFoundError):
        await store.open_damaged(SESSION)
