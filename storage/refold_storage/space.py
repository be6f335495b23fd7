"""Owns the answer to: does a failed write mean that there is no space left, so that it may succeed later?

Every other failure says something worse about the disk, and nothing is tried again after it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

import lmdb

FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space on the device, quota used up, largest allowed file reached."""


def is_full(error: lmdb.Error | OSError, data_file: Path, size: int) -> bool:
    """Tell whether `error`, met when about `size` bytes were to be written to `data_file`, is about space.

    LMDB reports a write that stopped half-way as an input/output error whatever the reason (mdb_page_flush in mdb.c),
    and on a full disk writes do stop half-way; so that error is believed only if there is room for the bytes. A full map
    counts as full: whoever asks has seen that it cannot grow.
    """
    if isinstance(error, lmdb.MapFullError | lmdb.DiskError):
        return True
    # An error of the binding has a code; one that was made in Python, as by a fault injection, may have none.
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", 0)
    if code == errno.EIO:
        return not has_room(data_file, size)
    return code in FULL_ERRNOS


def has_room(data_file: Path, size: int) -> bool:
    """Tell whether `data_file` could become `size` bytes longer, by reserving as much for a moment beside it."""
    reserve = getattr(os, "posix_fallocate", None)
    if reserve is None:  # not on this platform: the error is taken at its word
        return True
    probe = data_file.with_name("room.probe")
    try:
        file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            probe.unlink()
            reserve(file, data_file.stat().st_size, max(size, 1))
        finally:
            os.close(file)
    except OSError as error:  # any other refusal to reserve says nothing about space
        return error.errno not in FULL_ERRNOS
    return True
