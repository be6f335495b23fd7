"""The skills of a session: folders with a SKILL.md whose front matter tells what it is for.

They lie in `.agents/skills` or `.claude/skills` of the session's folder and of the folders above it up to the repository's
root, and in one folder of the user's own. Of two with the same name the nearest counts, the user's own last. A file is opened
only where no link leads out of the repository, or out of the user's folder. Bounded, and in an order that never varies.

Front matter is a small and strict part of YAML, read in one pass: a value is the rest of its line, plain or in quotes, and
indented lines below it go on with it. Nothing is nested, nothing refers to anything else, so no text can grow while it is
read. What a value of real YAML would mean otherwise (anchors, aliases, tags, lists, tables) is refused where it is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_server.tools.repository import Repository, find_repository
from refold_server.tools.text_file import BYTE_ORDER_MARK, read_up_to
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import ROOT, Workspace, WorkspacePath, shown

MAX_FRONT_MATTER: Final = 16 << 10
"""Bytes from the start of a file in which its front matter must end."""

_FENCE: Final = re.compile(r"---[ \t]*")
_KEY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,63}):(?:[ \t]+(.*))?")
_BLOCK: Final = re.compile(r"[|>][+-]?")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "n": " ", "t": " "}


class FrontMatterError(ValueError):
    """What was asked for cannot be read; the message is a clause that says why."""


class FrontMatter(Struct, frozen=True):
    """The keys and the text of their values as written, in order; `body` is the text after it."""

    values: tuple[tuple[str, str], ...]
    body: str

    def text(self, key: str) -> str:
        """Give a value as one line of text. Raises FrontMatterError when it is missing, there twice, or not plain text."""
        found = [value for name, value in self.values if name == key]
        if not found:
            raise FrontMatterError(f"it has no {key}")
        if len(found) > 1:
            raise FrontMatterError(f"it has more than one {key}")
        text = " ".join(_plain(key, found[0]).split())
        if not text:
            raise FrontMatterError(f"its {key} is empty")
        return text


def read_front_matter(text: str) -> FrontMatter:
    """Read the front matter at the start of a text. Raises FrontMatterError when there is none or a line is not its own."""
    lines = text.split("\n")
    if _FENCE.fullmatch(lines[0].removesuffix("\r")) is None:
        raise FrontMatterError("it does not begin with a line ---")
    values: list[tuple[str, list[str]]] = []
    for number, written in enumerate(lines[1:], start=2):
        line = written.removesuffix("\r")
        if _FENCE.fullmatch(line):
            body = "\n".join(lines[number:])
            return FrontMatter(tuple((key, "\n".join(parts)) for key, parts in values), body)
        if not line.strip() or line.startswith("#"):
            continue
        found = _KEY.fullmatch(line)
        if found is not None:
            values.append((found[1], [(found[2] or "").strip()]))
        elif values and line.startswith((" ", "\t", "- ")):
            values[-1][1].append(line.strip())
        else:
            raise FrontMatterError(f"line {number} is not `key: value`")
    raise FrontMatterError(f"no line --- ends it within {MAX_FRONT_MATTER >> 10} KiB")


def _plain(key: str, value: str) -> str:
    first, _, rest = value.partition("\n")
    if _BLOCK.fullmatch(first):
        return rest
    if not first:  # the value begins on the next line
        value = rest
    for quote in ('"', "'"):
        if value.startswith(quote):
            return _unquoted(key, value, quote)
    if value.startswith(("- ", *"&*!{}[]|>@`%,?#")) or (not first and _KEY.fullmatch(value.partition("\n")[0])):
        raise FrontMatterError(f"its {key} is not plain text; write it in quotes")
    return re.split(r"[ \t]#", value, maxsplit=1)[0]


def _unquoted(key: str, value: str, quote: str) -> str:
    if len(value) < 2 or not value.endswith(quote):
        raise FrontMatterError(f"the quotes of its {key} do not end with it")
    inner = value[1:-1]
    if quote == "'":
        if "'" in inner.replace("''", ""):
            raise FrontMatterError(f"the quotes of its {key} do not end with it")
        return inner.replace("''", "'")
    parts: list[str] = []
    characters = iter(inner)
    for character in characters:
        if character == '"':
            raise FrontMatterError(f"the quotes of its {key} do not end with it")
        if character != "\\":
            parts.append(character)
            continue
        escaped = _ESCAPES.get(next(characters, ""))
        if escaped is None:
            raise FrontMatterError(f'its {key} has an escape other than \\" \\\\ \\/ \\n \\t')
        parts.append(escaped)
    return "".join(parts)


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


class SkillFolders(Struct, frozen=True):
    """What a search for skills depends on besides the session's folder: the user's own folder of them, and the home folder,
    above which no repository is looked for. None: there is none."""

    own: Path | None = None
    home: Path | None = None


class Skill(Struct, frozen=True):
    """A skill that can be read. `folder` is its folder in `workspace`; no link leads out of the latter."""

    name: str
    description: str
    workspace: Workspace
    folder: WorkspacePath


class Catalogue(Struct, frozen=True):
    """The skills of a session by name, and a clause for each thing that was not taken, in order."""

    skills: tuple[Skill, ...]
    troubles: tuple[str, ...] = ()


class _SkillPlace(Struct, frozen=True):
    """One place of skills; `told` is how its path is told."""

    workspace: Workspace
    place: WorkspacePath
    told: str


def find_skills(cwd: Path, folders: SkillFolders) -> Catalogue:
    """Find a session's skills. Reads the start of each SKILL.md; call it in a thread. Never fails."""
    found: dict[str, Skill] = {}
    troubles: list[str] = []
    for place in _skill_places(find_repository(cwd, folders.home), folders.own):
        for told, folder in _skill_folders(place, troubles):
            try:
                skill = _skill(place.workspace, folder)
            except (ToolFailure, FrontMatterError) as fault:
                troubles.append(f"{told}: {fault}")
                continue
            if skill is not None:
                found.setdefault(skill.name, skill)
    return Catalogue(tuple(found[name] for name in sorted(found)), tuple(troubles))


