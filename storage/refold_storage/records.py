"""Owns the bytes of a record: a run of consecutive events of one session as one value of the `records` database.

    offset  size  field
         0     1  version, 0
         1     1  flags: 1 = the body is raw deflate with the preset dictionary; 2 and 4 = each line is a chunk of a
                  reply: both or none, so that no single bit that flips makes or unmakes the mark; no other is defined
         2     2  count of events, at least 1
         4     4  length of the body before deflating, in bytes
         8    32  the chain's digest of the run's last event
        40     …  body: the events' exact lines joined by a line break

Integers are big-endian. Where a run begins stands in its key. Nothing here decodes an event: lines go in and the same
lines come out, or SessionCorruptionError says where the log stops being right. Of a run of chunks alone a reader that needs
none of them learns as much from the head.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from refold_protocol.errors import SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.session.codec import CHUNK
from refold_protocol.session.events import FORMAT_VERSION
from refold_storage.dictionary import PRESET_DICTIONARY

HEAD_BYTES: Final = 40
"""Size of a record's fixed head."""

MAX_EVENTS: Final = 256
"""Most events of one record."""

MAX_LINE_BYTES: Final = 1 << 30
"""Longest line that fits the format: LMDB values and the head's length field end at 4 GiB, memory long before."""


class Record(Struct, frozen=True, gc=False):
    """A run of events: seq of the first, their lines in order, the chain's digest of the last, and the lines' bytes."""

    first: int
    lines: tuple[bytes, ...]
    digest: bytes
    size: int

    @property
    def last(self) -> int:
        """Seq of the last event."""
        return self.first + len(self.lines) - 1

    def cut(self, last: int, digest: bytes) -> Record:
        """Give the run up to the event `last`, behind which the chain has `digest`."""
        return run_of(self.first, self.lines[: last + 1 - self.first], digest)


def run_of(first: int, lines: tuple[bytes, ...], digest: bytes) -> Record:
    """Make a run of lines."""
    return Record(first, lines, digest, sum(map(len, lines)))


class Damage(Struct, frozen=True, gc=False):
    """Events that should be stored and cannot be read: the seqs of the first and the last, and why. `digest` is the chain's
    digest of the last where the head of their record still says it."""

    first: int
    last: int
    message: str
    digest: bytes | None = None


class RecordHead(Struct, frozen=True, gc=False):
    """What a record says of itself without its body: `length` is the body's size in bytes before deflating, `chunks`
    whether each line is a chunk."""

    first: int
    deflated: bool
    chunks: bool
    count: int
    length: int
    digest: bytes

    @property
    def last(self) -> int:
        """Seq of the last event."""
        return self.first + self.count - 1


def record_body(lines: Sequence[bytes]) -> tuple[bytes, int, int]:
    """Give the stored body of `lines`, its flags, and its length before deflating; deflated only when that is shorter."""
    body = b"\n".join(lines)
    flags = _CHUNKS if _are_chunks(lines) else 0
    deflater = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_DEFAULT_STRATEGY, _PRESET)
    deflated = deflater.compress(body) + deflater.flush()
    if len(deflated) < len(body):
        return deflated, flags | _DEFLATED, len(body)
    return body, flags, len(body)


def encode_record(lines: Sequence[bytes], digest: bytes, body: tuple[bytes, int, int] | None = None) -> bytes:
    """Write a run as a value. `body` is what `record_body(lines)` gave, where that is known already."""
    stored, flags, length = record_body(lines) if body is None else body
    return _HEAD.pack(FORMAT_VERSION, flags, len(lines), length, digest) + stored


def record_head(first: int, value: bytes) -> RecordHead:
    """Read the head of the record that begins at seq `first`.

    Raises SessionFormatUnsupportedError for another version or an unknown flag, SessionCorruptionError for a head that
    cannot be.
    """
    if len(value) < HEAD_BYTES:
        raise SessionCorruptionError(f"the record at seq {first} has {len(value)} bytes and no whole head", seq=first)
    version, flags, count, length, digest = _HEAD.unpack_from(value)
    if version != FORMAT_VERSION or flags & ~_DEFLATED not in (0, _CHUNKS):
        raise SessionFormatUnsupportedError(
            f"the record at seq {first} has version {version} and flags {flags}; this release reads version {FORMAT_VERSION}",
            seq=first,
        )
    if count == 0:
        raise SessionCorruptionError(f"the record at seq {first} holds no event", seq=first)
    return RecordHead(first, bool(flags & _DEFLATED), bool(flags & _CHUNKS), count, length, digest)


def decode_record(first: int, value: bytes) -> Record:
    """Read the record that begins at seq `first`. Errors as for `record_head`, with the seq where it is damaged."""
    head = record_head(first, value)
    stored = value[HEAD_BYTES:]
    body = _inflate(head, stored) if head.deflated else stored
    if len(body) != head.length:
        raise SessionCorruptionError(
            f"the record at seq {first} holds {len(body)} bytes where its head says {head.length}", seq=first
        )
    lines = tuple(body.split(b"\n"))
    if len(lines) != head.count:
        raise SessionCorruptionError(
            f"the record at seq {first} holds {len(lines)} events where its head says {head.count}",
            seq=first + min(len(lines), head.count),
        )
    if head.chunks and not _are_chunks(lines):
        raise SessionCorruptionError(f"the record at seq {first} says that it holds chunks alone, and does not", seq=first)
    return Record(first, lines, head.digest, head.length - head.count + 1)


def bare_record(head: RecordHead) -> Record:
    """Give a record of chunks by its head: of each line it is said that it is a chunk (CHUNK), and not which one."""
    return Record(head.first, (CHUNK,) * head.count, head.digest, len(CHUNK) * head.count)


def _are_chunks(lines: Sequence[bytes]) -> bool:
    return all(line.startswith(CHUNK) for line in lines)


def _inflate(head: RecordHead, stored: bytes) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS, _PRESET)
    try:
        # One byte more than announced is asked for, so that a longer body is noticed without being unpacked whole.
        body = inflater.decompress(stored, head.length + 1)
    except zlib.error as error:
        raise SessionCorruptionError(f"the record at seq {head.first} is damaged: {error}", seq=head.first) from None
    if not inflater.eof or inflater.unused_data:
        raise SessionCorruptionError(f"the record at seq {head.first} does not end where it should", seq=head.first)
    return body


_HEAD: Final = Layout(f">BBHI{HEAD_BYTES - 8}s")
_DEFLATED: Final = 1
_CHUNKS: Final = 2 | 4
_PRESET: Final = PRESET_DICTIONARY
