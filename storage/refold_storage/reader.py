"""Reading of a committed log: from any seq, in bounded batches, each in one short transaction.

A seq is found by a seek: the last record that begins at or before it, under the number of the section in which it lies.
Records may be extended and repacked between two batches, so a batch never relies on the borders of the one before.
Storage never cuts and never repairs: what does not hold together raises SessionCorruptionError with the seq where it stops.

Listeners of a handle's progress: observers of accepted batches, watchers of the durable seq.

They run synchronously, in the order in which they came. What one raises is logged and contained, because the log has
changed already when it is called; one that takes long is named in the log, because everybody waits for it. Knows nothing
of where events are kept.

Handle of a session that was opened for reading: the committed log as of the last refresh.

Other processes may append meanwhile; what this handle shows moves only with `refresh`. It holds no lease, no transaction
and no event. Never writes.

Slices of a log: its lines or events in portions, each read in one short transaction, so that others run in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

import lmdb

from refold_protocol.errors import (
    LogError,
    LogUnwritableError,
    SeqRangeError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
    SessionHandleClosedError,
    SessionNotFoundError,
    SessionReadOnlyError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.codec import CHAIN_START, CHUNK, chain, decode_at, refuse_foreign
from refold_protocol.session.events import Draft, Event
from refold_storage import catalog
from refold_storage.batch import Batch
from refold_storage.catalog import CatalogRow, check_stored
from refold_storage.damage import inspect_records
from refold_storage.environment import Environment
from refold_storage.interface import Access, DurableWatcher, Handle, Observer, SessionRecord, TroubleWatcher
from refold_storage.record_keys import MAX_U64, parse_record_key, record_key
from refold_storage.records import BATCH_BYTES, Damage, LinesBatch, Record, bare_record, decode_record, record_head
from refold_storage.store_format import Database

if TYPE_CHECKING:
    Cursor: TypeAlias = lmdb.Cursor[bytes]
    Transaction: TypeAlias = lmdb.Transaction[bytes]


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


def check_tail(transaction: Transaction, records: Database, row: CatalogRow) -> None:
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
    row: CatalogRow,
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


def digest_at(transaction: Transaction, records: Database, row: CatalogRow, seq: int) -> bytes:
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
    environment: Environment, row: CatalogRow, first: int, last: int, max_bytes: int, *, chunks: bool = True
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
    environment: Environment, row: CatalogRow, first: int, last: int, check_open: Callable[[], None]
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


Told = TypeVar("Told")

SLOW_SECONDS: Final = 0.05
"""A listener that takes longer than this is named in the log."""


class Listeners(Generic[Told]):
    """Callables that are told one value each time. One that leaves while all are being told is not called any more."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[Told], None]] = {}
        self._next = 0

    def add(self, listener: Callable[[Told], None]) -> Callable[[], None]:
        """Tell `listener` from now on; give the function that stops it (idempotent)."""
        place = self._next
        self._next += 1
        self._listeners[place] = listener

        def stop() -> None:
            self._listeners.pop(place, None)

        return stop

    def tell(self, told: Told) -> None:
        """Call every listener with `told`. Raises nothing that a listener raises, cancellation and exit excepted."""
        if not self._listeners:
            return
        for place in list(self._listeners):
            listener = self._listeners.get(place)
            if listener is None:
                continue
            began = perf_counter()
            try:
                listener(told)
            except Exception:  # noqa: BLE001 - the event is accepted whatever its listeners think of it
                _LOG.exception("a listener of the log failed: %r", listener)
            spent = perf_counter() - began
            if spent > SLOW_SECONDS:
                _LOG.warning("a listener of the log took %.0f ms: %r", spent * 1000, listener)

    def clear(self) -> None:
        """Forget all listeners."""
        self._listeners.clear()


_LOG: Final = logging.getLogger(__name__)


