"""Owns where one record ends and the next begins: borders follow from sizes and never mean anything.

A record takes lines until it holds 256 or its value would pass MAX_RUN_BYTES; an event that needs more stands alone. How
well a run deflates is only known after deflating it, so a border is found by a few tries around a guess. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from refold_storage.records import HEAD_BYTES, MAX_EVENTS, encode_record, record_body

MAX_RUN_BYTES: Final = 790
"""Most bytes of a record with more than one event, head included: with its key and LMDB's own 26 bytes, five fill a page
of 4,096 bytes. Where records are put in between others LMDB leaves about one place of each page free, which is why few
large records would cost more than many small ones; beyond 2,014 bytes a value would even take pages of its own."""


class Packed(Struct, frozen=True, gc=False):
    """One record ready to be stored: seq of its first event, number of its events, its value."""

    first: int
    count: int
    value: bytes

    @property
    def may_grow(self) -> bool:
        """Whether a later commit should try to put more events into this record instead of beginning a new one."""
        return may_grow(self.count, len(self.value))


class _Run(Struct, frozen=True, gc=False):
    count: int
    body: tuple[bytes, int, int]

    @property
    def size(self) -> int:
        return HEAD_BYTES + len(self.body[0])


def may_grow(count: int, size: int) -> bool:
    """Whether a record of `count` events and `size` bytes has room enough that trying to extend it pays."""
    return count < MAX_EVENTS and size < _FULL_ENOUGH


def pack(first: int, lines: Sequence[bytes], digests: Sequence[bytes], settled: int = 0) -> list[Packed]:
    """Pack `lines`, which begin at seq `first`, into records, in order.

    The first `settled` lines are those of a stored record that may be extended: where they fit together with at least
    one more, the first record given back holds them too and replaces the stored one; otherwise it begins behind them.
    `digests` are the chain's digests after each of the lines behind the settled ones.
    """
    packed: list[Packed] = []
    ratio = _FIRST_RATIO
    at = 0
    while at < len(lines):
        run = _fit(lines, at, settled + 1 if at < settled else 1, ratio)
        if run is None:
            at = settled
            continue
        end = at + run.count
        ratio = len(run.body[0]) / max(run.body[2], 1)
        value = encode_record(lines[at:end], digests[end - 1 - settled], run.body)
        packed.append(Packed(first + at, run.count, value))
        at = end
    return packed


def _fit(lines: Sequence[bytes], at: int, least: int, ratio: float) -> _Run | None:
    """Give the longest run from position `at` that fits into a record; None when it would have less than `least` lines,
    except that one line always fits."""
    most = _most(lines, at)
    best: _Run | None = None
    low, high = least, most
    count = _guess(lines, at, least, most, ratio)
    for _ in range(_TRIES):
        if low > high or (best is not None and best.size > MAX_RUN_BYTES):
            break
        count = min(max(count, low), high)
        run = _Run(count, record_body(lines[at : at + count]))
        if run.size <= MAX_RUN_BYTES or count == 1:
            best, low = run, count + 1
        else:
            high = count - 1
        count += (MAX_RUN_BYTES - run.size) * count // len(run.body[0])
    return _Run(1, record_body(lines[at : at + 1])) if best is None and least == 1 else best


def _most(lines: Sequence[bytes], at: int) -> int:
    """How many lines a record from position `at` may hold at most: a long line ends it, unless it is the first."""
    most = min(len(lines) - at, MAX_EVENTS)
    for count in range(most):
        if len(lines[at + count]) > _LONG_LINE:
            return max(count, 1)
    return most


def _guess(lines: Sequence[bytes], at: int, least: int, most: int, ratio: float) -> int:
    room = MAX_RUN_BYTES - HEAD_BYTES
    count = 0
    while count < most and room > 0:
        room -= int((len(lines[at + count]) + 1) * ratio)
        count += 1
    return max(count, least)


_LONG_LINE: Final = 16 * 1024
"""A longer line stands alone without being tried beside others: it would have to deflate to less than a twentieth."""

_FULL_ENOUGH: Final = MAX_RUN_BYTES - 20
_TRIES: Final = 8
_FIRST_RATIO: Final = 0.09
