"""Owns what `.gitignore` means for one entry of the workspace, and the globs that tools take, which have its grammar.

The rules are git's, as far as they lie in the workspace: `.git/info/exclude`, then the `.gitignore` of each folder from
the root down; the deepest file with a matching line decides, in it the last such line. What the user's own git
configuration excludes is not looked at: two machines would see different trees. Reads no file itself.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from refold_server.tools.failure import invalid_arguments
from refold_server.tools.globs import Glob, parse_glob
from refold_server.tools.paths import Place, shown
from refold_server.tools.text_file import BYTE_ORDER_MARK

MAX_RULES_BYTES: Final = 1 << 18
"""Bytes of one file of rules that are read."""

_MAX_ALTERNATIVES: Final = 64
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Rules(Struct, frozen=True):
    """The rules of one file. `depth` counts the folders from the root down to the one that holds it."""

    depth: int
    globs: tuple[Glob, ...]


def parse_rules(data: bytes, depth: int) -> Rules:
    """Read a file of rules. Never fails: lines that mean nothing are left out, as git does."""
    lines = data.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    globs = (parse_glob(line.removesuffix(b"\r").decode("utf-8", "surrogateescape")) for line in lines)
    return Rules(depth, tuple(glob for glob in globs if glob is not None))


def is_ignored(rules: tuple[Rules, ...], place: Place, *, folder: bool) -> bool:
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
