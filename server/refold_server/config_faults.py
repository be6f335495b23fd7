"""Faults of the configuration in words: which key, what is wrong, what is expected, what was meant, and the line.

Knows no source: an origin says what it is called and holds the text that is searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

from msgspec import Struct, inspect

from refold_protocol.errors import ConfigError
from refold_server.config import Setting

WHOLE_FILE: Final = "configuration"
"""The key that faults of a whole file are named by."""

Key: TypeAlias = tuple[str, ...]
"""The parts of a setting's name, from the outermost table in."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_PART: Final = 100


class Origin(Struct, frozen=True):
    """Where settings come from: the kind of source, the name of the file or of what else it is, and the text to search."""

    kind: Literal["built-in", "file", "client", "environment", "option"]
    name: str
    text: str = ""

    def fault(self, key: Key, reason: str) -> ConfigError:
        """Give the error about a key."""
        return ConfigError(key_text(key), reason, file=self.name, line=self.line(key))

    def line(self, key: Key) -> int | None:
        """Find the line that sets `key`, or opens its table; None unless there is exactly one candidate."""
        if not key or not self.text:
            return None
        name = re.escape(key[-1])
        quoted = f"(?:{name}|\"{name}\"|'{name}')"
        sets = re.compile(rf"^\s*(?:[^#=]*[.{{,\s])?{quoted}\s*=|[{{,]\s*{quoted}\s*=")
        opens = re.compile(rf"^\s*\[+[^#]*(?<![A-Za-z0-9_-]){quoted}\s*\]")
        lines = list(enumerate(self.text.split("\n"), 1))
        found = [n for n, line in lines if sets.search(line) or opens.search(line)]
        if len(found) > 1:  # those in other tables do not count
            tables = dict(_tables(lines))
            found = [n for n in found if tables[n] == key[: len(tables[n])]]
        return found[0] if len(found) == 1 else None


BUILT_IN: Final = Origin("built-in", "built-in")
"""The origin of what nobody set."""


def key_text(key: Key) -> str:
    """Write a key as TOML does: parts joined by dots, in quotes where they need them; very long ones are cut."""
    return ".".join(part if _BARE.fullmatch(part) else _quoted(part) for part in map(_cut, key)) or WHOLE_FILE


def near(word: str, words: Sequence[str]) -> str:
    """Give a hint at the word that was probably meant, or nothing."""
    from difflib import get_close_matches  # on use: only wrong configurations need it

    start = word[:_LONGEST_PART]
    found = get_close_matches(start, words, n=1) or get_close_matches(start.lower(), words, n=1)
    return f"did you mean {found[0]!r}?" if found else ""


def meant(setting: Setting, value: object) -> str:
    """Give a hint at the one of a setting's words that was probably meant, or nothing."""
    return near(value, [str(word) for word in _literals(setting.kind)]) if isinstance(value, str) else ""


def described(value: object) -> str:
    """Say what a value is, in TOML's words; long ones and tables by their kind only."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        try:
            written = str(value)
        except ValueError:  # more digits than the interpreter writes
            written = ""
        return written if 0 < len(written) <= 40 else "a very long number"
    if isinstance(value, str):
        return repr(value) if len(value) <= 80 else "a long string"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    return "null" if value is None else f"a {type(value).__name__}"


def expected(setting: Setting) -> str:
    """Say what a setting takes: the end of the sentence "KEY expects …"."""
    if setting.expects:
        return setting.expects
    kind = inspect.type_info(setting.kind)
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            words = [json.dumps(value) for value in _literals(setting.kind)]
            return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
        case inspect.IntType() | inspect.FloatType():
            noun = "whole number" if isinstance(kind, inspect.IntType) else "number"
            return f"a {noun}{f' of {setting.unit}' if setting.unit else ''}{_range(kind)}"
        case _:
            return "to be left out"


def _tables(lines: list[tuple[int, str]]) -> Iterator[tuple[int, Key]]:
    """Give for each line the table that it stands in."""
    import tomllib  # on use: only files have lines

    table: Key = ()
    for number, line in lines:
        if line.lstrip().startswith("["):
            try:
                found: dict[str, Any] = tomllib.loads(line)
            except tomllib.TOMLDecodeError:  # the middle of an array
                found = {}
            path: list[str] = []
            while found:
                ((part, below),) = found.items()
                path.append(part)
                found = {} if isinstance(below, list) else below
            table = tuple(path) or table
        yield number, table


def _literals(kind: Any) -> tuple[Any, ...]:
    """Give the values of a Literal in their order, nothing for another type."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _range(kind: Any) -> str:
    """Write bounds. The largest whole number that JSON readers agree on is no bound that a person meets."""
    highest = None if kind.le is None or kind.le >= 2**53 else _figure(kind.le)
    if kind.gt is not None:
        return f" above {_figure(kind.gt)}{'' if highest is None else f' and at most {highest}'}"
    return f", at least {_figure(kind.ge)}" if highest is None else f" from {_figure(kind.ge)} to {highest}"


def _figure(value: float) -> str:
    """Write a bound; a power of 1024 also with its unit."""
    for power, unit in ((40, "TiB"), (20, "MiB")):
        if value >= 1 << power and value % (1 << power) == 0:
            return f"{value} ({int(value) >> power} {unit})"
    return f"{value:g}" if value < 10**5 else str(int(value))


def _cut(part: str) -> str:
    return part if len(part) <= _LONGEST_PART else f"{part[:_LONGEST_PART]}…"


def _quoted(part: str) -> str:
    text = re.sub("[\ud800-\udfff]", "\ufffd", part)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