def has_skills(cwd: Path, folders: SkillFolders) -> bool:
    """Tell whether any SKILL.md is there, readable or not. Opens no file; stops at the first."""
    for place in _skill_places(find_repository(cwd, folders.home), folders.own):
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


def _skill_places(repository: Repository | None, own: Path | None) -> Iterator[_SkillPlace]:
    """Give the places of skills, the most important first."""
    if repository is not None:
        for folder in reversed(repository.folders):
            for parts in FOLDERS:
                place = WorkspacePath((*folder.parts, *parts))
                yield _SkillPlace(repository.workspace, place, repository.seen(place))
    if own is not None and own.is_absolute():
        yield _SkillPlace(Workspace(own), ROOT, "your own skills")


def _skill_folders(at: _SkillPlace, troubles: list[str]) -> list[tuple[str, WorkspacePath]]:
    """Give the folders of one place by name, each with how it is told; none where the place is not there."""
    try:
        place = at.workspace.locate(at.place.text)
        descriptor = at.workspace.open_folder(place)
    except ToolFailure as failure:
        if failure.name not in ("FileNotFound", "NotAFolder", "WorkspaceMissing"):
            troubles.append(f"{at.told}: {failure.message}")
        return []
    try:
        with os.scandir(descriptor) as listing:
            names = [entry.name for entry in islice(listing, MAX_LISTED + 1)]
    except OSError as error:
        troubles.append(f"{at.told}: could not be listed: {error.strerror}")
        return []
    finally:
        os.close(descriptor)
    if len(names) > MAX_LISTED:
        troubles.append(f"{at.told}: has more than {MAX_LISTED:,} entries and was not looked at")
        return []
    names = sorted(name for name in names if not name.startswith("."))
    if len(names) > MAX_SKILLS:
        troubles.append(f"{at.told}: only the first {MAX_SKILLS} of its {len(names):,} entries were looked at")
    return [(f"{at.told}/{shown(name)}", place.child(name)) for name in names[:MAX_SKILLS]]


def _skill(workspace: Workspace, folder: WorkspacePath) -> Skill | None:
    """Read what a skill is called and what it is for; None where no SKILL.md is. Raises ToolFailure, FrontMatterError."""
    if not _is_there(workspace, folder.child(SKILL_FILE)):
        return None
    folder = workspace.locate(folder.text)
    descriptor = open_in_skill(Skill("", "", workspace, folder), SKILL_FILE)
    try:
        start = read_up_to(descriptor, MAX_FRONT_MATTER)
    finally:
        os.close(descriptor)
    matter = read_front_matter(start.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace"))
    name, description = matter.text("name"), shown(matter.text("description"))
    if _NAME.fullmatch(name) is None:
        raise FrontMatterError("its name is not up to 64 letters, digits, hyphens, dots and underscores")
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[: MAX_DESCRIPTION - 1]}…"
    return Skill(name, description, workspace, folder)


def _is_there(workspace: Workspace, place: WorkspacePath) -> bool:
    """Tell whether an entry of that name is there; a link counts, wherever it leads."""
    return os.path.lexists(workspace.root / place.text)
