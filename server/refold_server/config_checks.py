"""Owns the checks of single settings: each takes a value as TOML or JSON gives it and returns it in refold's type.

A check raises Refused for any other value, with a hint where it has one. Must not know which setting it is for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast
from urllib.parse import urlsplit

from refold_protocol.errors import InvalidJsonError
from refold_protocol.json_text import compact_json

Check: TypeAlias = Callable[[object], object]

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Refused(Exception):  # noqa: N818 - an answer within the reading of settings, not an error that anybody sees
    """The value is not what the setting takes. The message is a hint, or empty."""


def text(value: object) -> str:
    """A string that is not empty and holds no control characters."""
    if not isinstance(value, str) or not value.strip() or _CONTROL.search(value):
        raise Refused
    return value


def header_value(value: object) -> str:
    """A string that can stand in an HTTP header: printable ASCII."""
    if not text(value).isascii():
        raise Refused
    return text(value)


def variable(value: object) -> str:
    """The name of an environment variable."""
    if not _VARIABLE.fullmatch(text(value)):
        raise Refused("it must be the variable's name, not the key itself")
    return text(value)


def url(value: object) -> str:
    """An http or https address without query; the slash at its end is taken off."""
    address = text(value)
    try:
        parts = urlsplit(address)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # urllib's word for a broken host or port
        right = False
        parts = None
    if parts is None or not right or re.search(r"\s", address):
        raise Refused
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise Refused("leave out user names, queries and fragments")
    return address.rstrip("/")


def whole(low: int, high: int = 2**53) -> Check:
    """A whole number from `low` to `high`."""

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Refused
        return value

    return check


def number(low: float, high: float, *, above: bool = False) -> Check:
    """A number from `low` to `high`, as a float; with `above` it must be greater than `low`."""

    def check(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Refused
        if not low <= value <= high or (above and value == low):  # neither NaN nor an infinity is between two numbers
            raise Refused
        return float(value)

    return check


def truth(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Refused
    return value


def one_of(*words: str) -> Check:
    """One of some words."""

    def check(value: object) -> str:
        if value not in words:
            raise Refused(near(str(value), words))
        return str(value)

    return check


def texts(value: object) -> tuple[str, ...]:
    """An array of strings, none of them empty, as a tuple."""
    if not isinstance(value, list):
        raise Refused
    items = cast("list[object]", value)
    if not all(isinstance(item, str) and item for item in items):
        raise Refused
    return tuple(repaired(str(item)) for item in items)


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Refused
    return value


def paths(value: object) -> tuple[str, ...]:
    """An array of strings that can name files, as a tuple."""
    return tuple(text(item) for item in texts(value))


def program(value: object) -> tuple[str, ...]:
    """A program and its arguments: an array of strings, of which the first is not empty."""
    parts = texts(value)
    if not parts or any("\0" in part for part in parts):
        raise Refused
    return parts


def json_table(value: object) -> str:
    """A table that can be written as JSON; gives its text."""
    if not isinstance(value, dict):
        raise Refused
    try:
        return compact_json(value)
    except InvalidJsonError as error:
        raise Refused(f"it cannot be written as JSON: {error.message}") from None


def anything(value: object) -> object:
    """Any value: somebody else checks it."""
    return value


def nothing(value: object) -> object:  # noqa: ARG001 - a check takes a value
    """No value at all."""
    raise Refused


def exactly(wanted: object) -> Check:
    """One value, told apart from values of another type that are equal to it."""

    def check(value: object) -> object:
        if type(value) is not type(wanted) or value != wanted:
            raise Refused
        return value

    return check


def repaired(value: str) -> str:
    """Refuse a string that cannot be written as UTF-8; give any other one back."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused from None
    return value


def is_header_name(name: str) -> bool:
    """Tell whether `name` can name an HTTP header."""
    return _HEADER_NAME.fullmatch(name) is not None


def near(word: str, words: Sequence[str]) -> str:
    """Give a hint at the word that was probably meant, or nothing."""
    from difflib import get_close_matches  # on use: only wrong configurations need it

    found = get_close_matches(word, words, n=1)
    return f"did you mean {found[0]!r}?" if found else ""


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
