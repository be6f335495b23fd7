"""Keys of the databases: fixed widths, whatever ids look like, and big-endian, so that keys sort as numbers do.

    sessions   SHA-256 of the session's id (32 bytes)      records   session number, first seq (16 bytes)
    recent     last activity in ms, number (16 bytes)      children  origin's number, fork's number (16 bytes)

Knows nothing of values.

Segments: under which session's number an event of a log lies. A fork keeps no copy of what it inherited.

It names segments instead: runs of events that lie under the numbers of other sessions, its *origins*. They are resolved
when a fork is made, so a fork of a fork names the first owners and a read never follows a chain of parents. Pure.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.ids import SessionId

MAX_U64: Final = (1 << 64) - 1

HIDDEN: Final = 0
"""Stands in a fork's place in `children`: the records under that number belong to no row. Numbers begin at 1."""


def session_key(session: SessionId) -> bytes:
    """Give the key of a session's row. Any text has one, also a text that no session can have as its id."""
    return sha256(session.encode("utf-8", "surrogatepass")).digest()


def record_key(number: int, seq: int) -> bytes:
    """Give the key of the record of session `number` that begins at `seq`."""
    return _PAIR.pack(number, seq)


def parse_record_key(key: bytes) -> tuple[int, int]:
    """Give session number and first seq of a record's key. Raises SessionCorruptionError for anything else."""
    if len(key) != _PAIR.size:
        raise SessionCorruptionError(f"the store holds a record under the key {key[:40]!r}, which is none")
    number, seq = _PAIR.unpack(key)
    return number, seq


def recent_key(activity: int, number: int) -> bytes:
    """Give the key that sorts session `number` by its last activity (epoch ms; before 1970 counts as 1970)."""
    return _PAIR.pack(min(max(activity, 0), MAX_U64), number)


def parse_recent_key(key: bytes) -> tuple[int, int]:
    """Give last activity (epoch ms) and session number."""
    activity, number = _PAIR.unpack(key)
    return activity, number


def child_key(origin: int, fork: int) -> bytes:
    """Give the key that says that session `fork` needs events which lie under the number `origin`."""
    return _PAIR.pack(origin, fork)


def parse_child_key(key: bytes) -> tuple[int, int]:
    """Give the numbers of origin and fork (or HIDDEN)."""
    origin, fork = _PAIR.unpack(key)
    return origin, fork


def child_value(last: int, digest: bytes) -> bytes:
    """Give the value that says up to which seq a fork needs an origin, and that event's digest (32 bytes)."""
    return last.to_bytes(8, "big") + digest


def parse_child_value(value: bytes) -> tuple[int, bytes]:
    """Give seq and digest."""
    return int.from_bytes(value[:8], "big"), value[8:]


_PAIR: Final = Layout(">QQ")


class RecordSegment(Struct, frozen=True, gc=False, array_like=True):
    """A run of inherited events: the number under which they lie, the seq of the last one, and its digest in hex. A run
    begins behind the one before it, the first at 0."""

    owner: int
    last: int
    digest: str


class Section(Struct, frozen=True, gc=False):
    """A part of a log that lies under one number: from `first` to `last`, to the end where `last` is None. `digest` is
    that of event `last`, in hex."""

    owner: int
    first: int
    last: int | None = None
    digest: str | None = None


def section_at(number: int, segments: tuple[RecordSegment, ...], seq: int) -> Section:
    """Give the section that holds event `seq` of the session with that number and those segments."""
    first = 0
    for segment in segments:
        if seq <= segment.last:
            return Section(segment.owner, first, segment.last, segment.digest)
        first = segment.last + 1
    return Section(number, first)


def forked_segments(number: int, segments: tuple[RecordSegment, ...], at: int, digest: str) -> tuple[RecordSegment, ...]:
    """Give the segments of a fork, at event `at` whose digest that is, of the session with that number and those
    segments."""
    whole = tuple(segment for segment in segments if segment.last < at)
    return *whole, RecordSegment(section_at(number, segments, at).owner, at, digest)
