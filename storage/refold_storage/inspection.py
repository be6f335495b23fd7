"""Owns looking at a stored log record by record, whatever state it is in: damage becomes an item, and the walk goes on.

Keys are trusted to say where records begin; a record that does not fit between its key and the next one is damage. Never
raises for what a record holds, never repairs. How the rest of refold reads, `reading.py`, stops at the first damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import lmdb

from refold_protocol.errors import SessionCorruptionError, SessionFormatUnsupportedError
from refold_storage.catalog import SessionRow
from refold_storage.environment import Environment
from refold_storage.format import Database
from refold_storage.keys import MAX_U64, parse_record_key, record_key
from refold_storage.reading import BATCH_BYTES
from refold_storage.records import HEAD_BYTES, Damage, Record, decode_record
from refold_storage.segments import Section

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]

Piece: TypeAlias = Record | Damage


def inspect_records(
    environment: Environment, row: SessionRow, check_open: Callable[[], None], *, agreed: bool = True
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
