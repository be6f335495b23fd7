"""The patterns of `.gitignore`, what they mean for one entry of the workspace, and the globs that tools take.

The grammar is git's: `*`, `?` and `[…]` within a name, `**` for any number of folders, `/` in front or in the middle to
anchor, `/` at the end for folders only, `!` to take back, `\\` before a character that means itself. Unlike git, `?` stands
for a character, not for a byte. The rules are git's: those of `core.excludesFile`, `info/exclude`, then the `.gitignore` of
each folder from the repository's root down; the deepest file with a matching line decides, in it the last such line. Reads no
file itself.

Patterns come with repositories and from models, so none may take long: names are matched by regular expressions without
backtracking (`(?>…)`: the first place where a piece between two stars fits is always a right one), folders by the same
rule. The cost of a match grows with the length of pattern times path, not exponentially as it would otherwise.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from refold_server.tools.text_file import BYTE_ORDER_MARK
from refold_server.tools.tool_failure import invalid_arguments
from refold_server.tools.workspace_path import WorkspacePath, shown

_CLASS_NAMES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_MAX_LENGTH: Final = 4_096
"""Characters of a line, as many as a path can have; a longer one would only make work."""

_NAMED: Final = re.compile(r"\[:([a-z]+):\]")


class Name(Struct, frozen=True):
    """The pattern of one part of a path: a fixed name, or an expression. Neither: any number of folders, `**`."""

    fixed: str | None = None
    expression: re.Pattern[str] | None = None

    def fits(self, name: str) -> bool:
        """Tell whether the part `name` fits; not asked of `**`."""
        if self.expression is None:
            return name == self.fixed
        return self.expression.fullmatch(name) is not None

    @property
    def is_deep(self) -> bool:
        """Whether this stands for any number of folders."""
        return self.fixed is None and self.expression is None


class Glob(Struct, frozen=True):
    """One pattern. Unanchored, it is held against the last part of a path alone, at any depth."""

    names: tuple[Name, ...]
    anchored: bool
    folders_only: bool
    negated: bool

    def fits(self, parts: tuple[str, ...], *, folder: bool) -> bool:
        """Tell whether the path `parts`, relative to where the pattern stands, is named by it (not: lies below it)."""
        if self.folders_only and not folder:
            return False
        return _path_fits(self.names, parts) if self.anchored else self.names[0].fits(parts[-1])


def parse_glob(line: str) -> Glob | None:
    """Read one line; None for an empty one, a comment, and one that git never matches with anything."""
    text = _without_spaces(line)
    if not text or text.startswith("#") or len(text) > _MAX_LENGTH:
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    anchored = "/" in text
    names = [_name(part, deep=anchored and part == "**") for part in _split(text.removeprefix("/"))]
    whole = tuple(name for name in names if name is not None)
    if len(whole) < len(names):
        return None
    return Glob(whole, anchored, folders_only, negated)


def _without_spaces(line: str) -> str:
    """Take spaces off the end, except one that a backslash protects."""
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return text + " " if backslashes % 2 and len(text) < len(line) else text


def _split(text: str) -> list[str]:
    """Split at slashes, also protected ones, but not in classes; what is no pattern comes back as it is, in one part."""
    parts: list[str] = []
    start = place = 0
    while place < len(text):
        char, place = text[place], place + 1
        if char == "\\" and text[place : place + 1] != "/":
            place += 1
        elif char == "[":
            found = _class(text, place)
            if found is None:
                return [text]
            place = found[1]
        elif char in "/\\":
            parts.append(text[start : place - 1])
            place += 1 if char == "\\" else 0
            start = place
    return [*parts, text[start:]]


def _path_fits(names: tuple[Name, ...], parts: tuple[str, ...]) -> bool:
    """Match whole paths: a failure goes back to the last `**`, which then takes one folder more."""
    name, part = 0, 0
    deep, taken = -1, 0
    while part < len(parts):
        if name < len(names) and names[name].is_deep:
            deep, taken, name = name, part, name + 1
        elif name < len(names) and names[name].fits(parts[part]):
            name, part = name + 1, part + 1
        elif deep >= 0:
            taken += 1
            name, part = deep + 1, taken
        else:
            return False
    return name == len(names)


def _name(text: str, *, deep: bool) -> Name | None:
    """Read the pattern of one part; None for one that fits nothing."""
    if deep:
        return Name()
    pieces: list[list[str]] = [[]]
    plain: list[str] | None = []
    place = 0
    while place < len(text):
        char = text[place]
        place += 1
        if char == "*":
            pieces.append([])
            plain = None
        elif char == "?":
            pieces[-1].append(".")
            plain = None
        elif char == "[":
            found = _class(text, place)
            if found is None:
                return None
            expression, place = found
            pieces[-1].append(expression)
            plain = None
        else:
            if char == "\\":
                if place == len(text):
                    return None
                char, place = text[place], place + 1
            pieces[-1].append(re.escape(char))
            if plain is not None:
                plain.append(char)
    if plain is not None:
        return Name(fixed="".join(plain)) if plain else None
    return Name(expression=re.compile(_expression(["".join(piece) for piece in pieces]), re.DOTALL))


def _expression(pieces: list[str]) -> str:
    """Join what stands between stars."""
    first, *others = pieces
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{piece})" for piece in middle if piece) + f".*{last}"


def _class(text: str, place: int) -> tuple[str, int] | None:
    """Read a class of characters whose `[` stands before `place`; give its expression and where it ends, or None."""
    negated = text[place : place + 1] in ("!", "^")
    place += 1 if negated else 0
    members: list[str] = []
    start = place
    while place < len(text):
        if text[place] == "]" and place > start:
            inside = "".join(members)
            return (f"[^{inside}]" if inside else ".") if negated else (f"[{inside}]" if inside else r"(?!)"), place + 1
        named = _NAMED.match(text, place)
        if named is not None:
            if named[1] not in _CLASS_NAMES:
                return None
            members.append(_CLASS_NAMES[named[1]])
            place = named.end()
            continue
        low, place = _member(text, place)
        high = low
        if text[place : place + 1] == "-" and text[place + 1 : place + 2] not in ("", "]"):
            high, place = _member(text, place + 1)
        members.append(re.escape(low))  # also of an empty range: git compares the character before it sees the range
        if low < high:
            members.append(f"{re.escape(low)}-{re.escape(high)}")
    return None


def _member(text: str, place: int) -> tuple[str, int]:
    """Read one character of a class, of which a backslash protects the next."""
    if text[place] == "\\" and place + 1 < len(text):
        place += 1
    return text[place], place + 1


MAX_RULES_BYTES: Final = 1 << 18
"""Bytes of one file of rules that are read."""

MAX_RULES: Final = 5_000
"""Rules of one file that are kept, the last ones: each costs time and memory."""

_MAX_ALTERNATIVES: Final = 64
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Rules(Struct, frozen=True):
    """The rules of one file. `depth` counts the folders from the root down to the one that holds it."""

    depth: int
    globs: tuple[Glob, ...]


def parse_rules(data: bytes, depth: int) -> Rules:
    """Read a file of rules. Never fails: lines that mean nothing are left out, as git does."""
    lines = [line for line in data.removeprefix(BYTE_ORDER_MARK).split(b"\n") if line and not line.startswith(b"#")][
        -MAX_RULES:
    ]
    globs = (parse_glob(line.removesuffix(b"\r").decode("utf-8", "surrogateescape")) for line in lines)
    return Rules(depth, tuple(glob for glob in globs if glob is not None))


def is_ignored(rules: tuple[Rules, ...], place: WorkspacePath, *, folder: bool) -> bool:
    """Tell whether `rules` (outermost first) leave out the entry at `place`, whose folder they do not."""
    for row in reversed(rules):
        parts = place.parts[row.depth :]
        for glob in reversed(row.globs):
            if glob.fits(parts, folder=folder):
                return not glob.negated
    return False


def read_globs(pattern: str) -> tuple[Glob, ...]:
    """Read a tool's glob: the grammar of a line without negation and comments, and `{a,b}` for alternatives.

    Raises ToolFailure INVALID_ARGUMENTS for a pattern that names nothing.
    """
    globs: list[Glob] = []
    for line in _alternatives(pattern):
        glob = parse_glob(("\\" if line.startswith(("!", "#")) else "") + line.removeprefix("./"))
        if glob is None:
            raise invalid_arguments(f"pattern {shown(pattern)!r} is not a glob; write one like *.py, src/**/*.ts or docs/")
        globs.append(glob)
    return tuple(globs)


def is_named(globs: tuple[Glob, ...], parts: tuple[str, ...]) -> bool:
    """Tell whether a file, whose path `parts` is relative to where the globs stand, or a folder above it is named."""
    return any(glob.fits(parts[:length], folder=length < len(parts)) for length in range(len(parts), 0, -1) for glob in globs)


def _alternatives(pattern: str) -> list[str]:
    """Write out `{a,b}`, at most _MAX_ALTERNATIVES times; braces without a comma are plain characters."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        line = waiting.pop(0)
        found = _BRACES.search(line)
        if found is None:
            done.append(line)
            continue
        waiting.extend(line[: found.start()] + choice + line[found.end() :] for choice in found[1].split(","))
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise invalid_arguments(f"pattern {shown(pattern)!r} stands for more than {_MAX_ALTERNATIVES} patterns")
    return done
