"""Space on the disk: whether a failed write means that there is none left, so that it may succeed later, and reserving it.

Every other failure says something worse about the disk, and nothing is tried again after it.
"""

from __future__ import annotations

import errno
import os
import tempfile
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
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:  # not on this platform: the error is taken at its word
        return True
    try:
        with tempfile.TemporaryFile(dir=data_file.parent) as probe:  # without a name, so that nobody else opens it too
            length = data_file.stat().st_size if data_file.exists() else 0
            allocate(probe.fileno(), length, max(size, 1))
    except OSError as error:  # any other refusal to reserve says nothing about space
        return error.errno not in FULL_ERRNOS
    return True


def reserve(path: Path, size: int) -> None:
    """Make `path` at least `size` bytes long, all of them on the disk, and make it where it is not there. Whoever writes to
    it through a map is killed by the system where a byte has no place yet. Raises OSError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        allocate = getattr(os, "posix_fallocate", None)
        if allocate is not None and os.fstat(file).st_blocks * _BLOCK < size:
            allocate(file, 0, size)
    except OSError as error:
        if error.errno in FULL_ERRNOS:  # where reserving is not supported, a sparse file must do
            raise
    finally:
        os.close(file)


_BLOCK: Final = 512
"""The unit of `st_blocks`, in bytes."""
