"""Session of the in-memory double: its committed log, and the handle of one who has it open.

One handle class serves both accesses, because there is nothing to be careful about here: no thread, no disk, no other
process. What it must share with the real handles is behaviour, and the conformance suite says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from refold_protocol.errors import (
    InvalidEventError,
    LogError,
    LogUnwritableError,
    SessionHandleClosedError,
    SessionNotFoundError,
    SessionReadOnlyError,
    StorageFullError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.events import Draft, Event
from refold_storage.batch import EMPTY_HEAD, Batch, Head, batch_of, check_next
from refold_storage.catalog import CatalogRow
from refold_storage.commit import FailPoint
from refold_storage.interface import Access, Clock, DurableWatcher, Observer, SessionRecord, TroubleWatcher
from refold_storage.pending_writes import same_error
from refold_storage.reader import Listeners, check_range
from refold_storage.records import MAX_EVENTS, Damage, Record, run_of


class Medium:
    """What all sessions of one store share: the clock, the fault injection, and whether writing is over for good."""

    def __init__(self, clock: Clock, backlog_bytes: int, fail_point: FailPoint) -> None:
        self.clock = clock
        self.backlog_bytes = backlog_bytes
        self.fail_point = fail_point
        self.unusable: LogUnwritableError | None = None
        self.commits = 0
        self.broken: Listeners[LogError] = Listeners()

    def check_usable(self) -> None:
        """Raise LogUnwritableError once a commit failed for good."""
        if self.unusable is not None:
            raise same_error(self.unusable)

    def commit(self) -> None:
        """Pass the stages of a commit. Raises what the fail point makes of it, and LogUnwritableError ever after one."""
        self.check_usable()
        try:
            self.fail_point("begun")
            self.fail_point("written")
        except LogUnwritableError as error:
            self.unusable = error
            self.broken.tell(error)
            raise
        self.commits += 1


class MemoryLog:
    """What a crash would leave of one session: its row, its events in order, the chain's digest after each."""

    def __init__(self, row: CatalogRow) -> None:
        self.row = row
        self.head: Head = EMPTY_HEAD
        self.events: list[Event] = []
        self.digests: list[bytes] = []
        self.deleted = False

    def check_stored(self) -> None:
        """Raise SessionNotFoundError when the session was deleted."""
        if self.deleted:
            raise SessionNotFoundError(f"session {self.row.id} was deleted", session=self.row.id)


