"""What a store promises of deleting, archiving and moving, held against the LMDB store and the in-memory double alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace

from refold_protocol.errors import InvalidJsonError, SessionAlreadyOwnedError, SessionNotFoundError, StorageFullError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import chain
from refold_storage.damage import walk_chain
from refold_storage.interface import Store
from tests.support.stores import NEW, OTHER, SESSION, StoreKind, chunks, filled, lines_of, new, prompt

pytestmark = pytest.mark.anyio

THIRD = SessionId("0198f3a2-0000-7000-8000-00000000000c")


@pytest.fixture(params=["memory", "lmdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    return StoreKind(None if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def store(kind: StoreKind) -> AsyncGenerator[Store]:
    opened = await kind.open()
    yield opened
    await opened.close()


async def whole(store: Store, session: SessionId) -> list[bytes]:
    """All lines of a session, after its chain was checked against them."""
    reader = await store.open(session, "read")
    lines = lines_of(reader)
    assert [link.line for link in walk_chain(reader)] == lines
    assert reader.head_digest == chain(lines)
    await reader.close()
    return lines


async def family(store: Store) -> dict[SessionId, list[bytes]]:
    """A session, a fork of it and a fork of that one, each with events of its own; their lines."""
    parent = await filled(store, chunks(300))
    await store.fork(SESSION, 149, new(OTHER))
    child = await store.open(OTHER, "write")
    child.append(chunks(300, 1_000))
    await child.flush()
    await store.fork(OTHER, 299, new(THIRD))
    grandchild = await store.open(THIRD, "write")
    grandchild.append(chunks(300, 2_000))
    lines = {handle.id: lines_of(handle) for handle in (parent, child, grandchild)}
    for handle in (parent, child, grandchild):
        await handle.close()
    return lines


async def test_a_deleted_session_is_nowhere_any_more(kind: StoreKind, store: Store) -> None:
    await (await filled(store, [prompt(), *chunks(300)])).close()
    await (await filled(store, chunks(3), new(OTHER))).close()
    await store.delete(SESSION)
    for _ in range(2):
        with pytest.raises(SessionNotFoundError):
            store.get(SESSION)
        with pytest.raises(SessionNotFoundError):
            await store.open(SESSION, "read")
        with pytest.raises(SessionNotFoundError):
            await store.open(SESSION, "write")
        with pytest.raises(SessionNotFoundError):
            await store.delete(SESSION)
        with pytest.raises(SessionNotFoundError):
            await store.fork(SESSION, 0, new(THIRD))
        assert [record.id for _, record in store.recent(limit=5)] == [OTHER]
        assert list(store.survey()) == [OTHER]
        assert not store.is_owned(SESSION)
        await store.close()
        store = await kind.open()
    assert len(await whole(store, OTHER)) == 3
    await store.close()


async def test_a_session_that_somebody_writes_is_not_deleted(store: Store) -> None:
    handle = await filled(store, chunks(3))
    with pytest.raises(SessionAlreadyOwnedError):
        await store.delete(SESSION)
    handle.append(chunks(1))
    assert await handle.flush() == 3
    empty = await store.create(new(OTHER))
    with pytest.raises(SessionNotFoundError):
        await store.delete(OTHER)
    empty.append(chunks(1))
    assert await empty.flush() == 0
    await handle.close()
    await store.delete(SESSION)


async def test_readers_of_a_deleted_session_are_told(store: Store) -> None:
    await (await filled(store, chunks(700))).close()
    reader = await store.open(SESSION, "read")
    await store.delete(SESSION)
    for use in (
        reader.refresh,
        reader.refresh,
        lambda: reader.lines(0),
        lambda: list(reader.read(5)),
        lambda: list(reader.records()),
    ):
        with pytest.raises(SessionNotFoundError):
            use()
    assert reader.tail == 699
    await reader.close()


async def test_a_deleted_id_can_be_used_again_and_old_readers_are_not_deceived(store: Store) -> None:
    await (await filled(store, chunks(300))).close()
    await store.fork(SESSION, 200, new(OTHER))
    old = await store.open(SESSION, "read")
    await store.delete(SESSION)
    again = await filled(store, chunks(400, 5_000))
    with pytest.raises(SessionNotFoundError):
        old.refresh()
    with pytest.raises(SessionNotFoundError):
        old.lines(0)
    assert len(await whole(store, SESSION)) == 400
    assert len(await whole(store, OTHER)) == 201
    await again.close()
    await store.delete(SESSION)
    assert len(await whole(store, OTHER)) == 201


@pytest.mark.parametrize("order", list(permutations([SESSION, OTHER, THIRD])))
async def test_forks_keep_what_they_inherited_in_whatever_order_a_family_goes(
    kind: StoreKind, store: Store, order: tuple[SessionId, ...]
) -> None:
    lines = await family(store)
    for gone in order:
        await store.delete(gone)
        del lines[gone]
        assert sorted(str(found) for found in store.survey()) == sorted(lines)
        for session, expected in lines.items():
            assert await whole(store, session) == expected
            handle = await store.open(session, "write")
            handle.append(chunks(30, 9_000))
            await handle.flush()
            lines[session] = lines_of(handle)
            await handle.close()


async def test_what_a_fork_kept_can_be_forked_again(store: Store) -> None:
    lines = await family(store)
    await store.delete(SESSION)
    await store.delete(OTHER)
    await store.fork(THIRD, 100, new("again"))
    await store.fork(THIRD, 250, new("further"))
    await store.delete(THIRD)
    assert await whole(store, SessionId("again")) == lines[THIRD][:101]
    assert await whole(store, SessionId("further")) == lines[THIRD][:251]
    assert store.get(SessionId("again")).parent is not None


async def test_a_deletion_on_a_full_disk_is_refused_and_may_be_tried_again(kind: StoreKind, store: Store) -> None:
    await (await filled(store, chunks(300))).close()
    kind.faults.full = True
    with pytest.raises(StorageFullError):
        await store.delete(SESSION)
    kind.faults.full = False
    assert len(await whole(store, SESSION)) == 300
    assert not store.is_owned(SESSION)
    await store.delete(SESSION)
    assert list(store.survey()) == []


async def test_a_session_is_archived_and_brought_back_and_nothing_else_changes(kind: StoreKind, store: Store) -> None:
    kind.clock.now = 5_000
    await (await filled(store, [prompt()])).close()
    kind.clock.now = 6_000
    await (await filled(store, [prompt()], new(OTHER))).close()
    before = store.get(SESSION)
    archived = await store.set_archived(SESSION, True)
    assert archived.archived
    assert store.get(SESSION) == archived
    assert await store.set_archived(SESSION, True) == archived
    assert [record.id for _, record in store.recent(limit=5)] == [OTHER, SESSION]
    assert [record.archived for _, record in store.recent(limit=5)] == [False, True]
    assert await store.set_archived(SESSION, False) == before
    with pytest.raises(SessionNotFoundError):
        await store.set_archived(THIRD, True)


async def test_archiving_needs_no_lease_and_outlives_the_owners_commits(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, chunks(3))
    reader = await store.open(SESSION, "read")
    handle.append(chunks(3))
    assert (await store.set_archived(SESSION, True)).tail == 2
    assert not reader.record.archived
    assert reader.refresh() == 2
    assert reader.record.archived
    await handle.flush()
    assert handle.record.archived
    assert (store.get(SESSION).tail, store.get(SESSION).archived) == (5, True)
    handle.append(chunks(3))
    await handle.close()
    await store.close()
    again = await kind.open()
    assert again.get(SESSION).archived
    assert len(await whole(again, SESSION)) == 9
    await again.close()


async def test_a_fork_of_an_archived_session_is_not_archived(store: Store) -> None:
    await (await filled(store, chunks(3))).close()
    await store.set_archived(NEW.id, True)
    assert not (await store.fork(SESSION, 1, new(OTHER))).archived


async def test_a_session_gets_another_folder_and_nothing_else_changes(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, [prompt()])
    with pytest.raises(SessionAlreadyOwnedError):
        await store.rehome(SESSION, "/elsewhere")
    await handle.close()
    before = store.get(SESSION)
    assert await store.rehome(SESSION, "/elsewhere") == replace(before, cwd="/elsewhere")
    assert await store.rehome(SESSION, "/elsewhere") == store.get(SESSION)
    assert [record.cwd for _, record in store.recent(limit=5)] == ["/elsewhere"]
    with pytest.raises(SessionNotFoundError):
        await store.rehome(THIRD, "/elsewhere")
    with pytest.raises(InvalidJsonError):
        await store.rehome(SESSION, "/\udc80")
    again = await store.open(SESSION, "write")
    again.append(chunks(2))
    await again.close()
    assert (store.get(SESSION).cwd, store.get(SESSION).tail) == ("/elsewhere", 2)
    await store.close()
    assert (await kind.open()).get(SESSION).cwd == "/elsewhere"
