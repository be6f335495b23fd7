"""What a store promises of rebuilding what it caches, held against the LMDB store and the in-memory double alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold_protocol.errors import SessionAlreadyOwnedError
from refold_storage.interface import Store
from tests.support.stores import OTHER, SESSION, StoreKind, chunks, filled, new, prompt, turn_end

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "lmdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    return StoreKind(None if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def store(kind: StoreKind) -> AsyncGenerator[Store]:
    opened = await kind.open()
    yield opened
    await opened.close()


async def test_rebuilding_a_catalogue_that_is_right_changes_nothing(kind: StoreKind, store: Store) -> None:
    for number in range(5):
        kind.clock.now += 1_000
        await (await filled(store, [prompt(f"Question {number}"), *chunks(300), turn_end()], new(f"s{number}"))).close()
    before = store.recent(limit=10)
    told: list[tuple[int, int]] = []
    recount = await store.rebuild_catalogue(lambda done, whole: told.append((done, whole)))
    assert (recount.sessions, recount.changed, recount.misplaced, recount.skipped) == (5, 0, 0, ())
    assert told[-1] == (5, 5)
    assert store.recent(limit=10) == before


async def test_a_session_that_somebody_writes_is_passed_over_and_named(store: Store) -> None:
    handle = await filled(store, [prompt()])
    await (await filled(store, [prompt()], new(OTHER))).close()
    recount = await store.rebuild_catalogue()
    assert recount.sessions == 1
    assert [type(error) for error in recount.skipped] == [SessionAlreadyOwnedError]
    assert recount.skipped[0].details["session"] == SESSION
    handle.append(chunks(1))
    assert await handle.flush() == 1


async def test_forks_are_counted_as_their_own_past(kind: StoreKind, store: Store) -> None:
    kind.clock.now = 5_000
    parent = await filled(store, [prompt("One"), *chunks(300)])
    kind.clock.now = 6_000
    parent.append([prompt("Two")])
    await parent.close()
    await store.fork(SESSION, 100, new(OTHER))
    await store.rebuild_catalogue()
    assert store.get(OTHER).summary.last_activity == 5_000
    assert store.get(SESSION).summary.last_activity == 6_000
    assert (await store.rebuild_catalogue()).changed == 0
