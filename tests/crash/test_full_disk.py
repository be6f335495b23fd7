"""Must show 3, in small: the disk becomes full at different moments of a working daemon, and has space again (C-04).

Nothing that was told is lost, refusals name the cause, the same daemon goes on. All 40 moments: `python -m
tests.crash.full_disk`.

Invariant: A disk that becomes full at any moment loses nothing that was told, is named as the cause, and the same process
goes on when there is space.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.crash.full_disk import small_disk

MOMENTS = 8
WAIT_S = 110


@pytest.mark.parametrize("way", ["tmpfs", "limit"])
def test_c04_a_disk_that_is_full_at_whatever_moment_loses_nothing_that_was_told(way: str) -> None:
    command = [sys.executable, "-m", "tests.crash.full_disk", "--moments", str(MOMENTS), "--seed", "3", "--way", way]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *moments, last = ran.stdout.splitlines()
    assert len(moments) == MOMENTS
    assert last.startswith(f"{MOMENTS} moments, ")
    assert last.endswith(" facts, 0 lost")


OPEN = """
import asyncio, sys
from refold_protocol.errors import RefoldError
from refold_storage.lmdb_store import open_store
async def main():
    try:
        store = await open_store(sys.argv[1], new_uuid=lambda: "x")
    except RefoldError as error:
        print(error.error_kind)
    else:
        print("open")
        await store.close()
asyncio.run(main())
"""


def opening(store: Path) -> tuple[int, str]:
    """Open a store in a process of its own, which a full disk must not kill; give its code and what it said."""
    ran = subprocess.run([sys.executable, "-c", OPEN, str(store)], capture_output=True, text=True, timeout=WAIT_S, check=False)
    return ran.returncode, ran.stdout.strip()


def fill(disk: Path, free: int) -> Path:
    """Leave so many pages of the disk free."""
    with (disk / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(file.tell() - 4096 * free)
    return disk / "ballast"


@pytest.fixture
def disk() -> Generator[Path]:
    with small_disk() as place:
        if place is None:
            pytest.skip("no file system can be mounted here")
        yield place


@pytest.mark.parametrize("free", [0, 2, 4, 17])
def test_a_new_store_on_a_nearly_full_disk_is_refused_as_such_and_made_when_there_is_room(disk: Path, free: int) -> None:
    """The data file is whole or not there, and what LMDB maps is on the disk before it is written to."""
    ballast = fill(disk, free)
    assert opening(disk / "store") == (0, "log.full")
    ballast.unlink()
    assert opening(disk / "store") == (0, "open")


def test_a_store_without_its_lock_file_on_a_full_disk_is_refused_as_such(disk: Path) -> None:
    assert opening(disk / "store") == (0, "open")
    (disk / "store" / "lock.mdb").unlink()
    ballast = fill(disk, 0)
    assert opening(disk / "store") == (0, "log.full")
    ballast.unlink()
    assert opening(disk / "store") == (0, "open")
