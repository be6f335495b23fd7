"""The entries of a workspace's tree: in a fixed order, without what git ignores, never out of the tree.

Order: by names' code points, a folder's entries in the place of the folder; it never depends on the file system. Symbolic
links are told but not followed, so there are no loops and no way out. `.git` is never looked into, and the temporary files of
writes that were killed are not seen. Bounded in entries, depth and time; what a bound left out is said, not hidden. Opens no
file but those that hold rules of what git ignores, and these also above the workspace, up to its repository's root.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_server.tools.atomic_write import is_temporary
from refold_server.tools.ignore_rules import MAX_RULES_BYTES, Rules, is_ignored, parse_rules
from refold_server.tools.repository import common_folder, find_repository, git_folder, small_file
from refold_server.tools.text_file import read_up_to
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import Workspace, WorkspacePath

MAX_ENTRIES: Final = 100_000
"""Entries that one walk looks at, ignored ones included."""

MAX_DEPTH: Final = 100
"""Folders within folders that one walk goes down."""

MAX_SECONDS: Final = 10.0
"""Seconds that one walk takes, with what its reader does between entries: rules of a hostile repository cost most."""

_RULES_NAME: Final = ".gitignore"
_OPEN_RULES: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Entry(Struct, frozen=True):
    """A file, or a symbolic link with the text that it holds as `target`, or a `folder` that the walk was told not to enter."""

    place: WorkspacePath
    target: str | None = None
    folder: bool = False


class _Found(Struct, frozen=True):
    place: WorkspacePath
    folder: bool
    target: str | None
    rules: tuple[Rules, ...]


class Walk:
    """One walk from the folder `start` down. `check` is called for each entry and may raise to stop it. With `levels`,
    entries that many levels below `start` are the last: folders among them are given, not entered."""

    def __init__(
        self,
        workspace: Workspace,
        start: WorkspacePath,
        check: Callable[[], None],
        *,
        limit: int = MAX_ENTRIES,
        levels: int | None = None,
        seconds: float = MAX_SECONDS,
    ) -> None:
        self._until = time.monotonic() + seconds
        self._deepest = None if levels is None else len(start.parts) + levels
        self._workspace = workspace
        self._start = start
        self._check = check
        self._room = limit
        self._above, self._outer = rules_above(workspace.root)
        self.cut = False
        """Whether a bound left something out."""
        self.unreadable = 0
        """Folders that could not be read."""

    def entries(self) -> Iterator[Entry]:
        """Give the files and links, in order. Raises ToolFailure when `start` cannot be listed."""
        waiting = self._folder(self._start, self._rules_above())
        while waiting:
            found = waiting.pop()
            if self._is_late():
                return
            if not found.folder:
                yield Entry(found.place, found.target)
                continue
            if len(found.place.parts) == self._deepest:
                yield Entry(found.place, folder=True)
                continue
            try:
                waiting.extend(self._folder(found.place, found.rules))
            except ToolFailure:  # one folder without permission, or gone by now, must not hide the others
                self.unreadable += 1

    def _is_late(self) -> bool:
        """Tell whether the time is over; what is left is cut off then."""
        late = time.monotonic() > self._until
        self.cut |= late
        return late

    def _rules_above(self) -> tuple[Rules, ...]:
        """Collect the rules from the root down to above `start`; none if they would leave out `start` itself, which
        somebody asked for by its name."""
        rules = self._outer
        for depth in range(len(self._start.parts)):
            above = WorkspacePath(self._start.parts[:depth])
            descriptor = self._workspace.open_folder(above)
            try:
                rules = (*rules, *_rules_in(descriptor, len(self._above) + depth))
            finally:
                os.close(descriptor)
            if self._is_ignored(rules, WorkspacePath(self._start.parts[: depth + 1]), folder=True):
                return ()
        return rules

    def _is_ignored(self, rules: tuple[Rules, ...], place: WorkspacePath, *, folder: bool) -> bool:
        return is_ignored(rules, WorkspacePath((*self._above, *place.parts)), folder=folder)

    def _folder(self, place: WorkspacePath, rules: tuple[Rules, ...]) -> list[_Found]:
        """List one folder, last name first."""
        if len(place.parts) > MAX_DEPTH + len(self._start.parts) or self._room <= 0:
            self.cut = True
            return []
        descriptor = self._workspace.open_folder(place)
        try:
            rules = (*rules, *_rules_in(descriptor, len(self._above) + len(place.parts)))
            with os.scandir(descriptor) as listing:
                entries = list(islice(listing, self._room + 1))
            if len(entries) > self._room:
                self.cut = True
            self._room -= len(entries)
            seen = takewhile(lambda _: not self._is_late(), entries)
            found = [self._found(place, entry, descriptor, rules) for entry in seen if entry.name != ".git"]
        except OSError as error:
            raise ToolFailure("TOOL_FAILED", "FileError", f"{place.shown} could not be listed: {error.strerror}") from None
        finally:
            os.close(descriptor)
        shown = [item for item in found if item is not None]
        return sorted(shown, key=lambda item: item.place.parts[-1], reverse=True)

    def _found(self, above: WorkspacePath, entry: os.DirEntry[str], descriptor: int, rules: tuple[Rules, ...]) -> _Found | None:
        self._check()
        folder = entry.is_dir(follow_symlinks=False)
        link = entry.is_symlink()
        if not (folder or link or entry.is_file(follow_symlinks=False)):
            return None
        if not (folder or link) and is_temporary(entry.name):
            return None
        place = above.child(entry.name)
        if self._is_ignored(rules, place, folder=folder):
            return None
        return _Found(place, folder, _target(entry.name, descriptor) if link else None, rules)


def rules_above(folder: Path) -> tuple[tuple[str, ...], tuple[Rules, ...]]:
    """Give the path from the root of its repository down to a folder, and the rules that hold there: those of the user, of
    `info/exclude`, and of each folder above. A folder that they leave out is looked at all the same: somebody works in it."""
    found = find_repository(folder)
    if found is None or not found.versioned:
        return (), ()
    root, above = found.workspace.root, found.folder.parts
    rules = _excludes(root)
    for depth in range(len(above)):
        data = small_file(root.joinpath(*above[:depth], _RULES_NAME), MAX_RULES_BYTES)
        rules = rules if data is None else (*rules, parse_rules(data, depth))
        if is_ignored(rules, WorkspacePath(above[: depth + 1]), folder=True):
            return above, ()
    return above, rules


def _excludes(root: Path) -> tuple[Rules, ...]:
    """Give the rules that stand in no folder of the repository: first those of `core.excludesFile`, then `info/exclude`."""
    git = git_folder(root)
    if git is None:
        return ()
    common = common_folder(git)
    files = (excludes_file(common / "config"), common / "info" / "exclude")
    found = (None if file is None else small_file(file, MAX_RULES_BYTES) for file in files)
    return tuple(parse_rules(data, 0) for data in found if data is not None)


def excludes_file(config: Path) -> Path | None:
    """Give the file that `core.excludesFile` names in a repository's configuration, else in the user's; else the one that git
    takes where nothing is said."""
    home = os.environ.get("HOME")
    folder = os.environ.get("XDG_CONFIG_HOME") or (None if home is None else f"{home}/.config")
    users = os.environ.get("GIT_CONFIG_GLOBAL")
    places = [config]
    if users is not None:
        places.append(Path(users))
    else:
        places += [Path(home, ".gitconfig")] if home else []
        places += [Path(folder, "git", "config")] if folder else []
    for place in places:
        name = _excludes_named(small_file(place, MAX_RULES_BYTES) or b"")
        if name is not None:
            return Path(os.path.expanduser(name)) if name else None  # noqa: PTH111 - Path's own raises without a home
    return Path(folder, "git", "ignore") if folder else None


def _excludes_named(config: bytes) -> str | None:
    """Give the last value of `core.excludesFile` in a text of git's configuration."""
    section, name = b"", None
    for line in config.split(b"\n"):
        text = line.strip()
        if text.startswith(b"["):
            section = text[1:].partition(b"]")[0].strip().lower()
        key, equals, value = text.partition(b"=")
        if section == b"core" and equals and key.strip().lower() == b"excludesfile":
            name = os.fsdecode(value.strip().strip(b'"').replace(b"\0", b""))
    return name


def _target(name: str, descriptor: int) -> str:
    try:
        return os.readlink(name, dir_fd=descriptor)
    except OSError:  # gone by now; the listing still says that there was a link
        return "?"


def _rules_in(descriptor: int, depth: int) -> tuple[Rules, ...]:
    try:
        file = os.open(_RULES_NAME, _OPEN_RULES, dir_fd=descriptor)
    except OSError:  # there is none, or it is a link, which git does not follow either
        return ()
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ()
        return (parse_rules(read_up_to(file, MAX_RULES_BYTES), depth),)
    finally:
        os.close(file)
