"""The judging of lines that are to become a log: each an event, strict JSON, in its place, and allowed where it stands.

Pure, and fed batch by batch. Both stores import through it. What may follow what is judged by the fold that judges what is
written here; a foreign event is kept whether or not this process knows its type.

Import of a log into the store: in transactions of bounded size, hidden until the last one, which writes the row.

Until then the records lie under a number that no row has, marked as a hidden origin's are; whatever a crash leaves of them
is swept by `compact_store`. Any number of sessions may go on writing meanwhile. Knows nothing of files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import lmdb
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import (
    DigestMismatchError,
    InvalidJsonError,
    RefoldError,
    SessionAlreadyExistsError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
)
from refold_protocol.json_text import parse_strict
from refold_protocol.session.codec import chain_step, check_envelope, decode_event
from refold_protocol.session.events import Event, ForeignData
from refold_protocol.session.session_state import NO_EVENTS, SessionState, fold
from refold_protocol.session.session_totals import summary_step
from refold_storage import catalog
from refold_storage.batch import EMPTY_HEAD, Head
from refold_storage.catalog import CatalogRow
from refold_storage.changes import Work, change, hide, reveal, shed
from refold_storage.commit import CommitQueue, put_records
from refold_storage.interface import NewSession, SessionRecord
from refold_storage.records import BATCH_BYTES, MAX_LINE_BYTES, Record, decode_record, pack
from refold_storage.store_format import Databases

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


MAX_TIME: Final = (1 << 53) - 1
"""The last time (epoch ms) that is taken: every reader of JSON reads it as it is. No event is behind one that came later."""


class ImportIntake:
    """A log that is being read in. `head` is where it ends so far."""

    def __init__(self) -> None:
        self.head: Head = EMPTY_HEAD
        self._state: SessionState = NO_EVENTS

    def take(self, lines: Sequence[bytes]) -> tuple[list[Event], list[bytes]]:
        """Check the next lines; give their events and the chain's digest after each. Raises SessionCorruptionError with
        the `seq` at which the first wrong line stands."""
        events: list[Event] = []
        digests: list[bytes] = []
        tail, time, digest, summary = self.head.tail, self.head.time, self.head.digest, self.head.summary
        for line in lines:
            event = _event(line, tail + 1)
            if event.time < time:
                _refuse(tail + 1, f"its time {event.time} lies before {'1970' if tail < 0 else 'the event before it'}")
            if event.time > MAX_TIME:
                _refuse(tail + 1, f"its time {event.time} is none that a clock can have")
            self._judge(event)
            tail, time = event.seq, event.time
            digest, summary = chain_step(digest, line), summary_step(summary, event)
            events.append(event)
            digests.append(digest)
        self.head = Head(tail, time, digest, summary)
        return events, digests

    def _judge(self, event: Event) -> None:
        try:
            if isinstance(event.data, ForeignData):
                check_envelope(event.type, event.surface_op, event.sources, event.seq)
            else:
                self._state = fold(self._state, event)
        except SessionFormatUnsupportedError:
            raise
        except RefoldError as error:
            raise SessionCorruptionError(error.message, seq=event.seq) from error

    def finish(self, record: SessionRecord) -> None:
        """Compare what was read with the record that came with it. Raises SessionCorruptionError for another length or
        writers that cannot be, DigestMismatchError for another digest."""
        tail, digest = self.head.tail, self.head.digest.hex()
        if tail != record.tail or tail < 0:
            raise SessionCorruptionError(f"the lines end at event {tail}, where the record says {record.tail}", seq=tail + 1)
        if digest != record.head_digest:
            raise DigestMismatchError(f"the lines give {digest}, where the record says {record.head_digest}", seq=tail)
        before = -1
        for writer, first in record.writers:
            if not before < first <= tail:
                raise SessionCorruptionError(f"writer {writer} cannot have begun at event {first}", seq=max(first, 0))
            before = first


def _event(line: bytes, seq: int) -> Event:
    if b"\n" in line or len(line) > MAX_LINE_BYTES:
        _refuse(seq, "a line break, or more bytes than a line can have")
    try:
        event = decode_event(line)
        parse_strict(line.decode())
    except SessionCorruptionError as error:
        _refuse(seq, error.message)
    except SessionFormatUnsupportedError as error:
        raise SessionFormatUnsupportedError(f"event {seq}: {error.message}", seq=seq) from None
    except (InvalidJsonError, UnicodeDecodeError) as error:
        _refuse(seq, str(error))
    if event.seq != seq:
        _refuse(seq, f"it calls itself {event.seq}")
    return event


def _refuse(seq: int, reason: str) -> NoReturn:
    raise SessionCorruptionError(f"event {seq}: {reason}", seq=seq)


class _TransferProgress(Struct, frozen=True):
    """What is in the store so far: the number (0 for nothing yet), and the last record if it may be extended."""

    number: int
    open_run: Record | None


class Transfer:
    """One log on its way into the store. Whoever drives it holds the lease of its id; after a failure of `run`, `undo`."""

    def __init__(self, commits: CommitQueue, seconds: float, record: SessionRecord) -> None:
        self._commits = commits
        self._seconds = seconds
        self._record = record
        self._empty: Final = catalog.empty_row(NewSession(record.id, record.cwd, record.created_at))
        self._intake = ImportIntake()
        self._written = _TransferProgress(0, None)
        self._pending: asyncio.Future[_TransferProgress] | None = None

    async def run(self, lines: Iterable[bytes]) -> SessionRecord:
        """Write all lines and then the row; see `interface.Store.import_session`. May be cancelled between two batches."""
        for batch in batches(lines):
            first = self._intake.head.tail + 1
            _, digests = self._intake.take(batch)
            await self._do(partial(_put, before=self._written, first=first, lines=batch, digests=digests))
        self._intake.finish(self._record)
        head = self._intake.head
        row = replace(
            imported_row(self._empty, self._record),
            number=self._written.number,
            tail=head.tail,
            head_digest=head.digest.hex(),
            summary=head.summary,
        )
        await self._do(partial(_show, row=row))
        return row.record

    async def undo(self) -> None:
        """Take back what was written. Where that fails too, the rest stays hidden until the store is compacted."""
        try:
            if self._pending is not None:
                self._written = await self._pending
            await change(self._commits, partial(shed, number=self._written.number), self._seconds)
        except RefoldError as error:  # the import has failed already, for a reason that matters more
            _LOG.debug("an import could not be taken back now: %s", error)

    async def _do(self, work: Work[_TransferProgress]) -> None:
        self._pending = asyncio.ensure_future(change(self._commits, work, self._seconds, BATCH_BYTES))
        self._written = await asyncio.shield(self._pending)


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines: a batch ends with the line that brings it to BATCH_BYTES."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def imported_row(empty: CatalogRow, record: SessionRecord) -> CatalogRow:
    """Give what an imported session's row has of the record that came with it."""
    return replace(empty, writers=record.writers, parent=record.parent, archived=record.archived)


def _put(
    transaction: Transaction,
    databases: Databases,
    before: _TransferProgress,
    first: int,
    lines: Sequence[bytes],
    digests: Sequence[bytes],
) -> _TransferProgress:
    number = before.number or catalog.next_number(transaction, databases)
    hide(transaction, databases, number)
    settled = () if before.open_run is None else before.open_run.lines
    packed = pack(first - len(settled), [*settled, *lines], digests, len(settled))
    put_records(transaction, databases, number, packed)
    last = packed[-1]
    return _TransferProgress(number, decode_record(last.first, last.value) if last.may_grow else None)


def _show(transaction: Transaction, databases: Databases, row: CatalogRow) -> _TransferProgress:
    if catalog.find(transaction, databases, row.id) is not None:
        raise SessionAlreadyExistsError(f"there is a session {row.id} already", session=row.id)
    reveal(transaction, databases, row.number)
    catalog.put(transaction, databases, row, None)
    return _TransferProgress(row.number, None)


_LOG: Final = logging.getLogger(__name__)
