"""Owns who has a store open: a `flock` on `store.lock`, shared by every process for as long as it has the store open, and
taken alone by `compact_store`, which replaces the data file.

The operating system frees it when a process dies, however it dies. The file stays and is empty. Decides nothing else; who
may write a session is `lease.py`'s business.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Final

from refold_protocol.errors import LogBusyError
from refold_storage.occupants import lock_holders

OCCUPANCY_FILE: Final = "store.lock"

PATIENCE_SECONDS: Final = 5.0
"""How long an opener waits for a compaction to end."""


class Occupancy:
    """A held lock. `release` frees it; so does the end of the process."""

    def __init__(self, file: int) -> None:
        self._file = file
        _HELD.add(self)

    def again(self) -> Occupancy:
        """Give a second hold of the same lock: it is free when both are released."""
        return Occupancy(os.dup(self._file))

    def release(self) -> None:
        """Let go. Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


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
    file = os.open(folder / OCCUPANCY_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except BaseException:
        os.close(file)
        raise
    return Occupancy(file)


def _release_all() -> None:
    """In a forked child: let go of inherited descriptors, which would keep the parent's lock alive."""
    for occupancy in list(_HELD):
        occupancy.release()


_HELD: Final[weakref.WeakSet[Occupancy]] = weakref.WeakSet()
_PAUSE_SECONDS: Final = 0.02
os.register_at_fork(after_in_child=_release_all)
