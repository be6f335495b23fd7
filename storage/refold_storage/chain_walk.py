"""Owns checking a stored log against its own digests: the whole chain, event by event, from the lines alone.

What is recorded beside the lines, a digest at the end of each record and one in the session's row, must be what the
lines give. Works on any handle; reads in batches and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold_protocol.errors import DigestMismatchError, SessionCorruptionError
from refold_protocol.session.chain import CHAIN_START, chain_step
from refold_storage.interface import Handle
from refold_storage.records import Record


class Link(Struct, frozen=True, gc=False):
    """One event of a verified chain: its seq, its exact line, and the chain's digest after it."""

    seq: int
    line: bytes
    digest: bytes


def walk_chain(handle: Handle) -> Iterator[Link]:
    """Iterate over the committed events of a log with their computed digests, in order, up to its end as of now.

    Raises DigestMismatchError behind the events of the first record whose recorded digest differs (`seq` is its last
    event, `first` its first), and at the end when the digest of the session's record does; SessionCorruptionError where
    records do not follow each other. On a handle with uncommitted events the last comparison is left out.
    """
    last = handle.durable
    expected = handle.head_digest if handle.tail == last else None
    found = CHAIN_START
    for link in walk_run(handle.records()):
        if link.seq <= last:  # the last record may have been extended meanwhile
            found = link.digest
            yield link
    if expected is not None and found != expected:
        raise DigestMismatchError(
            f"session {handle.id}: the lines up to event {last} give {found.hex()}, where the session's record "
            f"says {expected.hex()}",
            seq=last,
        )


def walk_run(records: Iterable[Record], first: int = 0, digest: bytes = CHAIN_START) -> Iterator[Link]:
    """Iterate over the events of `records`, which begin with event `first` and go on from `digest`. Errors as above."""
    seq = first
    for record in records:
        if record.first != seq:
            raise SessionCorruptionError(f"a record begins at seq {record.first} where {seq} comes next", seq=seq)
        for line in record.lines:
            digest = chain_step(digest, line)
            yield Link(seq, line, digest)
            seq += 1
        if digest != record.digest:
            raise DigestMismatchError(
                f"the lines up to event {record.last} give {digest.hex()}, where their record says {record.digest.hex()}",
                seq=record.last,
                first=record.first,
            )
