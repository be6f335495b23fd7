"""Stores that may only be read: a backup, a snapshot, another user's files. All of it is read, nothing is tried to be written.

Invariant: A store that may only be read is read, and no file of it is written or made.

The tests take away the rights; a superuser becomes nobody for that, to whom modes apply.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from refold_protocol.errors import ConfigError, LogUnwritableError
from refold_storage.high_water import Commit, HighWaterMark
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import accept_store, open_store
from refold_storage.store import LmdbStore
from refold_storage.store_compaction import compact_store
from tests.support.stores import OTHER, SESSION, chunks, filled, lines_of, new_uuid

pytestmark = pytest.mark.anyio

Snapshot: TypeAlias = dict[str, tuple[int, bytes]]

NOBODY = 65_534


@pytest.fixture
def folder() -> Generator[Path]:
    """A folder that nobody may look into, too; the one that pytest gives is closed to others."""
    made = Path(tempfile.mkdtemp(prefix="refold-read-only-"))
    made.chmod(0o755)
    yield made / "store"
    shutil.rmtree(made)


@contextmanager
def read_only(folder: Path, *, but: str = "") -> Generator[None]:
    """Within the block, files and folders may be read only, all but the file of that name."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o666 if path.name == but else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[LmdbStore]:
    store = await open_store(folder, new_uuid=new_uuid)
    try:
        yield store
    finally:
        await store.close()


async def made(folder: Path) -> list[bytes]:
    """Make a store with a session in it, and give the session's lines."""
    async with opened(folder) as store:
        return lines_of(await filled(store, chunks(3)))


def make_folder(path: Path) -> None:
    path.mkdir()


def remove(path: Path) -> None:
    path.unlink()


def snapshot(folder: Path) -> Snapshot:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in folder.rglob("*")
    }


async def test_all_of_a_store_that_may_only_be_read_is_read_and_no_file_of_it_changes(folder: Path) -> None:
    lines = await made(folder)
    before = snapshot(folder)
    with read_only(folder):
        async with opened(folder) as store:
            handle = await store.open(SESSION, "read")
            assert lines_of(handle) == lines
            assert [len(record.lines) for record in handle.records()] == [3]
            assert [record.id for _, record in store.recent(limit=9)] == [SESSION]
            assert list(store.survey()) == [SESSION]
            assert (store.vitals().sessions, store.is_owned(SESSION)) == (1, False)
            assert store.last_transaction() > 0
            store.follow(SESSION)()
    assert snapshot(folder) == before


@pytest.mark.parametrize("kept", ["store.lock", "commits.mark", "writer.pid", "lock.mdb"])
async def test_a_copy_that_lacks_one_of_the_files_beside_the_data_is_read(folder: Path, kept: str) -> None:
    lines = await made(folder)
    remove(folder / kept)
    with read_only(folder):
        async with opened(folder) as store:
            assert lines_of(await store.open(SESSION, "read")) == lines
    assert kept not in snapshot(folder)


@pytest.mark.parametrize("writable", ["lock.mdb", "store.lock", "data.mdb"])
async def test_a_store_of_which_some_files_may_be_written_is_read_only_all_the_same(folder: Path, writable: str) -> None:
    lines = await made(folder)
    before = snapshot(folder)
    with read_only(folder, but=writable):
        async with opened(folder) as store:
            assert lines_of(await store.open(SESSION, "read")) == lines
            with pytest.raises(LogUnwritableError, match="may only be read here"):
                await store.open(SESSION, "write")
    assert snapshot(folder) == before


Change: TypeAlias = Callable[[LmdbStore], Awaitable[Any]]


CHANGES: dict[str, Change] = {
    "create": lambda store: store.create(NewSession(OTHER, "/work", 1)),
    "open": lambda store: store.open(SESSION, "write"),
    "fork": lambda store: store.fork(SESSION, 1, NewSession(OTHER, "/work", 1)),
    "delete": lambda store: store.delete(SESSION),
    "archive": lambda store: store.set_archived(SESSION, True),
    "rehome": lambda store: store.rehome(SESSION, "/elsewhere"),
    "import": lambda store: store.import_session(store.get(SESSION), []),
    "rebuild": lambda store: store.rebuild_catalogue(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_every_change_of_a_store_that_may_only_be_read_is_refused_in_one_sentence(folder: Path, change: Change) -> None:
    await made(folder)
    before = snapshot(folder)
    with read_only(folder):
        async with opened(folder) as store:
            with pytest.raises(LogUnwritableError, match="may only be read here") as refused:
                await change(store)
    assert "\n" not in refused.value.message
    assert snapshot(folder) == before


async def test_who_needs_a_store_for_itself_is_refused_in_the_same_sentence(folder: Path) -> None:
    await made(folder)
    with read_only(folder):
        for work in (compact_store, accept_store):
            with pytest.raises(LogUnwritableError, match="may only be read here"):
                work(folder)


async def test_a_copy_that_lacks_what_was_promised_is_read_and_that_is_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await made(folder)
    mark = HighWaterMark(folder)
    mark.put(Commit(99, 99))
    mark.close()
    with read_only(folder):
        async with opened(folder) as store:
            assert lines_of(await store.open(SESSION, "read")) == lines
    assert "99 was promised" in caplog.text


async def test_an_empty_folder_that_may_only_be_read_holds_no_store(folder: Path) -> None:
    make_folder(folder)
    with read_only(folder), pytest.raises(ConfigError, match="none can be made"):
        await open_store(folder, new_uuid=new_uuid)
    assert snapshot(folder) == {}
