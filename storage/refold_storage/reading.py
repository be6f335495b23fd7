"""Owns reading a committed log: from any seq, in bounded batches, each in one short transaction.

A seq is found by a seek: the last record that begins at or before it, under the number of the section in which it lies.
Records may be extended and repacked between two batches, so a batch never relies on the borders of the one before.
Storage never cuts and never repairs: what does not hold together raises SessionCorruptionError with the seq where it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import lmdb

from refold_protocol.errors import SeqRangeError, SessionCorruptionError
from refold_protocol.session.chain import CHAIN_START, chain
from refold_protocol.session.codec import decode_at
from refold_protocol.session.events import Event
from refold_storage.catalog import SessionRow, check_stored
from refold_storage.environment import Environment
from refold_storage.format import Database
from refold_storage.keys import MAX_U64, parse_record_key, record_key
from refold_storage.records import Record, bare_record, decode_record, record_head

if TYPE_CHECKING:
    Cursor: TypeAlias = lmdb.Cursor[bytes]
    Transaction: TypeAlias = lmdb.Transaction[bytes]

LinesBatch: TypeAlias = Callable[[int, int, int], list[bytes]]
"""Gives lines from a first to at most a last seq: at least one, then as many as fit a number of bytes."""

BATCH_BYTES: Final = 256 * 1024
"""A batch ends behind the line with which it reaches this size."""


def check_range(first: int, last: int | None, tail: int) -> int:
    """Give the last seq to read; raise SeqRangeError for a range that a log with that `tail` does not have."""
    if first < 0 or (last is not None and not -1 <= last <= tail):
        raise SeqRangeError(f"no events {first} to {last} in a log that ends at {tail}", first=first, last=last, tail=tail)
    return tail if last is None else last


def last_record(transaction: Transaction, records: Database, number: int) -> tuple[int, bytes] | None:
    """Give first seq and value of the last record under a number; None where there is none."""
    with transaction.cursor(db=records) as cursor:
        if not seek(cursor, number, MAX_U64):
            return None
        return parse_record_key(cursor.key())[1], cursor.value()


def check_tail(transaction: Transaction, records: Database, row: SessionRow) -> None:
    """Compare the last record with the row.

    Raises SessionCorruptionError when row and records disagree about where the log ends.
    """
    stored = last_record(transaction, records, row.number)
    if stored is not None:
        head = record_head(*stored)
        last, digest = head.last, head.digest.hex()
    elif row.segments:
        last, digest = row.segments[-1].last, row.segments[-1].digest
    elif row.tail == -1:
        return
    else:
        raise SessionCorruptionError(f"session {row.id} should have events up to {row.tail} and has none", seq=0)
    if last != row.tail or digest != row.head_digest:
        raise SessionCorruptionError(
            f"session {row.id} ends at seq {last}, digest {digest}, where its record says {row.tail}, {row.head_digest}",
            seq=min(last, row.tail) + 1,
        )


def read_records(
    transaction: Transaction,
    records: Database,
    row: SessionRow,
    first: int,
    last: int,
    max_bytes: int,
    *,
    chunks: bool = True,
) -> list[Record]:
    """Give the records that hold the events from `first` (not past the tail) on, until `max_bytes`, `last` or the end of
    the section in which `first` lies is reached.

    The first record may begin before `first`, the last may go on behind `last`. Each follows the one before it. A record
    that goes on behind the section is cut there. Without `chunks` those that hold nothing else are bare.
    """
    section = row.section(first)
    found: list[Record] = []
    size, seq = 0, first
    last = last if section.last is None else min(last, section.last)
    with transaction.cursor(db=records) as cursor:
        more = seek(cursor, section.owner, first)
        while more and seq <= last and size < max_bytes:
            owner, start = parse_record_key(cursor.key())
            if owner != section.owner or start > seq or (found and start != seq):
                break
            record = _record(start, cursor.value(), chunks=chunks)
            if record.last < seq:
                break
            found.append(record)
            size += record.size
            seq = record.last + 1
            more = cursor.next()
    if seq == first:
        raise SessionCorruptionError(f"the event {first} is missing", seq=first)
    if section.digest is not None and section.last is not None and found[-1].last > section.last:
        final = found[-1]
        found[-1] = final.cut(section.last, bytes.fromhex(section.digest))
    return found


def _record(first: int, value: bytes, *, chunks: bool) -> Record:
    if not chunks:
        head = record_head(first, value)
        if head.chunks:
            return bare_record(head)
    return decode_record(first, value)


def digest_at(transaction: Transaction, records: Database, row: SessionRow, seq: int) -> bytes:
    """Give the chain's digest after event `seq` (not past the tail), from the one record that holds it and the digest
    recorded before that. Raises SessionCorruptionError when that record does not give its own digest."""
    if seq == -1:
        return CHAIN_START
    (record,) = read_records(transaction, records, row, seq, seq, 1)
    if record.last == seq:
        return record.digest
    before = digest_at(transaction, records, row, record.first - 1)
    if chain(record.lines, before) != record.digest:
        raise SessionCorruptionError(f"the record at seq {record.first} does not give its own digest", seq=record.first)
    return chain(record.lines[: seq + 1 - record.first], before)


def committed_lines(
    environment: Environment, row: SessionRow, first: int, last: int, max_bytes: int, *, chunks: bool = True
) -> list[bytes]:
    """Give lines from `first` to at most `last`, in one transaction: at least one, then as many as fit `max_bytes`, none
    from behind the section in which `first` lies. Without `chunks` some may be bare; see `interface.Handle.lines`."""
    with environment.reading() as transaction:
        check_stored(transaction, environment.databases, row)
        found = read_records(transaction, environment.databases.records, row, first, last, max(max_bytes, 1), chunks=chunks)
    lines: list[bytes] = []
    size = 0
    for record in found:
        inside = record.lines[max(first - record.first, 0) : last + 1 - record.first]
        size += record.size if len(inside) == len(record.lines) else sum(map(len, inside))
        lines += inside
    return _fitting(lines, size, max_bytes)


def _fitting(lines: list[bytes], size: int, max_bytes: int) -> list[bytes]:
    """Give the first of `lines`, which have `size` bytes, and as many behind it as fit `max_bytes` together. At most one
    record's lines do not."""
    count = len(lines)
    while size > max_bytes and count > 1:
        count -= 1
        size -= len(lines[count])
    return lines[:count]


