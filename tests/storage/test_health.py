"""What a store tells of itself: sizes that are those of its file, sessions that it has, and who reads it since when."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold_protocol.errors import LogUnwritableError
from refold_protocol.session.events import FORMAT_VERSION
from refold_storage.interface import Reader
from refold_storage.lmdb_store import open_store
from refold_storage.store import LmdbStore
from tests.support.memory_store import MemoryStore
from tests.support.store_child import StoreChild
from tests.support.stores import NEW, OTHER, chunks, filled, new, new_uuid, tool_result

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[LmdbStore]:
    opened = await open_store(tmp_path, new_uuid=new_uuid, map_bytes=1 << 26)
    yield opened
    await opened.close()


async def test_the_sizes_are_those_of_the_file_and_of_the_map(store: LmdbStore, tmp_path: Path) -> None:
    before = store.vitals()
    assert (before.path, before.format) == (str(tmp_path), FORMAT_VERSION)
    assert before.map_bytes == 1 << 26
    await filled(store, [tool_result(1 << 20, "")])
    after = store.vitals()
    assert before.used_bytes + (1 << 19) < after.used_bytes <= after.map_bytes
    assert after.file_bytes == (tmp_path / "data.mdb").stat().st_blocks * 512
    assert after.last_transaction > before.last_transaction


async def test_sessions_count_when_they_have_something_on_disk(store: LmdbStore) -> None:
    await store.create(NEW)
    assert store.vitals().sessions == 0
    await filled(store, chunks(1), new(OTHER))
    assert store.vitals().sessions == 1


async def test_a_reader_of_another_process_is_listed_with_the_commit_that_it_sees(store: LmdbStore, tmp_path: Path) -> None:
    handle = await filled(store, chunks(1))
    assert store.vitals().readers == (), "looking leaves no reader behind"
    seen = store.vitals().last_transaction
    with StoreChild("pin", tmp_path) as child:
        assert child.answer() == "ready"
        for _ in range(3):
            handle.append(chunks(1))
            await handle.flush()
        vitals = store.vitals()
        assert vitals.readers == (Reader(child.pid, seen),)
        assert vitals.last_transaction >= seen + 3
        child.kill()
        assert store.vitals().readers == (Reader(child.pid, seen),), "a reader that died is listed until somebody frees it"


async def test_a_store_that_was_closed_tells_nothing(store: LmdbStore) -> None:
    await store.close()
    with pytest.raises(LogUnwritableError):
        store.vitals()


async def test_a_store_in_memory_has_no_file() -> None:
    store = MemoryStore(clock=lambda: 1)
    await filled(store, chunks(1))
    vitals = store.vitals()
    assert (vitals.format, vitals.sessions, vitals.file_bytes, vitals.readers) == (FORMAT_VERSION, 1, 0, ())
