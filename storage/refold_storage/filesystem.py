"""Owns the answer to one question: does a folder lie on a file system over which LMDB's locks and map can be trusted?

Locks and shared memory do not hold between machines, so a store on a network file system is refused before anything is
opened. Never opens a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

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
