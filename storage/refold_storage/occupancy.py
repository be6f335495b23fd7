"""The locks on a store as a whole. One says who has it open: a `flock` on `store.lock`, shared by every process for as long
as it has the store open, and taken alone by `compact_store`, which replaces the data file. The other one says whose turn it
is to open or close it: a `flock` on the folder itself.

Where both are taken: first the one on the file, then the one on the folder. The operating system frees them when a process
dies, however it dies. Decides nothing else; who may write a session is `lease.py`'s business.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from refold_protocol.errors import LogBusyError
from refold_storage.occupants import lock_holders

OCCUPANCY_FILE: Final = "store.lock"

PATIENCE_SECONDS: Final = 5.0
"""How long an opener waits for a compaction to end."""

TURN_SECONDS: Final = 20.0
"""How long who opens a store waits for those who open or close it before him."""


class Occupancy:
    """An open file that is locked. `release` frees it; so does the end of the process. A forked child lets go of it."""

    def __init__(self, file: int) -> None:
        self._file = file
        _HELD.add(self)

    def again(self) -> Occupancy:
        """Give a second hold of the same lock: it is free when both are released."""
        return Occupancy(os.dup(self._file))

    def lock(self, kind: int) -> bool:
        """Lock the file, shared or alone; False where somebody else's lock forbids it."""
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Free the lock and keep the file open."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def release(self) -> None:
        """Let go. Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class OpeningTurn:
    """The lock under which one process at a time opens or closes LMDB's environment in a folder, one object an environment.

    LMDB's own lock is not enough. An opener that is alone sets the number of the last transaction to 0 and to the true one
    only at its end; a closer that is alone destroys the mutexes. Whoever waits in LMDB's lock meanwhile finds them so when
    that process is killed, or just goes on closing, and begins to write from a page that is not the newest. At the end of a
    process Linux frees LMDB's locks before any `flock`, so nobody gets into LMDB's lock while a dying process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = Occupancy(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    @contextmanager
    def taken(self, seconds: float) -> Generator[None]:
        """Have the turn within the block. Raises LogBusyError when it is somebody else's for `seconds`."""
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
        while not self._held.lock(fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                pid = next(iter(lock_holders(self._folder)), None)
                who = "another process" if pid is None else f"process {pid}"
                raise LogBusyError(f"{who} does not end opening or closing the store in {self._folder}", holder=pid)
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS)
        try:
            yield
        finally:
            self._held.unlock()

    def release(self) -> None:
        """Let go of the folder. Idempotent."""
        self._held.release()


def occupy(folder: Path) -> Occupancy:
    """Say that this process has the store in `folder` open. Blocks while the store is compacted, for PATIENCE_SECONDS at
    most; raises LogBusyError then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (held := _lock(folder, fcntl.LOCK_SH)) is None:
        if time.monotonic() >= deadline:
            raise LogBusyError(f"the store in {folder} is being compacted; try again when that is over")
        time.sleep(_PAUSE_SECONDS)
    return held


def occupy_alone(folder: Path) -> Occupancy:
    """Keep everybody else from opening the store. Raises LogBusyError when anybody has it open, this process included."""
    held = _lock(folder, fcntl.LOCK_EX)
    if held is None:
        pids = lock_holders(folder / OCCUPANCY_FILE)
        who = f" in {'process' if len(pids) == 1 else 'the processes'} {', '.join(map(str, pids))}" if pids else ""
        raise LogBusyError(
            f"the store in {folder} is open{who}; close every editor and every refold that uses it first",
            holder=pids[0] if pids else None,
        )
    return held


def _lock(folder: Path, kind: int) -> Occupancy | None:
    held = Occupancy(os.open(folder / OCCUPANCY_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        locked = held.lock(kind)
    except BaseException:
        held.release()
        raise
    if not locked:
        held.release()
    return held if locked else None


def _release_all() -> None:
    """In a forked child: let go of inherited descriptors, which would keep the parent's lock alive."""
    for occupancy in list(_HELD):
        occupancy.release()


_HELD: Final[weakref.WeakSet[Occupancy]] = weakref.WeakSet()
_FIRST_PAUSE_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.02
os.register_at_fork(after_in_child=_release_all)
