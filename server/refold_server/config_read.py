"""Owns reading settings from text: TOML to rows of the table of settings, and where in the text a wrong one stands.

Every fault is a ConfigError that names the key, says what is expected, and gives the line where a search for the key
finds exactly one. Must not know which file is read when, nor what settings mean together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_server.config_checks import Refused, described, is_header_name, near
from refold_server.config_table import Key, Setting, below

WHOLE_FILE: Final = "configuration"
"""The key that faults of a whole file are named by."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PROVIDER: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLACE: Final = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)$")


class Origin(Struct, frozen=True):
    """Where settings come from: the name of a file, or of something else, and the text to search for keys."""

    name: str
    text: str = ""

    def fault(self, key: Key, reason: str) -> ConfigError:
        """Give the error about a key."""
        return ConfigError(key_text(key), reason, file=self.name, line=_line_of(key, self.text))


class Given(Struct, frozen=True):
    """One setting as it was given: its value in refold's type, and where it comes from."""

    value: object
    origin: Origin


Settings = dict[Key, Given]
"""Settings by key, in the order in which they were given."""


def read_toml(text: str, name: str) -> Settings:
    """Read the text of the file `name`. Raises ConfigError for the first fault."""
    import tomllib  # on use: without a file nothing needs it

    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(WHOLE_FILE, "nested too deep", file=name) from None
    except ValueError as error:  # also TOMLDecodeError
        found = _PLACE.search(str(error))
        line = None if found is None else int(found[1] or text.count("\n") + 1)
        reason = _PLACE.sub("", str(error)).strip() or "not TOML"
        raise ConfigError(WHOLE_FILE, f"not valid TOML: {reason}", file=name, line=line) from None
    return read_table(table, Origin(name, text))


def read_table(table: Mapping[str, object], origin: Origin) -> Settings:
    """Read a table of settings, as TOML or JSON gives it. Raises ConfigError for the first fault."""
    return {key: Given(value, origin) for key, value in _rows((), table, origin)}


def key_text(key: Key) -> str:
    """Write a key as TOML does: parts joined by dots, in quotes where they need them."""
    return ".".join(part if _BARE.fullmatch(part) else f'"{_printable(part)}"' for part in key) or WHOLE_FILE


def _rows(prefix: Key, table: Mapping[str, object], origin: Origin) -> Iterator[tuple[Key, object]]:
    known = below(prefix)
    for name, value in table.items():
        key = (*prefix, name)
        if name in known and name != "*":
            row = known[name]
        elif "*" in known:
            _check_name(key, value, origin)
            row = known["*"]
        else:
            raise origin.fault(key, _unknown(name, tuple(known)))
        if row is not None:
            yield key, _checked(row, key, value, origin)
        elif isinstance(value, dict):
            yield from _rows(key, cast("dict[str, object]", value), origin)
        else:
            raise origin.fault(key, f"expects a table; it is {described(value)}")


def _checked(row: Setting, key: Key, value: object, origin: Origin) -> object:
    try:
        return row.check(value)
    except Refused as refused:
        hint = f"; {refused}" if str(refused) else ""
        given = "" if row.secret else f"; it is {_printable(described(value))}"
        later = f": this release does not have {row.missing} yet" if row.missing else ""
        raise origin.fault(key, f"expects {row.expects}{given}{hint}{later}") from None


def _check_name(key: Key, value: object, origin: Origin) -> None:
    table, name = key[0], key[-1]
    if len(key) == 2 and value == {}:
        raise origin.fault(key, "holds no settings")
    if table == "providers" and len(key) == 2 and not _PROVIDER.fullmatch(name):
        raise origin.fault(key, "a provider's name is made of letters, digits, dots, dashes and underscores")
    if table == "models" and not all(part.strip() for part in _split(name)):
        raise origin.fault(key, 'a model is named "provider/model"')
    if key[2:3] == ("headers",) and not is_header_name(name):
        raise origin.fault(key, "not a name that an HTTP header can have")


def _split(name: str) -> tuple[str, str]:
    provider, _, model = name.partition("/")
    return provider, model


def _unknown(name: str, known: tuple[str, ...]) -> str:
    hint = near(name, known)
    return f"there is no such setting; {hint or 'here stand: ' + ', '.join(known)}"


def _line_of(key: Key, text: str) -> int | None:
    """Find the line that sets `key`, or opens its table; None unless there is exactly one candidate."""
    if not key:
        return None
    name = re.escape(key[-1])
    quoted = f"(?:{name}|\"{name}\"|'{name}')"
    sets = re.compile(rf"^\s*(?:[^#=]*[.{{,\s])?{quoted}\s*=|[{{,]\s*{quoted}\s*=")
    opens = re.compile(rf"^\s*\[+[^#]*(?<![A-Za-z0-9_-]){quoted}\s*\]")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if sets.search(line) or opens.search(line)]
    return lines[0] if len(lines) == 1 else None


def _printable(text: str) -> str:
    return re.sub("[\x00-\x1f\x7f\ud800-\udfff]", "\ufffd", text)
