"""A passage found in a text and another put in its place, as a model means it: by lines, whatever ends them.

A model is shown lines without the `\\r` that may end them, so a `\\n` in what it asks for stands for `\\r\\n` as well. What is
put in gets the line breaks of where it stands; all else stays to the byte. Pure.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from refold_server.tools.workspace_path import shown

_MAX_LOOKED_AT: Final = 2_000
"""Lines of a text among which one is looked for that resembles what was not found."""

_MAX_QUOTED: Final = 200
_NUMBERED: Final = re.compile(r"(?m)^ *\d+\t")


class Lines:
    """A text as a model sees it: with `\\n` alone at the ends of lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.seen = seen_form(text)
        self._cut = array("q", (match.start() - number for number, match in enumerate(re.finditer("\r\n", text))))
        """Where in `seen` the `\\n` stand before which a `\\r` was left out."""

    def places(self, old: str) -> Iterator[int]:
        """Give where in `seen` a passage `old` begins, from left to right, even if it overlaps the one before."""
        wanted = seen_form(old)
        at = self.seen.find(wanted)
        while at >= 0:
            yield at
            at = self.seen.find(wanted, at + 1)

    def count(self, old: str) -> int:
        """Count the passages `old` that lie beside each other, in one pass: of those that overlap one counts."""
        return self.seen.count(seen_form(old))

    def line_at(self, place: int) -> int:
        """Give the number of the line, from 1, in which a place of `seen` lies."""
        return self.seen.count("\n", 0, place) + 1

    def least_length(self, old: str, new: str, *, every: bool) -> int:
        """Give the characters that the text of `replaced` has at least, without making it: it may not fit in memory."""
        return (self.count(old) if every else 1) * len(seen_form(new))

    def replaced(self, old: str, new: str, *, every: bool) -> str:
        """Give the text with `new` in the place of the first passage that is `old`, or of every one."""
        wanted, given = seen_form(old), seen_form(new)
        if not self._cut:
            return self.text.replace(wanted, given, -1 if every else 1)
        head = _shared(wanted, given)
        tail = _shared(wanted[head:][::-1], given[head:][::-1])  # what stays keeps its own line breaks
        given = given[head : len(given) - tail]
        pieces: list[str] = []
        done = 0
        at = self.seen.find(wanted)
        while at >= 0:
            start, end = self._place(at + head), self._place(at + len(wanted) - tail)
            pieces += (self.text[done:start], given.replace("\n", self._break_at(at)))
            done = end
            at = self.seen.find(wanted, at + len(wanted)) if every else -1
        return "".join((*pieces, self.text[done:]))

    def _place(self, seen: int) -> int:
        """Give the place in `text` of one in `seen`; that of a `\\n` is before its `\\r`."""
        return seen + bisect_right(self._cut, seen - 1)

    def _break_at(self, seen: int) -> str:
        """Give the line break nearest to a place: the next one, else the one before, else `\\n`."""
        at = self.seen.find("\n", seen)
        if at < 0:
            at = self.seen.rfind("\n", 0, seen)
        known = bisect_right(self._cut, at)
        return "\r\n" if at >= 0 and known > 0 and self._cut[known - 1] == at else "\n"


def seen_form(text: str) -> str:
    """Give a text with `\\n` for every `\\r\\n`."""
    return text.replace("\r\n", "\n")


def has_crlf_only(text: str) -> bool:
    """Tell whether lines end, and all of them with `\\r\\n`."""
    return 0 < text.count("\r\n") == text.count("\n")


def hint(text: str, old: str) -> str:
    """Say, in a sentence, what may be wrong with an `old` that is not in the text; empty where nothing can be said."""
    if _NUMBERED.search(old):
        return " Leave out the line numbers and tabs that read_file puts in front of lines."
    wanted = next((line.strip() for line in seen_form(old).split("\n") if line.strip()), "")
    lines = [line.strip() for line in text.split("\n")]
    if not wanted:
        return ""
    if wanted in lines:
        return f" Its first line is like line {lines.index(wanted) + 1}; look at the white space, and at the lines that follow."
    near = get_close_matches(wanted[:_MAX_QUOTED], [line[:_MAX_QUOTED] for line in lines[:_MAX_LOOKED_AT] if line], n=1)
    if not near:
        return ""
    number = next(number for number, line in enumerate(lines, 1) if line[:_MAX_QUOTED] == near[0])
    return f" The line most like its first is line {number}: {shown(near[0])}"


def _shared(one: str, other: str) -> int:
    """Count the characters with which both begin."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)
