"""Owns reading the front matter of a file: the lines `key: value` between two lines `---` at its start.

It is a small and strict part of YAML, read in one pass: a value is the rest of its line, plain or in quotes, and indented
lines below it go on with it. Nothing is nested, nothing refers to anything else, so no text can grow while it is read.
What a value of real YAML would mean otherwise (anchors, aliases, tags, lists, tables) is refused where it is asked for.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

MAX_BYTES: Final = 16 << 10
"""Bytes from the start of a file in which its front matter must end."""

_FENCE: Final = re.compile(r"---[ \t]*")
_KEY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,63}):(?:[ \t]+(.*))?")
_BLOCK: Final = re.compile(r"[|>][+-]?")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "n": " ", "t": " "}


class FrontMatterError(ValueError):
    """What was asked for cannot be read; the message is a clause that says why."""


class FrontMatter(Struct, frozen=True):
    """The keys and the text of their values as written, in order; `body` is the text behind it."""

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
    raise FrontMatterError(f"no line --- ends it within {MAX_BYTES >> 10} KiB")


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