def gather_lines(batch: LinesBatch, first: int, last: int, max_bytes: int | None) -> list[bytes]:
    """Give the lines `first` to `last` batch by batch: as many as fit `max_bytes` together, but one where there is one."""
    found: list[bytes] = []
    left = max_bytes
    while first + len(found) <= last and (left is None or left > 0 or not found):
        lines = batch(first + len(found), last, BATCH_BYTES if left is None else min(left, BATCH_BYTES))
        if left is not None:
            size = sum(map(len, lines))
            if found and size > left:
                break
            left -= size
        found += lines
    return found


def decode_lines(lines: list[bytes], first: int) -> Iterator[Event]:
    """Decode `lines`, the first of which has seq `first`. Raises SessionCorruptionError for a line that is no event or
    does not stand where its seq says."""
    for seq, line in enumerate(lines, first):
        yield decode_at(line, seq)


def walk_records(
    environment: Environment, row: SessionRow, first: int, last: int, check_open: Callable[[], None]
) -> Iterator[Record]:
    """Iterate over the records from the one that holds `first` to the one that holds `last`, batch by batch."""
    while first <= last:
        check_open()
        with environment.reading() as transaction:
            check_stored(transaction, environment.databases, row)
            found = read_records(transaction, environment.databases.records, row, first, last, BATCH_BYTES)
        yield from found
        first = found[-1].last + 1


def seek(cursor: Cursor, number: int, seq: int) -> bool:
    """Put the cursor on the last record of session `number` that begins at or before `seq`."""
    wanted = record_key(number, seq)
    found = cursor.set_range(wanted)
    if not found:
        found = cursor.last()
    elif cursor.key() != wanted:
        found = cursor.prev()
    return found and parse_record_key(cursor.key())[0] == number
