"""The contributor `baseline`: what the session's folder holds, two levels deep, and the branch of its repository.

It tells names only, in a fixed order, without what git ignores: the same tree gives the same text wherever it lies and
whenever it was made. A folder with more entries than may be looked at is told with less, never in part. The branch is read
from `.git/HEAD`, also where `.git` is a file that names another folder; a commit is never told, since each one differs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

import anyio.from_thread
import anyio.to_thread

from refold_server.tools.repository import Repository, find_repository, git_folder, small_file
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.tree_walk import Entry, Walk
from refold_server.tools.workspace_path import shown

MAX_ENTRIES: Final = 5_000
"""Entries that are looked at; where there are more, the outline has one level, and with still more none."""

MAX_LINES: Final = 150
"""Lines that the outline has."""

_MAX_SECONDS: Final = 2.0
"""Seconds that the walk of each outline takes; the first prompt waits for it."""

_SHOWN_OF_FOLDER: Final = (1_000, 20, 8, 0)
"""How many entries of each folder are shown: the first of these with which the outline fits."""

_HEAD: Final = "The workspace as it was when this session was opened; look again before you rely on it."
_TREES: Final = ((2, "two levels"), (1, "one level"))
"""How deep an outline goes, the deepest first, and how that is told."""

_BRANCH: Final = re.compile(rb"ref: refs/heads/([^\s\0]{1,200})\n?")


async def baseline(cwd: str, home: Path | None) -> str | None:
    """Give branch and outline of `cwd`, None for a folder of which there is nothing to say."""
    return await anyio.to_thread.run_sync(_written, Path(cwd), home, abandon_on_cancel=True)


def _written(cwd: Path, home: Path | None) -> str | None:
    repository = find_repository(cwd, home)
    if repository is None:
        return None
    branch = git_branch(repository.workspace.root) if repository.versioned else None
    outline = outlined(repository)
    parts = [_HEAD]
    if branch is not None:
        parts.append(f"Git branch: {branch}")
    if outline:
        parts.append("\n".join(outline))
    return "\n".join(parts) if len(parts) > 1 else None


def outlined(repository: Repository) -> list[str]:
    """Give the outline's lines; none for an empty folder."""
    for levels, told in () if _is_huge(repository) else _TREES:
        walk = Walk(
            repository.workspace,
            repository.folder,
            anyio.from_thread.check_cancelled,
            limit=MAX_ENTRIES,
            levels=levels,
            seconds=_MAX_SECONDS,
        )
        try:
            entries = list(walk.entries())
        except ToolFailure:  # it cannot be listed; whoever tries to work there is told so
            return []
        if not walk.cut:
            lines = _fitting(entries, len(repository.folder.parts))
            return [f"Its files, {told} deep, without those that git ignores:", *lines] if lines else []
    return [f"It holds more than {MAX_ENTRIES:,} files; they are not listed here."]


def _is_huge(repository: Repository) -> bool:
    """Tell whether the folder itself has too many entries; they need not be compared with the ignore rules then."""
    try:
        descriptor = repository.workspace.open_folder(repository.folder)
    except ToolFailure:  # as above
        return False
    try:
        with os.scandir(descriptor) as listing:
            return sum(1 for _ in islice(listing, MAX_ENTRIES + 1)) > MAX_ENTRIES
    finally:
        os.close(descriptor)


def _fitting(entries: list[Entry], depth: int) -> list[str]:
    lines: list[str] = []
    for most in _SHOWN_OF_FOLDER:
        lines = _lines(entries, depth, most)
        if len(lines) <= MAX_LINES:
            return lines
    return [*lines[: MAX_LINES - 1], f"… and {len(lines) - MAX_LINES + 1:,} more"]


def _lines(entries: list[Entry], depth: int, most: int) -> list[str]:
    """Give a line for each entry, at most `most` of each folder; `depth` counts the folders above all of them."""
    below = Counter(entry.place.parts[depth] for entry in entries if len(entry.place.parts) > depth + 1)
    told: Counter[str] = Counter()
    lines: list[str] = []
    for entry in entries:
        first, rest = entry.place.parts[depth], entry.place.parts[depth + 1 :]
        if not rest:
            lines.append(_named(first, entry))
            continue
        told[first] += 1
        if told[first] == 1:
            lines.append(f"{shown(first)}/" + (f" ({below[first]:,} entries)" if most == 0 else ""))
        if told[first] <= most:
            lines.append(f"  {_named(rest[0], entry)}")
        elif told[first] == most + 1 and most:
            lines.append(f"  … and {below[first] - most:,} more")
    return lines


def _named(name: str, entry: Entry) -> str:
    if entry.target is not None:
        return f"{shown(name)} -> {shown(entry.target)}"
    return f"{shown(name)}/" if entry.folder else shown(name)


def git_branch(root: Path) -> str | None:
    """Give the branch that is checked out in the repository at `root`; None where that cannot be told in one word, as for a
    detached HEAD or the placeholder that HEAD holds where branches are kept in tables."""
    folder = git_folder(root)
    found = None if folder is None else _BRANCH.fullmatch(small_file(folder / "HEAD") or b"")
    return None if found is None or found[1].startswith(b".") else shown(os.fsdecode(found[1]))
