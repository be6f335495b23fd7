"""C-08: the map is full, or a record is large; and a disk that is really full."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from refold_protocol.errors import StorageFullError
from refold_protocol.ids import SessionId
from refold_storage.damage import walk_chain
from refold_storage.lmdb_store import open_store
from refold_storage.store import LmdbStore
from tests.support.stores import NEW, SESSION, chunk, chunks, filled, lines_of, new, new_uuid, tool_result, turn_end

pytestmark = pytest.mark.anyio

MIB = 1 << 20


async def small(folder: Path, max_bytes: int | None = None) -> LmdbStore:
    return await open_store(folder, new_uuid=new_uuid, map_bytes=MIB, max_bytes=max_bytes)


async def test_c_08_a_batch_larger_than_the_map_lands_whole_while_a_reader_is_active(tmp_path: Path) -> None:
    """C-08: a 1 MiB map; a 3 MiB tool result as the second event of a batch of three, with a reader active."""
    store = await small(tmp_path)
    handle = await filled(store, chunks(2_000))
    reader = await store.open(SESSION, "read")
    reading = reader.read()
    begun = [next(reading).seq for _ in range(3)]
    handle.append([chunk(), tool_result(3 * MIB, ""), turn_end()])
    assert await handle.flush() == 2_002
    assert begun + [event.seq for event in reading] == list(range(2_000))
    assert reader.refresh() == 2_002
    assert lines_of(reader) == lines_of(handle)
    assert [event.seq for event in reader.read()] == list(range(2_003))
    assert len(list(walk_chain(reader))) == 2_003
    assert store.environment.map_bytes >= 4 * MIB
    await store.close()


async def test_c_08_ten_thousand_small_appends_and_a_long_id_go_on_in_a_map_that_grows(tmp_path: Path) -> None:
    """C-08: then a session id of 600 bytes; then ten thousand small appends."""
    store = await small(tmp_path)
    name = "n" * 600
    handle = await store.create(new(name))
    for number in range(10_000):
        handle.append([chunk(f" {number * 7919 % 10_007}")])
        if number % 100 == 0:
            await asyncio.sleep(0)
        if number % 1_000 == 0:
            await handle.flush()
    await handle.close()
    reader = await store.open(SessionId(name), "read")
    assert [event.seq for event in reader.read()] == list(range(10_000))
    assert len(list(walk_chain(reader))) == 10_000
    await store.close()


async def test_c_08_the_configured_end_of_growth_behaves_like_a_full_disk(tmp_path: Path) -> None:
    """C-08: growth has a configured end, which behaves like a full disk."""
    store = await small(tmp_path, max_bytes=2 * MIB)
    handle = await filled(store, chunks(100))
    other = await filled(store, chunks(3), new("other"))
    handle.append([chunk(), tool_result(3 * MIB, ""), turn_end()])
    for _ in range(2):
        with pytest.raises(StorageFullError):
            await handle.flush()
    reader = await store.open(SESSION, "read")
    assert reader.tail == 99
    assert len(lines_of(handle)) == 103
    with pytest.raises(StorageFullError):
        await handle.close()
    assert not store.is_owned(SESSION)
    other.append(chunks(3))
    assert await other.flush() == 5
    again = await store.open(SESSION, "write")
    again.append(chunks(3))
    assert await again.flush() == 102
    await store.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Generator[Path | None]:
    """A file system of 4 MiB of its own where the machine lets us mount one; None elsewhere."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    yield place if mounted else None
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


async def test_a_really_full_disk_loses_nothing_and_goes_on_when_there_is_space_again(tiny_disk: Path | None) -> None:
    """Where no file system can be mounted, the next test is the one with a real write that fails."""
    if tiny_disk is None:
        return
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(2 * MIB))
    store = await open_store(tiny_disk / "store", new_uuid=new_uuid)
    handle = await filled(store, chunks(100))
    handle.append([tool_result(3 * MIB, "")])
    for _ in range(2):
        with pytest.raises(StorageFullError):
            await handle.flush()
    assert isinstance(handle.trouble, StorageFullError)
    handle.append([turn_end()])
    reader = await store.open(SESSION, "read")
    assert len(lines_of(reader)) == 100
    assert len(lines_of(handle)) == 102
    ballast.unlink()
    assert await handle.flush() == 101
    assert reader.refresh() == 101
    assert len(list(walk_chain(reader))) == 102
    await store.close()


FULL_FILE = """
import asyncio, sys
from pathlib import Path
from refold_protocol.errors import StorageFullError
from refold_storage.lmdb_store import open_store
from tests.support.stores import NEW, chunks, filled, new_uuid, tool_result

async def main():
    store = await open_store(sys.argv[1], new_uuid=new_uuid)
    handle = await filled(store, chunks(100))
    handle.append([tool_result(2 << 20, "")])
    for _ in range(2):
        try:
            await handle.flush()
        except StorageFullError as error:
            print("full", handle.durable, handle.tail, len(list(handle.read())))
    try:
        await store.close()
    except StorageFullError:
        print("closed")

asyncio.run(main())
"""


def run_with_small_files(program: str, argument: Path) -> str:
    """Run a program that may not write beyond 1 MiB of a file; give what it printed."""
    return subprocess.run(
        [sys.executable, "-c", program, str(argument)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB)),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


async def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    """A real failing write on any machine."""
    printed = run_with_small_files(FULL_FILE, tmp_path)
    assert printed.split("\n") == ["full 99 100 101", "full 99 100 101", "closed", ""]
    store = await open_store(tmp_path, new_uuid=new_uuid)
    handle = await store.open(NEW.id, "write")
    assert handle.tail == 99
    handle.append([tool_result(2 << 20, "")])
    assert await handle.flush() == 100
    await store.close()
