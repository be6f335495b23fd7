"""Test of a file system: whether a folder lies on one over which LMDB's locks and map can be trusted?

Locks and shared memory do not hold between machines, so a store on a network file system is refused before anything is
opened. Never opens a store.

Space on the disk: whether a failed write means that there is none left, so that it may succeed later, and reserving it.

Every other failure says something worse about the disk, and nothing is tried again after it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import lmdb

from refold_protocol.errors import ConfigError

FilesystemOf: TypeAlias = Callable[[Path], str | None]
"""Gives the type of the file system that holds a path, in the kernel's word, or None where that cannot be told."""

REMOTE_FILESYSTEMS: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    }
)
"""Types that are refused."""


def filesystem_type(path: Path) -> str | None:
    """Tell what kind of file system holds `path`, by the kernel's list of mounts; None where there is no such list."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # no procfs, as on macOS: the question has no answer, and nothing is refused
        return None
    return parse_mounts(mounts, os.path.realpath(path))


def parse_mounts(mounts: str, path: str) -> str | None:
    """Give the type of the mount that holds the absolute `path`, from text in the format of `/proc/self/mountinfo`
    (proc(5)). Of several mounts at one place the last hides the others."""
    best, found = -1, None
    for line in mounts.split("\n"):
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        place = _unescape(fields[4])
        inside = path == place or path.startswith(place if place.endswith("/") else place + "/")
        if inside and len(place) >= best:
            best, found = len(place), after.split(" ", 1)[0]
    return found


def refuse_remote(path: Path, filesystem: FilesystemOf) -> None:
    """Raise ConfigError when `path` lies on a network file system."""
    kind = filesystem(path)
    if kind in REMOTE_FILESYSTEMS:
        raise ConfigError(
            "store.path",
            f"{path} lies on a network file system ({kind}), where the store's locks do not hold between machines; "
            "choose a folder on a local disk",
        )


def _unescape(place: str) -> str:
    """Undo the kernel's octal escapes of space, tab, line break and backslash."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(escape, character)
    return place


_MOUNTS: Final = Path("/proc/self/mountinfo")


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
