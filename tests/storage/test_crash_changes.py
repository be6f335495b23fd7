"""Processes that are killed while they fork, delete or compact: all of it happened or nothing, and every session is whole.

Invariant: A process that is killed while it forks, deletes or compacts did all of it or nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_protocol.ids import SessionId
from refold_storage.changes import hidden_numbers
from refold_storage.damage import walk_chain
from refold_storage.lmdb_store import open_store
from refold_storage.record_keys import parse_child_key, parse_record_key
from refold_storage.store import LmdbStore
from refold_storage.store_compaction import compact_store
from refold_storage.store_opening import COPY_FILE
from tests.support.store_child import StoreChild
from tests.support.stores import SESSION, chunks, filled, new, new_uuid, tool_result, until

pytestmark = pytest.mark.anyio

ROUNDS = 12


async def sessions(folder: Path) -> dict[str, bytes]:
    """Every session with the digest of its log, each read whole and verified; and no record is there for nobody."""
    store = await open_store(folder, new_uuid=new_uuid)
    found: dict[str, bytes] = {}
    for session in store.survey():
        assert isinstance(session, str)
        reader = await store.open(SessionId(session), "read")
        assert len(list(walk_chain(reader))) == reader.tail + 1 > 0
        assert not store.is_owned(SessionId(session))
        found[session] = reader.head_digest
    assert {record.id for _, record in store.recent(limit=10_000)} == set(found)
    check_owners(store, len(found))
    await store.close()
    return found


def check_owners(store: LmdbStore, count: int) -> None:
    """Records lie under the numbers of sessions, and under hidden ones that a fork needs."""
    databases = store.environment.databases
    with store.environment.reading() as transaction:
        hidden = set(hidden_numbers(transaction, databases))
        with transaction.cursor(db=databases.records) as cursor:
            owners = {parse_record_key(key)[0] for key in cursor.iternext(keys=True, values=False)}
        with transaction.cursor(db=databases.children) as cursor:
            needed = {parse_child_key(key)[0] for key in cursor.iternext(keys=True, values=False) if parse_child_key(key)[1]}
    assert hidden <= needed
    assert hidden <= owners
    assert len(owners - hidden) <= count


def check_told(told: list[str], there: set[str], found: set[str]) -> None:
    """What was said to be made is there, what was said to be gone is not; what was about to go may be either."""
    doubtful = None
    for line in told:
        sign, name = line.split(" ", 1)
        doubtful = name if sign == "?" else None
        if sign == "+":
            there.add(name)
        elif sign == "-":
            there.discard(name)
    assert there - {doubtful} <= found


@pytest.mark.parametrize("command", ["remake", "remake and die"])
async def test_a_process_that_dies_while_it_forks_and_deletes_leaves_whole_sessions(tmp_path: Path, command: str) -> None:
    there: set[str] = set()
    gone: set[str] = set()
    for number in range(ROUNDS):
        with StoreChild(command, tmp_path, number) as child:
            told = [child.answer() for _ in range(3 + number)] if command == "remake" else []
            child.kill() if command == "remake" else None
            told += child.rest()
        found = await sessions(tmp_path)
        check_told(told, there, set(found))
        gone |= {line[2:] for line in told if line.startswith("-")}
        assert not gone & set(found)
        there = set(found)
    assert gone
    assert there
    before = await sessions(tmp_path)
    compact_store(tmp_path)
    assert await sessions(tmp_path) == before


async def grown(folder: Path) -> dict[str, bytes]:
    """A store of some megabytes with a fork whose parent is gone."""
    store = await open_store(folder, new_uuid=new_uuid)
    await (await filled(store, [*chunks(500), *(tool_result(1 << 20, "") for _ in range(4))])).close()
    await store.fork(SESSION, 501, new("fork"))
    await store.fork(SESSION, 300, new("other"))
    await store.delete(SESSION)
    await store.delete(SessionId("other"))
    await store.close()
    return await sessions(folder)


@pytest.mark.parametrize("stage", ["swept", "copied", "replaced"])
async def test_a_process_that_dies_while_it_compacts_leaves_the_old_store_or_the_new_one(tmp_path: Path, stage: str) -> None:
    before = await grown(tmp_path)
    size = (tmp_path / "data.mdb").stat().st_size
    with StoreChild("compact", tmp_path, stage) as child:
        assert child.rest() == []
    assert ((tmp_path / "data.mdb").stat().st_size < size) == (stage == "replaced")
    assert await sessions(tmp_path) == before
    assert not (tmp_path / COPY_FILE).exists()
    compact_store(tmp_path)
    assert await sessions(tmp_path) == before


async def test_a_process_that_is_killed_while_it_copies_leaves_the_old_store(tmp_path: Path) -> None:
    before = await grown(tmp_path)
    for size in (0, 1, 100_000, 500_000):
        with StoreChild("compact", tmp_path, "none") as child:
            copy = tmp_path / COPY_FILE

            def copied(size: int = size, copy: Path = copy, child: StoreChild = child) -> bool:
                try:
                    return copy.stat().st_size >= size
                except FileNotFoundError:  # not begun yet, or over
                    return child.ended()

            await until(copied)
            child.kill()
        assert await sessions(tmp_path) == before
