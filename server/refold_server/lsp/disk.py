"""Owns the replacing of a file's text on disk: the old text is checked, and the new one is there whole or not at all.

Blocking; called in threads. A path is followed through its links to the file that it names. Creates and deletes no file but
the temporary one beside it. Confinement to a workspace is the caller's affair.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from msgspec import Struct

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark that some editors put in front of UTF-8, and keep out of the text."""


class DiskText(Struct, frozen=True):
    """A file's bytes and, where they are UTF-8, its text without the byte order mark."""

    data: bytes
    text: str | None


class FileChangedError(Exception):
    """The file does not hold any more what was read."""


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

    Raises FileChangedError, OSError, and UnicodeEncodeError for half a surrogate pair.
    """
    real = Path(os.path.realpath(path))
    data = (MARK if before.data.startswith(MARK) else b"") + text.encode()
    alone = real.stat().st_nlink == 1 and os.access(real.parent, os.W_OK)
    if not (alone and _wrote_beside(real, before.data, data)):
        _write_in_place(real, before.data, data)  # a new file would leave the other names with the old text


def _wrote_beside(real: Path, before: bytes, data: bytes) -> bool:
    """Put a new file in the place of the old one. Gives False, with nothing done, where it could not have its owner."""
    descriptor, name = tempfile.mkstemp(prefix=f".{real.name[:100]}.", suffix=".refold", dir=real.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            status, made = real.stat(), os.fstat(descriptor)
            if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
                try:
                    os.fchown(descriptor, status.st_uid, status.st_gid)
                except OSError:  # only root may give files away
                    beside.unlink()
                    return False
            os.fchmod(descriptor, status.st_mode & 0o7777)  # behind the owner, whose change takes special bits away
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        _check(real.read_bytes(), before)
        beside.replace(real)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return True


def _write_in_place(real: Path, before: bytes, data: bytes) -> None:
    with real.open("r+b", buffering=0) as file:
        _check(file.readall(), before)
        try:
            if len(data) > len(before) and hasattr(os, "posix_fallocate"):  # macOS has none
                os.posix_fallocate(file.fileno(), 0, len(data))  # a full disk is found before anything is overwritten
            _put(file, data)
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):  # the file may be longer by now, or half the new one
                _put(file, before)
            raise


def _put(file: FileIO, data: bytes) -> None:
    file.seek(0)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    file.truncate()


def _check(found: bytes, before: bytes) -> None:
    if found != before:
        raise FileChangedError
