"""One call of a reply while its pieces come: what is told of it at once, and what is kept back until it is sure.

Kept back are empty braces, because some servers begin with `{}` and send the arguments then, and arguments that are
themselves a JSON string.
"""

from __future__ import annotations

import json
from typing import Final

from refold_protocol.dialects.json_scan import JsonScan
from refold_protocol.dialects.sse import TextRepair
from refold_protocol.errors import InvalidJsonError
from refold_protocol.json_text import is_json_object, parse_strict


class CallParts:
    """One call. `block` is its number once it is told; `twin` is an earlier call that this one may repeat."""

    __slots__ = ("_kept", "_scan", "_scanned", "block", "id", "name", "parts", "repair", "told", "twin")

    def __init__(self, twin: CallParts | None = None) -> None:
        self.id: str | None = None
        self.name: str | None = None
        self.block: int | None = None
        self.parts: list[str] = []
        """All pieces of the arguments' text."""
        self.repair = TextRepair()
        self.twin = twin
        self._kept: list[str] = []  # pieces that are not yet told
        self.told = False
        """Whether a piece was told, so that all that comes is told at once."""
        self._scan = JsonScan()
        self._scanned = 0

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object, or a string that holds one."""
        text = "".join(self.parts)
        return is_json_object(text) or unwrapped(text) is not None

    @property
    def is_withheld_braces(self) -> bool:
        """Whether nothing but an empty object came so far, of which nothing was told."""
        return not self.told and "".join(self.parts).split() in (["{}"], ["{", "}"])

    def is_another(self, id: str | None, name: str) -> bool:  # noqa: A002
        """Whether an entry with a name begins another call than this one."""
        if self.name is None:  # arguments alone that came after a whole call: a name is none of theirs
            return self.twin is not None and bool(self.parts)
        return name != self.name or bool(id and self.id not in (None, id))

    def takes(self, id: str | None, name: str | None, text: str) -> bool:  # noqa: A002
        """Take a piece that can only be more of a call which is told, and say whether it was one."""
        if not self.told or not text or text[0] in _BEGINNINGS or not text.isascii() or self.repair.pending:
            return False
        if (name is not None and name != self.name) or (id and id != self.id):
            return False
        self.parts.append(text)
        return True

    def add(self, text: str) -> None:
        """Add a piece of the arguments."""
        self.parts.append(text)
        self._kept.append(text)

    def clear(self) -> None:
        """Forget the arguments so far; nothing of them was told."""
        self.parts, self._kept = [], []
        self._scan, self._scanned = JsonScan(), 0

    def ready(self) -> list[str]:
        """Take the pieces that may be told."""
        kept, self._kept = self._kept, []
        if not self.told and kept:
            start = "".join(kept).lstrip()
            if start[:1] in ("", '"') or start.split() in (["{"], ["{}"], ["{", "}"]):
                self._kept = kept
                return []
            self.told = True
        return [fed for text in kept if (fed := text if text.isascii() and not self.repair.pending else self.repair.feed(text))]

    def release(self) -> None:
        """Keep nothing back any more."""
        self.told = True

    def unwrap(self) -> None:
        """Take the object out of arguments that are a JSON string of which nothing was told."""
        if not self.told and (inner := unwrapped("".join(self.parts))) is not None:
            self.parts, self._kept = [inner], [inner]

    def ends_before(self, text: str) -> bool:
        """Whether `text` begins a value of its own, because the object before it is at its end."""
        if not text.lstrip().startswith(("{", '"')) or not self.parts[-1].rstrip().endswith("}"):
            return False
        for part in self.parts[self._scanned :]:
            self._scan.feed(part)
        self._scanned = len(self.parts)
        return self._scan.whole

    def repeats(self, first: CallParts) -> bool:
        """Whether the arguments are those of `first`, or none at all."""
        return not self.parts or _canonical("".join(self.parts)) == _canonical("".join(first.parts))

    def join(self, other: CallParts) -> None:
        """Take over the arguments of another."""
        self.release()
        for part in other.parts:
            self.add(part)
        other.parts = []


_BEGINNINGS: Final = '{" \t\n\r'
"""What a JSON value of its own, or the blanks before it, may begin with."""


def unwrapped(text: str) -> str | None:
    """Give the object's text that a JSON string holds, None for anything else."""
    if text[:1] != '"' and not text.lstrip().startswith('"'):
        return None
    try:
        inner = parse_strict(text)
    except InvalidJsonError:  # no string: the text stays as it came
        return None
    return inner if isinstance(inner, str) and is_json_object(inner) else None


def _canonical(text: str) -> str:
    inner = unwrapped(text)
    try:
        return json.dumps(parse_strict(text if inner is None else inner), sort_keys=True)
    except InvalidJsonError:  # compared as it came
        return text
