"""Names that stand in transcripts for what differs from run to run: ids, writers, digests, processes, places.

A thing gets its name when it is told first (`S1`, `I1`, `I2`, …), so that a name depends on the story alone, and the same
thing has the same name all through it. Knows the keys of the protocol, never what events mean.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final, cast

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_WRITER: Final = re.compile(_UUID.pattern + r"\.-?\d+")
_PROCESS: Final = re.compile(r"process (\d+) on [^\s(]+")
_WORD: Final = re.compile(r"[\w./:<>#-]+")
_MADE_ID: Final = re.compile(r"call_[0-9a-f]{16}_\d+")

_LETTERS: Final = {
    "session": "S",
    "input": "I",
    "pendingInputs": "I",
    "approval": "P",
    "id": "P",
    "requestSha256": "request-",
    "sha256": "body-",
    "digest": "digest-",
    "headDigest": "digest-",
}
"""The first letters of names, by the key under which a value stands."""

_TIMES: Final = frozenset({"time", "createdAt", "lastActivity", "since"})

TEXT_CHARACTERS: Final = 110
"""A longer text is shown with its beginning and its end."""


class Names:
    """The names of one transcript. Values are asked for in the order in which the transcript tells them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._processes: dict[str, str] = {}

    def call(self, value: str, name: str) -> None:
        """Have a value, a path for example, called `name` wherever it stands."""
        self._names[value] = name

    def process(self, pid: int, name: str) -> None:
        """Have a process called `name` as a number and within texts."""
        self._processes[str(pid)] = name

    def text(self, text: str, letter: str = "X") -> str:
        """Give a text with every name in its place; `letter` begins the name of an id that is new."""
        text = _WRITER.sub(lambda found: self._name(found[0], "W"), text)
        text = _UUID.sub(lambda found: self._name(found[0], letter), text)
        text = _MADE_ID.sub(lambda found: self._name(found[0], "call-"), text)
        for value, name in self._names.items():
            if value.startswith("/"):
                text = text.replace(value, name)
        return _PROCESS.sub(lambda found: f"process {self._processes.get(found[1], '<pid>')} on <host>", text)

    def clean(self, value: Any, key: str = "") -> Any:
        """Give a JSON value with every name in its place; `key` is the one under which it stands."""
        if isinstance(value, dict):
            return {name: self.clean(inner, name) for name, inner in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self.clean(inner, key) for inner in cast("list[Any]", value)]
        if key in _TIMES:
            return "<time>"
        if key == "host":
            return "<host>"
        if key == "pid":
            return self._processes.get(str(value), "<pid>")
        if not isinstance(value, str):
            return value
        if key in {"requestSha256", "sha256", "digest", "headDigest"}:
            return self._name(value, _LETTERS[key])
        return self.text(value, _LETTERS.get(key, "X"))

    def _name(self, value: str, letter: str) -> str:
        if value not in self._names:
            self._counts[letter] += 1
            self._names[value] = f"{letter}{self._counts[letter]}"
        return self._names[value]


def quoted(text: str) -> str:
    """Give a text as one line between quotation marks, its middle left out where it is long."""
    if len(text) > TEXT_CHARACTERS:
        half = TEXT_CHARACTERS // 2
        text = f"{text[:half]} … {text[-half:]}"
    return json.dumps(text, ensure_ascii=False)


def words(value: Any) -> str:
    """Give a JSON value in one line that reads easily: no quotation marks around single words, members as `key=value`."""
    if isinstance(value, dict):
        return "{" + members(cast("dict[str, Any]", value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(words(inner) for inner in cast("list[Any]", value)) + "]"
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else quoted(value)
    return json.dumps(value)


def members(values: dict[str, Any]) -> str:
    """Give the members of an object, one behind the other."""
    return " ".join(f"{name}={words(value)}" for name, value in values.items())
