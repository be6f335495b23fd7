"""Owns the putting together of a body from fragments: one allocation for the bytes, one running digest.

Dialects write fragments (a head, then one piece for each message) and a tail of closing brackets; here they become a
body. Fragments stay from one body to the next, so a step costs what is new. `b"".join` over all of them is the only copy
that is made: gluing head, middle and tail one after the other costs ten times as much in page faults.

Owns the words in which a place of a body is named, and the search for the first byte in which two bodies differ.

A dialect cuts its bodies (`Dialect.segments`); here is what holds for all of them. Pure; knows no wire form. Which node of
the log a message came from is known to callers only, who put it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct


class Body(Struct, frozen=True, gc=False):
    """The bytes that go to a provider, and their SHA-256 in lower-case hex."""

    data: bytes
    sha256: str


class BodyFragments:
    """A body that grows at its end: a head, and pieces separated by commas. `length` counts its bytes without a tail, and
    without `closing`, which closes the last piece once no more is added to it."""

    __slots__ = ("_digest", "_empty", "_fragments", "closing", "length")

    def __init__(self, head: bytes = b"") -> None:
        self._fragments = [head]
        self._digest = sha256(head)
        self._empty = True
        self.closing = b""
        self.length = len(head)

    def add(self, pieces: Sequence[bytes], closing: bytes = b"") -> None:
        """Put pieces behind what is there, each with a comma before it unless it is the first. `closing` ends the last of
        them, later."""
        for piece in pieces:
            self.grow(self.closing + (piece if self._empty else b"," + piece))
            self._empty = False
            self.closing = b""
        self.closing = closing

    def grow(self, more: bytes) -> None:
        """Add to the last piece, before what closes it."""
        self._fragments.append(more)
        self._digest.update(more)
        self.length += len(more)

    def finished(self, tail: bytes) -> Body:
        """Give the body as it is now, with `tail` behind it. More can be added afterwards."""
        tail = self.closing + tail
        digest = self._digest.copy()
        digest.update(tail)
        return Body(b"".join((*self._fragments, tail)), digest.hexdigest())


KINDS: Final = ("config", "tools", "system", "prefix", "history", "tail")
"""Kinds of segments: settings before and behind the tools, tools, system text, message prefix, history, closing brackets."""

EXCERPT_BEFORE: Final = 16
"""Bytes of an excerpt that both bodies share."""

EXCERPT_AFTER: Final = 40
"""Bytes of an excerpt from the first difference on."""


class Segment(Struct, frozen=True, gc=False, omit_defaults=True):
    """A part of a body, from byte `start` to before byte `end`. `index` counts tools, and messages within their kind, from
    0; `name` is that of a setting or a tool."""

    kind: str
    start: int
    end: int
    index: int | None = None
    name: str | None = None

    @property
    def words(self) -> str:
        """The segment for a person, for example `history message 7`; messages are counted from 1."""
        match self.kind:
            case "config":
                return f"config {self.name}"
            case "tools":
                return f"tool {self.name}"
            case "system":
                return "the system text"
            case "tail":
                return "the closing brackets"
            case _:
                return f"{self.kind} message {(self.index or 0) + 1}"


class SegmentDifference(Struct, frozen=True, gc=False):
    """The first byte in which two bodies differ, and the segment that holds it. `sent` and `rebuilt` are excerpts around
    it, printable, `…` where something was left out. `node` is the seq of the message's event, where a caller knows it."""

    offset: int
    segment: Segment
    sent: str
    rebuilt: str
    node: int | None = None

    @property
    def sentence(self) -> str:
        """Say where and what, for a person."""
        node = "" if self.node is None else f" (event {self.node})"
        return f"byte {self.offset}, in {self.segment.words}{node}: sent {self.sent}, rebuilt {self.rebuilt}"


def first_difference(sent: bytes, rebuilt: bytes, segments: Sequence[Segment]) -> SegmentDifference | None:
    """Give the first difference of two bodies, None where there is none. `segments` are those of `rebuilt`; a difference
    behind its end is one of its last segment."""
    offset = common_prefix(sent, rebuilt)
    if offset == len(sent) == len(rebuilt):
        return None
    return SegmentDifference(offset, segment_at(segments, offset), excerpt(sent, offset), excerpt(rebuilt, offset))


def common_prefix(one: bytes, other: bytes) -> int:
    """Count the bytes that both begin with."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:  # the first difference lies in low…high-1
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def segment_at(segments: Sequence[Segment], offset: int) -> Segment:
    """Give the segment that holds byte `offset`, the last one where it lies behind all. `segments` tile a body."""
    low, high = 0, len(segments) - 1
    while low < high:
        middle = (low + high) // 2
        if offset < segments[middle].end:
            high = middle
        else:
            low = middle + 1
    return segments[low]


def excerpt(body: bytes, offset: int) -> str:
    """Quote a body around byte `offset`: printable, on one line, whole characters where the body is UTF-8, `…` where
    something is left out."""
    start, end = max(0, offset - EXCERPT_BEFORE), min(len(body), offset + EXCERPT_AFTER)
    while start > 0 and _continues(body, start):
        start -= 1
    while _continues(body, end):
        end += 1
    text = body[start:end].decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return f"{'…' if start else ''}{shown}{'…' if end < len(body) else ''}"


def _continues(body: bytes, at: int) -> bool:
    return at < len(body) and body[at] & 0xC0 == 0x80
