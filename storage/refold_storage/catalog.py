"""Record beside each log: the rows of `sessions`, and `recent`, the list that is sorted by last activity.

A row is written in the transaction of the events that it counts, so it can never disagree with the log unless something
is broken; then SessionCorruptionError says so. Title, totals and last activity are a cache, all else is data. Every
function works inside the caller's transaction.

Counting a stored log anew: the summary that a list of sessions shows, from the events alone.

Chunks change no summary and are most of a log, so their lines are not decoded. Reads in batches and lets the event loop
run between two.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeAlias

import lmdb
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import (
    InvalidJsonError,
    RefoldError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
    SessionNotFoundError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.codec import CHAIN_START, decode_event
from refold_protocol.session.events import FORMAT_VERSION
from refold_protocol.session.session_totals import EMPTY_SUMMARY, SessionTotals, summary_step
from refold_storage.interface import NewSession, Parent, RecentCursor, SessionRecord
from refold_storage.record_keys import RecordSegment, Section, parse_recent_key, recent_key, section_at, session_key
from refold_storage.records import BATCH_BYTES, LinesBatch
from refold_storage.store_format import Databases

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


class CatalogRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A row of `sessions`: JSON in this order. `number` is the session's number in the keys of its records, `segments` say
    where inherited events lie. `estimated`: the summary is what the parent's was, at another seq of its log; the next
    opening for write counts anew."""

    format: int
    number: int
    id: SessionId
    cwd: str
    created_at: int
    tail: int
    head_digest: str
    writers: tuple[tuple[WriterId, int], ...]
    summary: SessionTotals
    parent: Parent | None = None
    archived: bool = False
    segments: tuple[RecordSegment, ...] = ()
    estimated: bool = False

    @property
    def activity(self) -> int:
        """What `recent` sorts by: epoch ms of the last activity, of the creation where that came later, as with forks."""
        return max(self.created_at, self.summary.last_activity or 0)

    @property
    def base(self) -> int:
        """Seq of the first event that lies under the session's own number."""
        return self.segments[-1].last + 1 if self.segments else 0

    def section(self, seq: int) -> Section:
        """Give the part of the log that holds event `seq`."""
        return section_at(self.number, self.segments, seq)

    @property
    def record(self) -> SessionRecord:
        """The row without what is the store's own business."""
        return SessionRecord(
            self.id,
            self.cwd,
            self.created_at,
            self.tail,
            self.head_digest,
            self.writers,
            self.summary,
            self.parent,
            self.archived,
        )


def empty_row(session: NewSession) -> CatalogRow:
    """Give the row of a session that is not stored yet; its number is 0. Raises InvalidJsonError for text that cannot
    be stored."""
    digest = CHAIN_START.hex()
    row = CatalogRow(FORMAT_VERSION, 0, session.id, session.cwd, session.created_at, -1, digest, (), EMPTY_SUMMARY)
    try:
        _ENCODER.encode(row)
    except UnicodeEncodeError:
        raise InvalidJsonError("a session's id and folder must be valid Unicode") from None
    return row


def find(transaction: Transaction, databases: Databases, session: SessionId) -> CatalogRow | None:
    """Give the row of a session, None where there is none. Raises SessionCorruptionError and
    SessionFormatUnsupportedError for a row that cannot be read."""
    value = transaction.get(session_key(session), db=databases.sessions)
    return None if value is None else _decode(value, session)


def check_stored(transaction: Transaction, databases: Databases, row: CatalogRow) -> None:
    """Raise SessionNotFoundError when the session of `row` was deleted, also when another one has its id now. About a
    microsecond."""
    value = transaction.get(session_key(row.id), db=databases.sessions)
    if value is not None and value.startswith(b'{"format":%d,"number":%d,' % (row.format, row.number)):
        return
    if value is None or _decode(value, row.id).number != row.number:
        raise SessionNotFoundError(f"session {row.id} was deleted", session=row.id)


def refuse_later_row(transaction: Transaction, databases: Databases, session: SessionId) -> None:
    """Raise SessionFormatUnsupportedError for a row with members that this release does not know: writing it again
    would lose them."""
    value = transaction.get(session_key(session), db=databases.sessions)
    if value is not None:
        unknown = set(msgspec.json.decode(value, type=dict[str, msgspec.Raw])) - _MEMBERS
        if unknown:
            raise SessionFormatUnsupportedError(
                f"session {session} was written by a later release of refold, which this one can read but not continue "
                f"(it knows nothing of {', '.join(sorted(unknown))})",
                session=session,
            )


def next_number(transaction: Transaction, databases: Databases) -> int:
    """Draw the number of a new session: from 1, never used twice."""
    number = int(transaction.get(_NEXT, b"1", db=databases.meta))
    transaction.put(_NEXT, b"%d" % (number + 1), db=databases.meta)
    return number


def put(transaction: Transaction, databases: Databases, row: CatalogRow, before: CatalogRow | None) -> None:
    """Store a row in place of `before`, and its place among the recent sessions."""
    key = session_key(row.id)
    transaction.put(key, _ENCODER.encode(row), db=databases.sessions)
    if before is not None:
        if before.activity == row.activity:
            return
        transaction.delete(recent_key(before.activity, before.number), db=databases.recent)
    transaction.put(recent_key(row.activity, row.number), key, db=databases.recent)


