"""Handle of a session that was opened for writing: acceptance, the flush barrier, and reads that see both what
is committed and what is only accepted.

It holds the session's lease until it is closed. Everything here runs on the event loop's thread; the commit thread works
on the backlog and never on this object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from refold_protocol.errors import InvalidEventError, LogBusyError, LogError, LogUnwritableError, SessionHandleClosedError
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.events import Draft, Event
from refold_storage.batch import Batch, batch_of, check_next
from refold_storage.commit import CommitQueue
from refold_storage.damage import inspect_records
from refold_storage.interface import Access, Clock, DurableWatcher, Observer, SessionRecord, TroubleWatcher
from refold_storage.pending_writes import PendingWrites, Waiter, same_error
from refold_storage.reader import Listeners, check_range, committed_lines, decode_lines, gather_lines, walk_records
from refold_storage.records import BATCH_BYTES, Damage, Record


class WriteLimits(Struct, frozen=True):
    """Bounds of a write handle: bytes of accepted lines that may wait for a commit, and the time limit of a flush in
    seconds."""

    backlog_bytes: int
    flush_seconds: float


class WriteHandle:
    """A session, opened for writing. See `interface.Handle` for what each member promises."""

    def __init__(
        self,
        commits: CommitQueue,
        pending_writes: PendingWrites,
        clock: Clock,
        limits: WriteLimits,
        forget: Callable[[WriteHandle], None],
    ) -> None:
        self._commits = commits
        self._backlog = pending_writes
        self._clock = clock
        self._limits = limits
        self._forget = forget
        self._observers: Listeners[Sequence[Event]] = Listeners()
        self._watchers: Listeners[int] = Listeners()
        self._accepting = False
        self._closing: asyncio.Task[None] | None = None
        self._troubled: Listeners[LogError | None] = Listeners()
        pending_writes.on_durable = self._watchers.tell
        pending_writes.on_trouble = self._troubled.tell
        commits.join(pending_writes)

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._backlog.row.id

    @property
    def access(self) -> Access:
        """`write`."""
        return "write"

    @property
    def writer(self) -> WriterId | None:
        """This open's writer id."""
        return self._backlog.writer

    @property
    def tail(self) -> int:
        """Seq of the last accepted event."""
        return self._backlog.head.tail

    @property
    def durable(self) -> int:
        """Seq of the last event that is known to be on disk."""
        return self._backlog.durable

    @property
    def head_digest(self) -> bytes:
        """The chain's digest at `tail`."""
        return self._backlog.head.digest

    @property
    def trouble(self) -> LogError | None:
        """Why the last commit failed; None while all is well."""
        reason = self._commits.environment.unusable
        return self._backlog.trouble if reason is None else LogUnwritableError(reason)

    @property
    def record(self) -> SessionRecord:
        """The record as of the accepted tail."""
        return self._backlog.accepted_row().record

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """Iterate over events; see `interface.Handle.read`."""
        self._check_open()
        return self._read(first, check_range(first, last, self.tail))

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give exact lines; see `interface.Handle.lines`."""
        self._check_open()
        return gather_lines(partial(self._batch, chunks=chunks), first, check_range(first, last, self.tail), max_bytes)

    def records(self, first: int = 0) -> Iterator[Record]:
        """Iterate over committed records; see `interface.Handle.records`."""
        self._check_open()
        check_range(first, None, self.durable)
        return walk_records(self._commits.environment, self._backlog.row, first, self.durable, self._check_open)

    def inspect(self) -> Iterator[Record | Damage]:
        """Iterate over what is stored; see `interface.Handle.inspect`."""
        self._check_open()
        return inspect_records(self._commits.environment, self._backlog.row, self._check_open)

    def seal(self, drafts: Sequence[Draft], *, closing: bool = False) -> Batch:
        """Make a batch; see `interface.Handle.seal`."""
        self._check_appending()
        if self._backlog.size > self._limits.backlog_bytes and not closing:
            raise self._overflow()
        return batch_of(self._backlog.head, drafts, self._clock())

    def accept(self, batch: Batch) -> None:
        """Accept a batch; see `interface.Handle.accept`."""
        self._check_appending()
        check_next(self._backlog.head, batch)
        if not batch.events:
            return
        self._accepting = True
        try:
            self._commits.add(self._backlog, batch)
            self._observers.tell(batch.events)
        finally:
            self._accepting = False

    def append(self, drafts: Sequence[Draft], *, closing: bool = False) -> tuple[Event, ...]:
        """Seal and accept; see `interface.Handle.append`."""
        batch = self.seal(drafts, closing=closing)
        self.accept(batch)
        return batch.events

    async def flush(self, up_to: int | None = None, *, timeout: float | None = None) -> int:
        """Wait until events are durable; see `interface.Handle.flush`."""
        self._check_open()
        return await self._flush(check_range(0, up_to, self.tail), timeout)

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
        return self._troubled.add(watcher)

    def refresh(self) -> int:
        """Give `tail`: nobody else writes this session."""
        self._check_open()
        return self.tail

    async def close(self) -> None:
        """Flush, free the lease, forget the handle; see `interface.Handle.close`. It goes on when the caller is
        cancelled: the lease must not be freed before the last commit is over, nor kept for ever."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
            self._closing.add_done_callback(_retrieve)
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)

    def _check_appending(self) -> None:
        if self._closing is not None:
            self._check_open()
        if self._accepting:
            raise InvalidEventError("an append from inside another one, by an observer")

    async def _close(self) -> None:
        try:
            await self._flush(self.tail, None)
        finally:
            self._commits.withdraw(self._backlog)
            self._observers.clear()
            self._watchers.clear()
            self._troubled.clear()
            self._forget(self)

    async def _flush(self, seq: int, timeout: float | None) -> int:
        pending_writes = self._backlog
        if seq <= pending_writes.durable:
            return pending_writes.durable
        if pending_writes.refused or self._commits.environment.unusable is not None:
            raise self._unwritable()
        loop = asyncio.get_running_loop()
        seconds = self._limits.flush_seconds if timeout is None else timeout
        waiter = Waiter(seq, loop.create_future())
        pending_writes.waiters.append(waiter)
        waiter.attempt = self._commits.flush_now()
        timer = loop.call_later(seconds, self._give_up, waiter, seconds)
        try:
            await waiter.future
        finally:
            timer.cancel()
            if waiter in pending_writes.waiters:
                pending_writes.waiters.remove(waiter)
        return pending_writes.durable

    def _give_up(self, waiter: Waiter, seconds: float) -> None:
        if not waiter.future.done():
            holder = self._commits.environment.note.read()
            who = "" if holder is None else f"; process {holder} had the store's write lock last"
            error = LogBusyError(f"the log was not on disk after {seconds:g} s{who}", holder=holder, seq=waiter.seq)
            waiter.future.set_exception(error)
            self._backlog.hold_up(LogBusyError(error.message, **error.details))

    def _read(self, first: int, last: int) -> Iterator[Event]:
        while first <= last:
            self._check_open()
            at = first - self._backlog.first
            if at >= 0:
                events = self._backlog.events[at : at + min(last + 1 - first, _BATCH_EVENTS)]
                first += len(events)
                yield from events
            else:
                lines = self._batch(first, last, BATCH_BYTES)
                yield from decode_lines(lines, first)
                first += len(lines)

    def _batch(self, first: int, last: int, max_bytes: int, *, chunks: bool = True) -> list[bytes]:
        pending_writes = self._backlog
        if first < pending_writes.first:
            last = min(last, pending_writes.first - 1)
            return committed_lines(self._commits.environment, pending_writes.row, first, last, max_bytes, chunks=chunks)
        lines: list[bytes] = []
        for event in pending_writes.events[first - pending_writes.first : last + 1 - pending_writes.first]:
            max_bytes -= len(event.line)
            if lines and max_bytes < 0:
                break
            lines.append(event.line)
        return lines

    def _overflow(self) -> LogError:
        """Why nothing more is accepted: the memory for what waits is used up."""
        reason = f"{self._backlog.size} bytes of events of session {self.id} wait for the disk, and no more are taken"
        if self.trouble is not None:
            return type(self.trouble)(f"{reason}: {self.trouble.message}", **self.trouble.details)
        return LogBusyError(reason, holder=self._commits.environment.note.read())

    def _unwritable(self) -> LogError:
        return same_error(self.trouble or LogUnwritableError(f"session {self.id} cannot be written any more"))

    def _check_open(self) -> None:
        if self._closing is not None:
            raise SessionHandleClosedError(f"this handle of session {self.id} was closed", session=self.id)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Look at how closing ended, so that asyncio does not report it when the closer was cancelled meanwhile."""
    if not task.cancelled():
        task.exception()


_BATCH_EVENTS = 512
