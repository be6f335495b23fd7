"""Where a session's folder lies: in which repository, and which folders lead from its root down to it.

The root is the nearest folder at or above the session's that has a `.git`. The search ends at the user's home folder, and at
a folder of another owner: what somebody else put above a session's folder is none of its project. Without a `.git` the
session's folder stands alone. Looks at names and owners only, opens no file, asks no program.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_server.tools.workspace_path import Workspace, WorkspacePath, shown

MAX_LEVELS: Final = 64
"""Folders that the search goes up."""


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


def owner_of(folder: Path) -> int:
    """Give the user id of a folder's owner. Raises OSError."""
    return folder.stat().st_uid
