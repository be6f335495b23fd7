"""Walk over a stored log record by record, whatever state it is in: damage becomes an item, and the walk goes on.

Keys are trusted to say where records begin; a record that does not fit between its key and the next one is damage. Never
raises for what a record holds, never repairs. How the rest of refold reads, `reading.py`, stops at the first damage.

Check of a stored log against its own digests: the whole chain, event by event, from the lines alone.

What is recorded beside the lines, a digest at the end of each record and one in the session's row, must be what the
lines give. Works on any handle; reads in batches and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.errors import DigestMismatchError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.session.codec import CHAIN_START, chain_step
from refold_storage.catalog import CatalogRow
from refold_storage.environment import Environment
from refold_storage.interface import Handle
from refold_storage.record_keys import MAX_U64, Section, parse_record_key, record_key
from refold_storage.records import BATCH_BYTES, HEAD_BYTES, Damage, Record, decode_record
from refold_storage.store_format import Database

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


Piece: TypeAlias = Record | Damage


def inspect_records(
    environment: Environment, row: CatalogRow, check_open: Callable[[], None], *, agreed: bool = True
) -> Iterator[Piece]:
    """Iterate over the log of `row` from its beginning, batch by batch, each in one short transaction.

    What lies behind the row's tail is left out, as it came later; but not where row and records do not agree about the end:
    then all that is stored is given. What is missing at the end is no item.
    """
    expected = begin = 0
    while begin <= row.tail or not agreed:
        check_open()
        section = row.section(begin)
        if section.last is None and agreed:
            section = Section(section.owner, section.first, row.tail, row.head_digest)
        with environment.reading() as transaction:
            found = _batch(transaction, environment.databases.records, section, begin, row.tail)
        for piece in found:
            if piece.first > expected:
                yield Damage(expected, piece.first - 1, "no record holds them")
            yield piece
            expected = piece.last + 1
        if found and (section.last is None or expected <= section.last):
            begin = found[-1].first + 1
        elif section.last is None:
            return
        else:
            begin = section.last + 1


def _batch(transaction: Transaction, records: Database, section: Section, begin: int, tail: int) -> list[Piece]:
    """Give what lies in a section from the key of event `begin` on, up to a number of bytes."""
    found: list[Piece] = []
    size = 0
    end = MAX_U64 if section.last is None else section.last
    with transaction.cursor(db=records) as cursor:
        more = cursor.set_range(record_key(section.owner, begin))
        while more and size < BATCH_BYTES:
            owner, first = parse_record_key(cursor.key())
            if owner != section.owner or first > end:
                break
            value = cursor.value()
            more = cursor.next()
            behind = _next_first(cursor.key(), section) if more else None
            piece = _cut(_piece(first, value, behind, tail), section)
            found.append(piece)
            size += len(value) if isinstance(piece, Damage) else sum(map(len, piece.lines))
    return found


def _next_first(key: bytes, section: Section) -> int | None:
    owner, first = parse_record_key(key)
    return first if owner == section.owner else None


def _piece(first: int, value: bytes, behind: int | None, tail: int) -> Piece:
    """Read a record; `behind` is where the next one begins, None for the last."""
    last = max(first, tail) if behind is None else behind - 1
    try:
        record = decode_record(first, value)
    except (SessionCorruptionError, SessionFormatUnsupportedError) as error:  # it becomes an item
        digest = value[8:HEAD_BYTES] if len(value) >= HEAD_BYTES else None
        return Damage(first, last, error.message, digest)
    if behind is not None and record.last >= behind:
        return Damage(first, last, f"their record holds events up to {record.last}, where the next one begins at {behind}")
    return record


def _cut(piece: Piece, section: Section) -> Piece:
    """Cut off what lies behind the section: a fork inherits a part of a record, and the last one may have grown since."""
    if section.last is None or section.digest is None or piece.last <= section.last:
        return piece
    digest = bytes.fromhex(section.digest)
    if isinstance(piece, Damage):
        return Damage(piece.first, section.last, piece.message, digest)
    return piece.cut(section.last, digest)


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
