"""Owns the putting together of a body from fragments: one allocation for the bytes, one running digest.

Dialects write fragments (a head, then one piece for each message) and a tail of closing brackets; here they become a
body. Fragments stay from one body to the next, so a step costs what is new. `b"".join` over all of them is the only copy
that is made: gluing head, middle and tail one after the other costs ten times as much in page faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct


class Body(Struct, frozen=True, gc=False):
    """The bytes that go to a provider, and their SHA-256 in lower-case hex."""

    data: bytes
    sha256: str


class BodyFragments:
    """A body that grows at its end: a head, and pieces separated by commas. `length` counts its bytes without a tail."""

    __slots__ = ("_digest", "_empty", "_fragments", "length")

    def __init__(self, head: bytes = b"") -> None:
        self._fragments = [head]
        self._digest = sha256(head)
        self._empty = True
        self.length = len(head)

    def add(self, pieces: Sequence[bytes]) -> None:
        """Put pieces behind what is there, each with a comma before it unless it is the first."""
        for piece in pieces:
            fragment = piece if self._empty else b"," + piece
            self._empty = False
            self._fragments.append(fragment)
            self._digest.update(fragment)
            self.length += len(fragment)

    def finished(self, tail: bytes) -> Body:
        """Give the body as it is now, with `tail` behind it. More can be added afterwards."""
        digest = self._digest.copy()
        digest.update(tail)
        return Body(b"".join((*self._fragments, tail)), digest.hexdigest())
