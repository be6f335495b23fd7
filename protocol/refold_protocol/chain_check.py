"""Owns the comparison of a log's lines with the digests that its records carry, so that a change is found where it is.

A record's digest is the only one known between its ends. After a record that does not fit there are two ways to go on,
from what it says and from what its lines give; the next digest that is met shows which of them was right, and with that
what was changed. Pure: lines and digests come in, breaks go out.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.chain import CHAIN_START, chain_step


class Break(Struct, frozen=True, gc=False):
    """A record whose lines do not give the digest that it carries: the seqs of its first and last event."""

    first: int
    last: int
    message: str


class ChainCheck:
    """Checks the chain of one log. Feed every line, and tell where a record ends or is lost."""

    def __init__(self) -> None:
        self._digest: bytes | None = CHAIN_START
        self._other: bytes | None = None
        self._doubtful = False
        self._breaks: list[Break] = []

    @property
    def digest(self) -> bytes | None:
        """The digest after the lines so far, going on from what records say; None when that is not known."""
        return self._digest

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The records that do not fit, in order."""
        return tuple(self._breaks)

    def feed(self, line: bytes) -> None:
        """Go on by one line."""
        if self._digest is not None:
            self._digest = chain_step(self._digest, line)
        if self._other is not None:
            self._other = chain_step(self._other, line)

    def end_record(self, first: int, last: int, digest: bytes, *, misplaced: bool = False) -> None:
        """The record of the events `first` to `last` ends here and carries `digest`. `misplaced`: its lines say that they
        belong elsewhere, and then so may its digest; the record behind it is not blamed for that."""
        given = self._digest
        if given is None or self.agrees(digest):
            self._other = None
        else:
            self._breaks.append(Break(first, last, f"its lines give {given.hex()}, the record says {digest.hex()}"))
            self._other = given
        self._digest, self._doubtful = digest, misplaced

    def agrees(self, digest: bytes) -> bool:
        """Tell whether `digest` can be the one after the lines so far; if so, the last break is explained by it."""
        if self._digest is None:
            return True
        if digest not in (self._digest, self._other):
            return self._doubtful
        if self._other is not None:
            reason = "a line of it was changed" if digest == self._digest else "its lines are right, its digest was changed"
            last = self._breaks[-1]
            self._breaks[-1] = replace(last, message=f"{reason}: {last.message}")
            self._other = None
        return True

    def lose(self, digest: bytes | None) -> None:
        """Lines are missing here; `digest` is what a record says of the last of them, None where no record does."""
        self._digest, self._other, self._doubtful = digest, None, False
