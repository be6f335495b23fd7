"""Owns the answer to: does an error mean that there is no space left, so that the same write may succeed later?

Every other failed write says something worse about the disk, and nothing is tried again after it.
"""

from __future__ import annotations

import errno
from typing import Final

import lmdb

FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space on the device, quota used up, largest allowed file reached."""


def is_full(error: lmdb.Error | OSError) -> bool:
    """Tell whether `error` is about space. A full map counts: whoever asks has seen that it cannot grow."""
    if isinstance(error, lmdb.Error):
        return isinstance(error, lmdb.MapFullError | lmdb.DiskError) or error.code in FULL_ERRNOS
    return error.errno in FULL_ERRNOS
