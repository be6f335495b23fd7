"""The scanner that finds the end of a JSON object or list which comes in pieces. Knows nothing of what it means."""

from __future__ import annotations

import re
from typing import Final

_IN_STRING: Final = re.compile(r'["\\]')
_OUTSIDE: Final = re.compile(r'["{}\[\]]')


class JsonScan:
    """Looks for the end of an object or a list that comes in pieces. Each character is looked at once."""

    __slots__ = ("_depth", "_escaped", "_quoted", "whole")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self.whole = False
        """Whether the outermost bracket is closed."""

    def feed(self, text: str) -> None:
        """Look at more of it."""
        at, self._escaped = (1, False) if self._escaped and text else (0, self._escaped)
        while (found := (_IN_STRING if self._quoted else _OUTSIDE).search(text, at)) is not None:
            at = found.end()
            match found[0]:
                case "\\":
                    self._escaped = at == len(text)
                    at += 1
                case '"':
                    self._quoted = not self._quoted
                case "{" | "[":
                    self._depth += 1
                    self.whole = False
                case _:
                    self._depth -= 1
                    self.whole = self._depth <= 0
