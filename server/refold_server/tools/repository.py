"""Where a session's folder lies: in which repository, and which folders lead from its root down to it.

The root is the nearest folder at or above the session's that has a `.git`. The search ends at the user's home folder, and at
a folder of another owner: what somebody else put above a session's folder is none of its project. Without a `.git` the
session's folder stands alone. Of git's own files it reads those alone that say where git's folder is. Asks no program.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_server.tools.text_file import read_up_to
from refold_server.tools.workspace_path import Workspace, WorkspacePath, shown

MAX_LEVELS: Final = 64
"""Folders that the search goes up."""

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class Repository(Struct, frozen=True):
    """Where a session's folder lies. `workspace` is the repository's root, `folder` the session's folder in it; `versioned`:
    the root has a `.git`, else it is the session's folder itself."""

    workspace: Workspace
    folder: WorkspacePath
    versioned: bool

    @property
    def folders(self) -> tuple[WorkspacePath, ...]:
        """The folders from the root down to the session's."""
        return tuple(WorkspacePath(self.folder.parts[:depth]) for depth in range(len(self.folder.parts) + 1))

    def seen(self, place: WorkspacePath) -> str:
        """Give a place's path relative to the session's folder, fit for a line of output: `../../AGENTS.md`."""
        common = 0
        for ours, theirs in zip(self.folder.parts, place.parts, strict=False):
            if ours != theirs:
                break
            common += 1
        up = [".."] * (len(self.folder.parts) - common)
        return shown("/".join((*up, *place.parts[common:]))) or "."


def find_repository(cwd: Path, home: Path | None = None) -> Repository | None:
    """Find where the folder `cwd` lies, links in its path resolved; `home` is the folder above which nothing is looked for.
    None when there is no such folder (any more)."""
    try:
        start = cwd.resolve(strict=True)
        owner = owner_of(start)
        top = None if home is None else home.resolve()
    except (OSError, RuntimeError):  # gone, or a loop of links: nothing can be said of it
        return None
    root = _root(start, {owner, os.geteuid()}, top)
    if root is None:
        return Repository(Workspace(start), WorkspacePath(()), versioned=False)
    return Repository(Workspace(root), WorkspacePath(start.relative_to(root).parts), versioned=True)


def _root(start: Path, owners: set[int], top: Path | None) -> Path | None:
    for folder in islice((start, *start.parents), MAX_LEVELS):
        try:
            if owner_of(folder) not in owners:
                return None
        except OSError:  # it cannot even be looked at
            return None
        if os.path.lexists(folder / ".git"):
            return folder
        if folder == top:
            return None
    return None


def git_folder(root: Path) -> Path | None:
    """Give git's folder of the repository or worktree at `root`: its `.git`, or the folder that a file of that name names."""
    folder = root / ".git"
    pointer = small_file(folder)
    if pointer is None:
        return folder if folder.is_dir() else None
    named = _named_folder(pointer, b"gitdir: ")
    return None if named is None else root / named


def common_folder(git: Path) -> Path:
    """Give the folder that the worktrees of a repository share; for git's folder of the main one that is itself."""
    pointer = small_file(git / "commondir")
    named = None if pointer is None else _named_folder(pointer, b"")
    return git if named is None else git / named


def is_git_folder(folder: Path) -> bool:
    """Tell whether a folder is git's own, whatever it is called: a bare repository, a `--separate-git-dir`, a worktree's."""
    if not (folder / "HEAD").is_file() and not (folder / "HEAD").is_symlink():
        return False
    return (folder / "commondir").is_file() or ((folder / "objects").is_dir() and (folder / "refs").is_dir())


def small_file(path: Path, size: int = 4_096) -> bytes | None:
    """Read a regular file's first bytes; None for anything else."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:  # not there, or not for us
        return None
    try:
        return read_up_to(descriptor, size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def _named_folder(pointer: bytes, head: bytes) -> str | None:
    name = pointer.removeprefix(head).rstrip(b"\r\n").replace(b"\0", b"")
    return os.fsdecode(name) if pointer.startswith(head) and name else None


def owner_of(folder: Path) -> int:
    """Give the user id of a folder's owner. Raises OSError."""
    return folder.stat().st_uid
