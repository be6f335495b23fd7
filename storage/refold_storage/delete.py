"""Owns what goes when a session goes: its row, its place among the recent ones, and every record that no fork needs.

What forks need stays under the session's number without a row, as a hidden origin, and goes with the last of them: a mark
in `children` (`HIDDEN` in the fork's place) says that nobody else keeps it. Forks name the first owners of what they
inherited, so no origin needs another one. Works inside the caller's transaction; the pages go back to the store, not to
the file system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.errors import SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_storage import catalog
from refold_storage.format import Databases
from refold_storage.keys import HIDDEN, MAX_U64, child_key, parse_child_key, parse_child_value, parse_record_key, record_key
from refold_storage.reading import seek
from refold_storage.records import decode_record, encode_record

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


def delete(transaction: Transaction, databases: Databases, session: SessionId) -> None:
    """Delete a session. Raises SessionNotFoundError, and SessionCorruptionError or SessionFormatUnsupportedError for a row
    that this release does not understand whole: it cannot know what belongs to it."""
    row = catalog.find(transaction, databases, session)
    if row is None:
        raise SessionNotFoundError(f"there is no session {session}", session=session)
    catalog.refuse_later_row(transaction, databases, session)
    catalog.remove(transaction, databases, row)
    hide(transaction, databases, row.number)
    for segment in row.segments:
        transaction.delete(child_key(segment.owner, row.number), db=databases.children)
    for number in (row.number, *(segment.owner for segment in row.segments)):
        shed(transaction, databases, number)


def hide(transaction: Transaction, databases: Databases, number: int) -> None:
    """Say that no row keeps the records under `number`."""
    transaction.put(child_key(number, HIDDEN), b"", db=databases.children)


def reveal(transaction: Transaction, databases: Databases, number: int) -> None:
    """Take `hide` back, for the row that comes with this transaction."""
    transaction.delete(child_key(number, HIDDEN), db=databases.children)


def shed(transaction: Transaction, databases: Databases, number: int) -> None:
    """Delete what no fork needs of the records under `number`, if they are hidden."""
    need = _need(transaction, databases, number)
    if not need.hidden:
        return
    if need.last is None:
        _drop_records(transaction, databases, number, 0)
        reveal(transaction, databases, number)
    else:
        _cut(transaction, databases, number, need.last, need.digest)
        _drop_records(transaction, databases, number, need.last + 1)


def hidden_numbers(transaction: Transaction, databases: Databases) -> list[int]:
    """Give the numbers under which there are records without a row, in order."""
    with transaction.cursor(db=databases.children) as cursor:
        pairs = (parse_child_key(key) for key in cursor.iternext(keys=True, values=False))
        return [origin for origin, fork in pairs if fork == HIDDEN]


class _Need(Struct, frozen=True):
    """What forks need under a number: up to event `last` (None: nothing), whose digest that is."""

    hidden: bool
    last: int | None
    digest: bytes


def _need(transaction: Transaction, databases: Databases, number: int) -> _Need:
    hidden, last, digest = False, -1, b""
    with transaction.cursor(db=databases.children) as cursor:
        more = cursor.set_range(child_key(number, 0))
        while more:
            origin, fork = parse_child_key(cursor.key())
            if origin != number:
                break
            if fork == HIDDEN:
                hidden = True
            else:
                last, digest = max((last, digest), parse_child_value(cursor.value()))
            more = cursor.next()
    return _Need(hidden, None if last < 0 else last, digest)


def _cut(transaction: Transaction, databases: Databases, number: int, last: int, digest: bytes) -> None:
    """Cut the record that holds event `last` behind it: what was deleted is not kept because of its neighbours."""
    with transaction.cursor(db=databases.records) as cursor:
        if not seek(cursor, number, last):
            return
        _, first = parse_record_key(cursor.key())
        record = decode_record(first, cursor.value())
    if record.last > last:
        value = encode_record(record.lines[: last + 1 - first], digest)
        transaction.put(record_key(number, first), value, db=databases.records)


def _drop_records(transaction: Transaction, databases: Databases, number: int, first: int) -> None:
    """Delete the records under `number` that begin at `first` or behind."""
    with transaction.cursor(db=databases.records) as cursor:
        while cursor.set_range(record_key(number, first)) and cursor.key() <= record_key(number, MAX_U64):
            cursor.delete()
