"""C-07: a process has one environment per store, found by the file's identity, and children never touch it."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import lmdb
import pytest

from refold_protocol.errors import ConfigError, LogUnwritableError
from refold_storage.interface import Handle
from refold_storage.lmdb_store import open_store
from refold_storage.shared_environments import REGISTRY
from refold_storage.store import LmdbStore
from tests.support.stores import NEW, OTHER, SESSION, chunks, filled, lines_of, new, new_uuid, run

pytestmark = pytest.mark.anyio


def made(folder: Path) -> list[Path]:
    """What was made in a folder."""
    return list(folder.iterdir())


def descriptors_of_a_child() -> str:
    """What the descriptors of a child process are, which was started without closing any."""
    looking = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if fd != '3'])"
    command = [sys.executable, "-c", looking]
    return subprocess.run(command, close_fds=False, capture_output=True, text=True, check=True).stdout


async def opened(folder: Path) -> LmdbStore:
    return await open_store(folder, new_uuid=new_uuid)


async def test_c_07_a_second_open_by_path_or_link_shares_the_first_ones_environment(tmp_path: Path) -> None:
    """C-07: open by path and by a symlink, close one, read with the other."""
    (tmp_path / "link").symlink_to(tmp_path / "store")
    one = await opened(tmp_path / "store")
    handle = await filled(one, chunks(3))
    two = await opened(tmp_path / "link")
    three = await opened(tmp_path / "x" / ".." / "store")
    assert one.environment is two.environment is three.environment
    await one.close()
    reader = await two.open(SESSION, "read")
    assert lines_of(reader) == reader.lines(0)
    assert reader.tail == 2
    again = await two.open(SESSION, "write")
    again.append(chunks(2))
    assert await again.flush() == 4
    await two.close()
    assert three.get(SESSION).tail == 4
    await three.close()
    assert handle.durable == 2


async def test_c_07_a_store_that_was_closed_by_all_can_be_opened_anew(tmp_path: Path) -> None:
    one = await opened(tmp_path)
    two = await opened(tmp_path)
    await one.close()
    await two.close()
    three = await opened(tmp_path)
    assert three.environment is not one.environment
    await three.close()


async def test_c_07_whoever_opens_the_file_behind_the_stores_back_gets_a_plain_error(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for path in ("store", "link"):
        with pytest.raises(lmdb.Error, match="already open"):
            lmdb.open(str(tmp_path / path))
    await store.close()


async def test_c_07_a_store_whose_file_somebody_else_here_has_open_is_refused(tmp_path: Path) -> None:
    await (await opened(tmp_path)).close()
    environment = lmdb.open(str(tmp_path), max_dbs=8)
    with pytest.raises(ConfigError, match="already open"):
        await opened(tmp_path / ".")
    environment.close()


def in_child(pipe: Connection, folder: Path, store: LmdbStore, handle: Handle) -> None:
    """What a forked child gets when it uses what it inherited, and when it opens the store itself."""
    told: list[str] = []
    for use in (lambda: lines_of(handle), lambda: store.get(SESSION), lambda: run(lambda: opened(folder))):
        try:
            use()
        except LogUnwritableError as error:
            told.append(error.message)
    pipe.send(told)
    pipe.recv()


async def test_c_07_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    """C-07: one multiprocessing fork while a read transaction is open; let it exit; then read and write."""
    store = await opened(tmp_path)
    handle = await filled(store, chunks(500))
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    with store.environment.reading() as transaction:
        child = context.Process(target=in_child, args=(theirs, tmp_path, store, handle))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of any fork beside threads
            child.start()
        told = mine.recv()
        assert transaction.stat()["entries"] > 0
    assert len(told) == 3
    assert all("forked" in message for message in told)
    await handle.close()
    assert not store.is_owned(SESSION)  # the child is still there, and holds no lease of its parent's
    mine.send("go")
    child.join()
    assert child.exitcode == 0
    again = await store.open(SESSION, "write")
    again.append(chunks(5))
    assert await again.flush() == 504
    assert len(lines_of(again)) == 505
    await store.close()
    mine.close()
    theirs.close()


async def test_c_07_spawned_processes_inherit_no_descriptor_of_the_store(tmp_path: Path) -> None:
    """C-07: spawn tool processes while a read transaction is open, let them exit, then read and write."""
    store = await opened(tmp_path)
    handle = await filled(store, chunks(5))
    with store.environment.reading() as transaction:
        for _ in range(3):
            assert str(tmp_path) not in descriptors_of_a_child()
        assert transaction.stat()["entries"] > 0
    handle.append(chunks(5))
    assert await handle.flush() == 9
    assert lines_of(await store.open(SESSION, "read")) == lines_of(handle)
    await store.close()


async def test_c_07_a_store_on_a_remote_file_system_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    """C-07: point the store at a path that the test declares to be remote."""
    with pytest.raises(ConfigError, match="network file system"):
        await open_store(tmp_path / "new" / "store", new_uuid=new_uuid, filesystem=lambda path: "nfs4")
    assert not made(tmp_path)


async def test_an_environment_that_failed_for_good_is_not_opened_again_by_this_process(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await filled(store, chunks(1), new(OTHER))
    store.environment.mark_failed("the disk is broken, says the test")
    await store.close()
    with pytest.raises(LogUnwritableError, match="says the test"):
        await opened(tmp_path)


async def test_closing_gives_the_environment_back(tmp_path: Path) -> None:
    before = REGISTRY.users()
    store = await opened(tmp_path)
    await store.create(NEW)
    assert REGISTRY.users() == before + 1
    await store.close()
    assert REGISTRY.users() == before