def mark_archived(transaction: Transaction, databases: Databases, session: SessionId, archived: bool) -> CatalogRow:
    """Set or take away a session's archived flag, whoever owns it; give its row. Raises SessionNotFoundError, and as
    `find` and `refuse_later_row` do."""
    before = find(transaction, databases, session)
    if before is None:
        raise SessionNotFoundError(f"there is no session {session}", session=session)
    refuse_later_row(transaction, databases, session)
    row = replace(before, archived=archived)
    put(transaction, databases, row, before)
    return row


def rehome(transaction: Transaction, databases: Databases, session: SessionId, cwd: str) -> CatalogRow:
    """Give a session another folder; give its row. Raises SessionNotFoundError, InvalidJsonError for a folder that cannot be
    stored, and as `find` and `refuse_later_row` do."""
    before = find(transaction, databases, session)
    if before is None:
        raise SessionNotFoundError(f"there is no session {session}", session=session)
    refuse_later_row(transaction, databases, session)
    row = replace(before, cwd=cwd)
    try:
        put(transaction, databases, row, before)
    except UnicodeEncodeError:
        raise InvalidJsonError("a session's folder must be valid Unicode") from None
    return row


def remove(transaction: Transaction, databases: Databases, row: CatalogRow) -> None:
    """Take a row out, and its place among the recent sessions."""
    transaction.delete(session_key(row.id), db=databases.sessions)
    transaction.delete(recent_key(row.activity, row.number), db=databases.recent)


def recent_rows(
    transaction: Transaction, databases: Databases, limit: int, before: RecentCursor | None
) -> list[tuple[RecentCursor, CatalogRow]]:
    """Give up to `limit` rows with their cursors, latest activity first, going on behind `before`. A row that cannot be
    read is left out: one broken session must not hide the others."""
    found: list[tuple[RecentCursor, CatalogRow]] = []
    with transaction.cursor(db=databases.recent) as cursor:
        behind = before is not None and cursor.set_range(recent_key(*before))
        more = cursor.prev() if behind else cursor.last()
        while more and len(found) < limit:
            value = transaction.get(cursor.value(), db=databases.sessions)
            try:
                if value is not None:
                    found.append((parse_recent_key(cursor.key()), _decode(value, None)))
            except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
                _LOG.warning("left out of the list of sessions: %s", error)
            more = cursor.prev()
    return found


def rebuild_recent(transaction: Transaction, databases: Databases) -> int:
    """Make the list of recent sessions from the rows; give how many of its entries were wrong or missing. What it says of
    a row that cannot be read stays."""
    wanted: dict[bytes, bytes] = {}
    unreadable: set[bytes] = set()
    with transaction.cursor(db=databases.sessions) as cursor:
        for key, value in cursor:
            try:
                row = _decode(value, None)
            except (SessionCorruptionError, SessionFormatUnsupportedError):  # a survey names it
                unreadable.add(key)
            else:
                wanted[recent_key(row.activity, row.number)] = key
    with transaction.cursor(db=databases.recent) as cursor:
        listed = list(cursor)
    wrong = [place for place, key in listed if wanted.get(place) != key and key not in unreadable]
    for place in wrong:
        transaction.delete(place, db=databases.recent)
    missing = wanted.keys() - ({place for place, _ in listed} - set(wrong))
    for place in missing:
        transaction.put(place, wanted[place], db=databases.recent)
    return len(set(wrong) | missing)


def rows_behind(
    transaction: Transaction, databases: Databases, behind: bytes, limit: int
) -> list[tuple[bytes, SessionId | RefoldError]]:
    """Give the keys of up to `limit` rows behind the key `behind`, in the order of keys, each with the session's id or
    with what is wrong with its row."""
    found: list[tuple[bytes, SessionId | RefoldError]] = []
    with transaction.cursor(db=databases.sessions) as cursor:
        more = cursor.set_range(behind)
        if more and cursor.key() == behind:
            more = cursor.next()
        while more and len(found) < limit:
            key = cursor.key()
            try:
                row = _decode(cursor.value(), None)
                right = session_key(row.id) == key
                found.append((key, row.id if right else SessionCorruptionError(f"the record of {row.id} is misplaced")))
            except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
                found.append((key, error))
            more = cursor.next()
    return found


def _decode(value: bytes, session: SessionId | None) -> CatalogRow:
    try:
        row = _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SessionCorruptionError(f"the record of session {session or '?'} cannot be read: {error}") from None
    if row.format != FORMAT_VERSION:
        raise SessionFormatUnsupportedError(
            f"session {row.id} has format version {row.format}; this release of refold reads version {FORMAT_VERSION}"
        )
    if session is not None and row.id != session:
        raise SessionCorruptionError(f"the record of session {session} names session {row.id}")
    return row


_LOG: Final = logging.getLogger(__name__)
_NEXT: Final = b"next"
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(CatalogRow)
_MEMBERS: Final = frozenset(CatalogRow.__struct_encode_fields__)


async def counted_summary(batch: LinesBatch, tail: int) -> SessionTotals:
    """Give the summary of the events 0 to `tail`. Raises SessionCorruptionError for what cannot be read."""
    summary, first = EMPTY_SUMMARY, 0
    while first <= tail:
        lines = batch(first, tail, BATCH_BYTES)
        for line in lines:
            if not line.startswith(_CHUNK):
                summary = summary_step(summary, decode_event(line))
        first += len(lines)
        await asyncio.sleep(0)
    return summary


_CHUNK: Final = b'{"type":"assistant/chunk",'
