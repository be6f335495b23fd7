"""Owns the replacing of a file's text on disk, in the way in which tools replace files.

Blocking; called in threads. A path is followed through its links to the file that it names. Creates and deletes no file but
the temporary one beside it. Confinement to a workspace is the caller's affair.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_server.tools.atomic_write import may_write, write_over

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark that some editors put in front of UTF-8, and keep out of the text."""

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class DiskText(Struct, frozen=True):
    """A file's bytes and, where they are UTF-8, its text without the byte order mark."""

    data: bytes
    text: str | None


def read_text(path: str) -> DiskText | None:
    """Read a file; None where there is none. Raises OSError."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return DiskText(data, data.removeprefix(MARK).decode())
    except UnicodeDecodeError:
        return DiskText(data, None)


def replace_text(path: str, before: DiskText, text: str) -> None:
    """Write `text` in the place of `before`, which the file must still hold; permissions and byte order mark stay.

    Raises FileChangedError, OSError (so for a file whose mode takes no text from this user), and UnicodeEncodeError for half a
    surrogate pair.
    """
    real = Path(os.path.realpath(path))
    data = (MARK if before.data.startswith(MARK) else b"") + text.encode()
    folder = os.open(real.parent, _FOLDER_FLAGS)
    try:
        if not may_write(folder, real.name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        write_over(folder, real.name, before.data, data, partial(os.open, real.name, _FILE_FLAGS, dir_fd=folder))
    finally:
        os.close(folder)
