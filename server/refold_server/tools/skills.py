"""Owns finding skills: folders with a SKILL.md that tells what it is for, and how to do it.

They lie in `.agents/skills` or `.claude/skills` of the session's folder and of the folders above it up to the repository's
root, and in one folder of the user's own. Of two with the same name the nearest counts, the user's own last. A file is opened
only where no link leads out of the repository, or out of the user's folder. Bounded, and in an order that never varies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_server.tools.failure import ToolFailure
from refold_server.tools.front_matter import MAX_BYTES, FrontMatterError, read_front_matter
from refold_server.tools.paths import ROOT, Place, Workspace, shown
from refold_server.tools.repository import Repository, find_repository
from refold_server.tools.text_file import BYTE_ORDER_MARK, read_up_to

SKILL_FILE: Final = "SKILL.md"

FOLDERS: Final = ((".agents", "skills"), (".claude", "skills"))
"""Where skills lie in a folder of the repository, the more important first."""

MAX_SKILLS: Final = 200
"""Skills of one place that are looked at: the first ones by name."""

MAX_LISTED: Final = 10_000
"""Entries of one place among which these are chosen; a place with more is not looked at."""

MAX_DESCRIPTION: Final = 1_024
"""Characters of a description that are kept."""

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


class SkillShelf(Struct, frozen=True):
    """What a search for skills depends on besides the session's folder: the user's own folder of them, and the home folder,
    above which no repository is looked for. None: there is none."""

    own: Path | None = None
    home: Path | None = None


class Skill(Struct, frozen=True):
    """A skill that can be read. `folder` is its folder in `workspace`; no link leads out of the latter."""

    name: str
    description: str
    workspace: Workspace
    folder: Place


class Catalogue(Struct, frozen=True):
    """The skills of a session by name, and a clause for each thing that was not taken, in order."""

    skills: tuple[Skill, ...]
    troubles: tuple[str, ...] = ()


class _Shelf(Struct, frozen=True):
    """One place of skills; `told` is how its path is told."""

    workspace: Workspace
    place: Place
    told: str


def find_skills(cwd: Path, shelf: SkillShelf) -> Catalogue:
    """Find a session's skills. Reads the start of each SKILL.md; call it in a thread. Never fails."""
    found: dict[str, Skill] = {}
    troubles: list[str] = []
    for place in _shelves(find_repository(cwd, shelf.home), shelf.own):
        for told, folder in _skill_folders(place, troubles):
            try:
                skill = _skill(place.workspace, folder)
            except (ToolFailure, FrontMatterError) as fault:
                troubles.append(f"{told}: {fault}")
                continue
            if skill is not None:
                found.setdefault(skill.name, skill)
    return Catalogue(tuple(found[name] for name in sorted(found)), tuple(troubles))


def has_skills(cwd: Path, shelf: SkillShelf) -> bool:
    """Tell whether any SKILL.md is there, readable or not. Opens no file; stops at the first."""
    for place in _shelves(find_repository(cwd, shelf.home), shelf.own):
        for _, folder in _skill_folders(place, []):
            if _is_there(place.workspace, folder.child(SKILL_FILE)):
                return True
    return False


def open_in_skill(skill: Skill, path: str) -> int:
    """Open a file of a skill's folder for reading and give its descriptor, which the caller closes. Raises ToolFailure."""
    place = skill.workspace.locate(f"{skill.folder.text}/{path}")
    if place.parts[: len(skill.folder.parts)] != skill.folder.parts:
        raise ToolFailure("DENIED", "OutsideSkill", f"{shown(path)} leads out of the skill's folder")
    return skill.workspace.open_file(place)


def _shelves(repository: Repository | None, own: Path | None) -> Iterator[_Shelf]:
    """Give the places of skills, the most important first."""
    if repository is not None:
        for folder in reversed(repository.folders):
            for parts in FOLDERS:
                place = Place((*folder.parts, *parts))
                yield _Shelf(repository.workspace, place, repository.seen(place))
    if own is not None and own.is_absolute():
        yield _Shelf(Workspace(own), ROOT, "your own skills")


def _skill_folders(shelf: _Shelf, troubles: list[str]) -> list[tuple[str, Place]]:
    """Give the folders of one place by name, each with how it is told; none where the place is not there."""
    try:
        place = shelf.workspace.locate(shelf.place.text)
        descriptor = shelf.workspace.open_folder(place)
    except ToolFailure as failure:
        if failure.name not in ("FileNotFound", "NotAFolder", "WorkspaceMissing"):
            troubles.append(f"{shelf.told}: {failure.message}")
        return []
    try:
        with os.scandir(descriptor) as listing:
            names = [entry.name for entry in islice(listing, MAX_LISTED + 1)]
    except OSError as error:
        troubles.append(f"{shelf.told}: could not be listed: {error.strerror}")
        return []
    finally:
        os.close(descriptor)
    if len(names) > MAX_LISTED:
        troubles.append(f"{shelf.told}: has more than {MAX_LISTED:,} entries and was not looked at")
        return []
    names = sorted(name for name in names if not name.startswith("."))
    if len(names) > MAX_SKILLS:
        troubles.append(f"{shelf.told}: only the first {MAX_SKILLS} of its {len(names):,} entries were looked at")
    return [(f"{shelf.told}/{shown(name)}", place.child(name)) for name in names[:MAX_SKILLS]]


def _skill(workspace: Workspace, folder: Place) -> Skill | None:
    """Read what a skill is called and what it is for; None where no SKILL.md is. Raises ToolFailure, FrontMatterError."""
    if not _is_there(workspace, folder.child(SKILL_FILE)):
        return None
    folder = workspace.locate(folder.text)
    descriptor = open_in_skill(Skill("", "", workspace, folder), SKILL_FILE)
    try:
        start = read_up_to(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)
    matter = read_front_matter(start.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace"))
    name, description = matter.text("name"), shown(matter.text("description"))
    if _NAME.fullmatch(name) is None:
        raise FrontMatterError("its name is not up to 64 letters, digits, hyphens, dots and underscores")
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[: MAX_DESCRIPTION - 1]}…"
    return Skill(name, description, workspace, folder)


def _is_there(workspace: Workspace, place: Place) -> bool:
    """Tell whether an entry of that name is there; a link counts, wherever it leads."""
    return os.path.lexists(workspace.root / place.text)
