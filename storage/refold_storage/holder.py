"""Owns a note: which process holds the store's write lock, or held it last. It is for error messages and decides nothing.

LMDB does not say who holds its lock, so whoever has it writes its process id into a small file beside the store. The
note is never synced and may be out of date.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NOTE_FILE: Final = "writer.pid"


class HolderNote:
    """The note of one store. `claim` is called with the write lock held, once per commit."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / NOTE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._mine = b"%-19d\n" % os.getpid()

    def claim(self) -> None:
        """Write this process's id, unless it stands there already."""
        try:
            if os.pread(self._file, _BYTES, 0) != self._mine:
                os.pwrite(self._file, self._mine, 0)
        except OSError:  # a full disk, say: a missing note only makes an error message poorer
            return

    def read(self) -> int | None:
        """Give the process id of the last holder, if that is another process than this one and still there; None otherwise:
        who waits for a slow disk is not held up by itself."""
        try:
            return _alive(os.pread(self._file, _BYTES, 0))
        except OSError:  # a note that cannot be read names nobody
            return None

    def close(self) -> None:
        """Close the file; the note stays."""
        os.close(self._file)


def noted_holder(folder: Path) -> int | None:
    """Give the same for the store in `folder` without making a note."""
    try:
        return _alive((folder / NOTE_FILE).read_bytes()[:_BYTES])
    except OSError:  # no note yet
        return None


def _alive(note: bytes) -> int | None:
    try:
        pid = int(note)
    except ValueError:  # no note yet, or a damaged one
        return None
    if pid == os.getpid():
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:  # it is there and belongs to somebody else
        return pid
    except (OSError, OverflowError):  # a process that is gone, or a number that is none
        return None
    return pid


_BYTES: Final = 20
