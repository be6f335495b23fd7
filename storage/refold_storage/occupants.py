"""Owns finding out who holds a lock of the operating system on a file, where it says so: Linux does, in /proc/locks.

For messages only: what it gives may be out of date, and in a container it may be nobody. Decides nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")


def lock_holders(file: Path) -> tuple[int, ...]:
    """Give the pids of the processes that hold an `flock` on `file`, ascending; those that took it, where it was inherited."""
    try:
        status = file.stat()
        lines = _LOCKS.read_text(encoding="ascii", errors="replace").split("\n")
    except OSError:  # another system, or nothing there: nobody is known
        return ()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    found = {row[4] for row in map(str.split, lines) if row[1:2] == ["FLOCK"] and row[5:6] == [device]}
    return tuple(sorted(int(pid) for pid in found if pid.isdigit() and pid != "0"))