class MemoryHandle:
    """A session, opened. See `interface.Handle` for what each member promises."""

    def __init__(
        self,
        medium: Medium,
        log: MemoryLog,
        writer: WriterId | None,
        on_commit: Callable[[MemoryLog], None],
        on_close: Callable[[MemoryHandle], None],
    ) -> None:
        self.log = log
        self._medium = medium
        self._writer: WriterId | None = writer
        self._on_commit = on_commit
        self._on_close = on_close
        self._head = log.head
        self._row = log.row
        self._durable = log.head.tail
        self._events: list[Event] = []
        self._digests: list[bytes] = []
        self._size = 0
        self._observers: Listeners[Sequence[Event]] = Listeners()
        self._watchers: Listeners[int] = Listeners()
        self._troubled: Listeners[LogError | None] = Listeners()
        self._stop_broken = medium.broken.add(self._troubled.tell)
        self._accepting = False
        self._trouble: LogError | None = None
        self._closed = False

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._row.id

    @property
    def access(self) -> Access:
        """Whether this handle may append."""
        return "read" if self._writer is None else "write"

    @property
    def writer(self) -> WriterId | None:
        """This open's writer id; None on a read handle."""
        return self._writer

    @property
    def tail(self) -> int:
        """Seq of the last event that this handle can read."""
        return self._head.tail

    @property
    def durable(self) -> int:
        """Seq of the last event that `after_crash` would keep, as far as this handle knows."""
        return self._durable

    @property
    def head_digest(self) -> bytes:
        """The chain's digest at `tail`."""
        return self._head.digest

    @property
    def trouble(self) -> LogError | None:
        """Why the last flush failed; None while all is well."""
        return self._medium.unusable or self._trouble

    @property
    def record(self) -> SessionRecord:
        """The record as of the accepted tail, or of the last refresh."""
        return self._row.record

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """Iterate over events; see `interface.Handle.read`."""
        self._check_open()
        return self._read(first, check_range(first, last, self.tail))

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give exact lines, chunks too; see `interface.Handle.lines`."""
        del chunks
        self._check_open()
        lines: list[bytes] = []
        size = 0
        for event in self._read(first, check_range(first, last, self.tail)):
            size += len(event.line)
            if lines and max_bytes is not None and size > max_bytes:
                break
            lines.append(event.line)
        return lines

    def records(self, first: int = 0) -> Iterator[Record]:
        """Iterate over the committed log in runs; see `interface.Handle.records`."""
        self._check_open()
        check_range(first, None, self._durable)
        return self._records(first - first % MAX_EVENTS)

    def inspect(self) -> Iterator[Record | Damage]:
        """Iterate over the committed log in runs; nothing here is ever damaged."""
        return self.records()

    def seal(self, drafts: Sequence[Draft], *, closing: bool = False) -> Batch:
        """Make a batch; see `interface.Handle.seal`."""
        self._check_appending()
        if self._size > self._medium.backlog_bytes and self.trouble is not None and not closing:
            raise type(self.trouble)(f"{self._size} bytes of events wait, and no more are taken: {self.trouble.message}")
        return batch_of(self._head, drafts, self._medium.clock())

    def accept(self, batch: Batch) -> None:
        """Accept a batch; see `interface.Handle.accept`."""
        self._check_appending()
        check_next(self._head, batch)
        if not batch.events:
            return
        self._accepting = True
        try:
            self._take_in(batch)
            self._observers.tell(batch.events)
        finally:
            self._accepting = False

    def append(self, drafts: Sequence[Draft], *, closing: bool = False) -> tuple[Event, ...]:
        """Seal and accept; see `interface.Handle.append`."""
        batch = self.seal(drafts, closing=closing)
        self.accept(batch)
        return batch.events

    async def flush(self, up_to: int | None = None, *, timeout: float | None = None) -> int:
        """Make accepted events durable; see `interface.Handle.flush`. It never takes time, so `timeout` never runs out."""
        self._check_open()
        if check_range(0, up_to, self.tail) > self._durable:
            self._commit()
            await asyncio.sleep(0)
        return self._durable

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` after each accepted batch; give the function that stops it."""
        self._check_open()
        return self._observers.add(observer)

    def watch_durable(self, watcher: DurableWatcher) -> Callable[[], None]:
        """Call `watcher` whenever `durable` rose; give the function that stops it."""
        self._check_open()
        return self._watchers.add(watcher)

    def watch_trouble(self, watcher: TroubleWatcher) -> Callable[[], None]:
        """Call `watcher` when commits fail and succeed again; see `interface.Handle.watch_trouble`."""
        self._check_open()
        return self._troubled.add(watcher) if self._writer is not None else lambda: None

    def refresh(self) -> int:
        """On a read handle: look for what was committed since; give the tail."""
        self._check_open()
        self.log.check_stored()
        if self._writer is None:
            before = self._durable
            self._head, self._row, self._durable = self.log.head, self.log.row, self.log.head.tail
            if self._durable > before:
                self._watchers.tell(self._durable)
        return self.tail

    async def close(self) -> None:
        """Flush, free the session, forget the handle. Idempotent; a flush that fails is raised after that."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._events:
                self._commit()
        finally:
            self._observers.clear()
            self._watchers.clear()
            self._troubled.clear()
            self._stop_broken()
            self._on_close(self)

    def _check_appending(self) -> None:
        self._check_open()
        if self._writer is None:
            raise SessionReadOnlyError(f"session {self.id} was opened for reading", session=self.id)
        if self._accepting:
            raise InvalidEventError("an append from inside another one, by an observer")

    def _take_in(self, batch: Batch) -> None:
        self._events.extend(batch.events)
        self._digests.extend(batch.digests)
        self._size += batch.size
        self._head = batch.head
        writers = self._row.writers
        if self._writer is not None and (not writers or writers[-1][0] != self._writer):
            writers = (*writers, (self._writer, batch.events[0].seq))
        head = batch.head
        self._row = replace(self._row, tail=head.tail, head_digest=head.digest.hex(), writers=writers, summary=head.summary)

    def _commit(self) -> None:
        try:
            self._medium.commit()
        except StorageFullError as error:
            self._trouble = error
            self._troubled.tell(error)
            raise
        self.log.events += self._events
        self.log.digests += self._digests
        self.log.head, self.log.row = self._head, replace(self._row, archived=self.log.row.archived)
        self._events, self._digests, self._size = [], [], 0
        cleared, self._durable, self._trouble = self._trouble is not None, self.tail, None
        self._on_commit(self.log)
        self._row = self.log.row
        self._watchers.tell(self._durable)
        if cleared:
            self._troubled.tell(None)

    def _read(self, first: int, last: int) -> Iterator[Event]:
        for seq in range(first, last + 1):
            self._check_open()
            at = seq - len(self.log.events)
            if at < 0 or self._writer is None:
                self._medium.check_usable()
                self.log.check_stored()
                yield self.log.events[seq]
            else:
                yield self._events[at]

    def _records(self, first: int) -> Iterator[Record]:
        for at in range(first, self._durable + 1, MAX_EVENTS):
            self._check_open()
            self._medium.check_usable()
            self.log.check_stored()
            events = self.log.events[at : min(at + MAX_EVENTS, self._durable + 1)]
            yield run_of(at, tuple(event.line for event in events), self.log.digests[at + len(events) - 1])

    def _check_open(self) -> None:
        if self._closed:
            raise SessionHandleClosedError(f"this handle of session {self.id} was closed", session=self.id)