class ReadHandle:
    """A session, opened for reading. See `interface.Handle` for what each member promises. With `damaged` a log that
    does not agree with its record is opened too, to be inspected."""

    def __init__(
        self, environment: Environment, session: SessionId, forget: Callable[[ReadHandle], None], *, damaged: bool = False
    ) -> None:
        self._environment = environment
        self._session = session
        self._forget = forget
        self._watchers: Listeners[int] = Listeners()
        self._closed = False
        self._damaged = damaged
        self._agreed = True
        self._seen, self._row = self._look(None)

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._session

    @property
    def access(self) -> Access:
        """`read`."""
        return "read"

    @property
    def writer(self) -> WriterId | None:
        """None."""
        return None

    @property
    def tail(self) -> int:
        """The committed tail as of the last refresh."""
        return self._row.tail

    @property
    def durable(self) -> int:
        """The same as `tail`."""
        return self._row.tail

    @property
    def head_digest(self) -> bytes:
        """The chain's digest at `tail`."""
        return bytes.fromhex(self._row.head_digest)

    @property
    def trouble(self) -> LogError | None:
        """An error when the store cannot be used any more, else None."""
        reason = self._environment.unusable
        return None if reason is None else LogUnwritableError(reason)

    @property
    def record(self) -> SessionRecord:
        """The record as of the last refresh."""
        return self._row.record

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """Iterate over events; see `interface.Handle.read`."""
        self._check_open()
        return self._read(first, check_range(first, last, self.tail))

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give exact lines; see `interface.Handle.lines`."""
        self._check_open()
        end = check_range(first, last, self.tail)
        return gather_lines(partial(self._batch, chunks=chunks), first, end, max_bytes)

    def records(self, first: int = 0) -> Iterator[Record]:
        """Iterate over committed records; see `interface.Handle.records`."""
        self._check_open()
        check_range(first, None, self.tail)
        return walk_records(self._environment, self._row, first, self.tail, self._check_open)

    def inspect(self) -> Iterator[Record | Damage]:
        """Iterate over what is stored; see `interface.Handle.inspect`."""
        self._check_open()
        return inspect_records(self._environment, self._row, self._check_open, agreed=self._agreed)

    def seal(self, drafts: Sequence[Draft], *, closing: bool = False) -> Batch:
        """Raise SessionReadOnlyError."""
        del drafts, closing
        raise self._refusal()

    def accept(self, batch: Batch) -> None:
        """Raise SessionReadOnlyError."""
        del batch
        raise self._refusal()

    def append(self, drafts: Sequence[Draft], *, closing: bool = False) -> tuple[Event, ...]:
        """Raise SessionReadOnlyError."""
        del drafts, closing
        raise self._refusal()

    def _refusal(self) -> SessionReadOnlyError:
        self._check_open()
        return SessionReadOnlyError(f"session {self._session} was opened for reading", session=self._session)

    async def flush(self, up_to: int | None = None, *, timeout: float | None = None) -> int:  # noqa: ARG002
        """Give `durable`: nothing here waits for a commit."""
        self._check_open()
        check_range(0, up_to, self.tail)
        return self.durable

    def observe(self, observer: Observer) -> Callable[[], None]:  # noqa: ARG002
        """Accept an observer that will never be called."""
        self._check_open()
        return lambda: None

    def watch_durable(self, watcher: DurableWatcher) -> Callable[[], None]:
        """Call `watcher` when a refresh found more events."""
        self._check_open()
        return self._watchers.add(watcher)

    def watch_trouble(self, watcher: TroubleWatcher) -> Callable[[], None]:  # noqa: ARG002
        """Accept a watcher that will never be called."""
        self._check_open()
        return lambda: None

    def refresh(self) -> int:
        """Look for events of other processes; see `interface.Handle.refresh`. About a microsecond when nothing at all
        was committed to the store since."""
        self._check_open()
        if self._environment.last_transaction() != self._seen:
            before = self._row.tail
            self._seen, self._row = self._look(self._row.number)
            if self._row.tail > before:
                self._watchers.tell(self._row.tail)
        return self._row.tail

    async def close(self) -> None:
        """Forget the handle. Idempotent."""
        if not self._closed:
            self._closed = True
            self._watchers.clear()
            self._forget(self)

    def _read(self, first: int, last: int) -> Iterator[Event]:
        while first <= last:
            self._check_open()
            lines = self._batch(first, last, BATCH_BYTES)
            yield from decode_lines(lines, first)
            first += len(lines)

    def _batch(self, first: int, last: int, max_bytes: int, *, chunks: bool = True) -> list[bytes]:
        return committed_lines(self._environment, self._row, first, last, max_bytes, chunks=chunks)

    def _look(self, number: int | None) -> tuple[int, CatalogRow]:
        """Read the row, of the session with that number if one is given: another one may have taken its id since."""
        with self._environment.reading() as transaction:
            # What was seen is the view's own number. A writer's number is in the map for the length of a sync before views
            # begin at it: taken for seen, the last commit of a turn would be missed until there is another one.
            seen = transaction.id()
            row = catalog.find(transaction, self._environment.databases, self._session)
            if row is None or number not in (None, row.number):
                raise SessionNotFoundError(f"there is no session {self._session}", session=self._session)
            try:
                check_tail(transaction, self._environment.databases.records, row)
            except (SessionCorruptionError, SessionFormatUnsupportedError):  # what does not agree, an inspection finds
                if not self._damaged:
                    raise
                self._agreed = False
        return seen, row

    def _check_open(self) -> None:
        if self._closed:
            raise SessionHandleClosedError(f"this handle of session {self._session} was closed", session=self._session)


SLICE_BYTES: Final = 512 * 1024
"""Bytes of lines in a slice: a few milliseconds."""


def read_slices(handle: Handle, first: int, last: int, *, chunks: bool = True) -> Iterator[list[bytes]]:
    """Iterate over the lines `first` to `last` in slices. Without `chunks` lines of those may be bare; see `Handle.lines`."""
    while first <= last:
        lines = handle.lines(first, last, max_bytes=SLICE_BYTES, chunks=chunks)
        first += len(lines)
        yield lines


def read_events(handle: Handle, last: int) -> Iterator[list[Event]]:
    """Iterate over the events 0 to `last` but chunks, in slices. Raises SessionCorruptionError at a line that is no event,
    SessionFormatUnsupportedError at a foreign event that may not be skipped."""
    seq = 0
    for lines in read_slices(handle, 0, last, chunks=False):
        events = [decode_at(line, place) for place, line in enumerate(lines, seq) if not line.startswith(CHUNK)]
        for event in events:
            refuse_foreign(event)
        yield events
        seq += len(lines)
