"""Pending writes: what one session has accepted and not yet committed, the meeting place of its handle and the commit thread.

The handle adds at the end, the commit thread takes a share and writes it, and the handle drops what it was told is
durable. The commit queue's lock guards what both use; methods say who calls them and whether the lock is held. Knows
nothing of LMDB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import LogBusyError, LogError
from refold_protocol.ids import WriterId
from refold_protocol.session.events import Event
from refold_storage.batch import Batch, Head
from refold_storage.catalog import CatalogRow
from refold_storage.lease import Lease
from refold_storage.records import Record


class Share(Struct, frozen=True, gc=False):
    """What one commit writes for one session: lines from seq `base.tail + 1` on with the digests after each, and the row
    as it will be. `base` is the row that is in the store now; its number is 0 where there is none. `open_run` is the
    last record as far as it is known, if it may be extended."""

    pending_writes: PendingWrites
    base: CatalogRow
    row: CatalogRow
    open_run: Record | None
    lines: list[bytes]
    digests: list[bytes]


class Waiter:
    """Somebody who waits until the event `seq` is durable. `attempt` numbers the commits begun when the wait began: only
    a later one may disappoint it."""

    def __init__(self, seq: int, future: asyncio.Future[None]) -> None:
        self.seq = seq
        self.future = future
        self.attempt = 0


class PendingWrites:
    """The accepted, uncommitted events of one session that is open for writing."""

    def __init__(self, lease: Lease, writer: WriterId, row: CatalogRow, head: Head, open_run: Record | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.lease = lease
        self.writer = writer
        # Guarded by the queue's lock.
        self.head = head
        self.writers = row.writers
        self.events: list[Event] = []
        self.digests: list[bytes] = []
        self.first = head.tail + 1
        self.size = 0
        self.queued = False
        self.writing = False
        self.withdrawn = False
        self.refused = False
        # The commit thread's.
        self.row = row
        self.open_run = open_run
        # The event loop's.
        self.durable = head.tail
        self.trouble: LogError | None = None
        self.waiters: list[Waiter] = []
        self.on_durable: Callable[[int], None] | None = None
        self.on_trouble: Callable[[LogError | None], None] | None = None

    def add(self, batch: Batch) -> None:
        """Take in an accepted batch. Event loop, lock held."""
        if not self.writers or self.writers[-1][0] != self.writer:
            self.writers = (*self.writers, (self.writer, batch.events[0].seq))
        self.events.extend(batch.events)
        self.digests.extend(batch.digests)
        self.size += batch.size
        self.head = batch.head

    def share(self) -> Share:
        """Give everything that is not committed. Commit thread, lock held."""
        at = self.row.tail + 1 - self.first
        lines = [event.line for event in self.events[at:]]
        return Share(self, self.row, self.accepted_row(), self.open_run, lines, self.digests[at:])

    def accepted_row(self) -> CatalogRow:
        """Give the session's row as of the accepted tail. Event loop, or commit thread with the lock held."""
        head = self.head
        return replace(self.row, tail=head.tail, head_digest=head.digest.hex(), writers=self.writers, summary=head.summary)

    def committed(self, row: CatalogRow, open_run: Record | None) -> None:
        """Note what is in the store now. Commit thread, lock held."""
        self.row = row
        self.open_run = open_run

    def drop(self, seq: int) -> None:
        """Forget the events up to `seq`, which are durable. Event loop, lock held."""
        count = seq + 1 - self.first
        if count > 0:
            self.size -= sum(len(event.line) for event in self.events[:count])
            del self.events[:count]
            del self.digests[:count]
            self.first = seq + 1

    def settle(self, seq: int) -> None:
        """Tell waiters and watchers that the events up to `seq` are durable. Event loop."""
        self.durable = seq
        cleared, self.trouble = self.trouble is not None, None
        for waiter in list(self.waiters):
            if waiter.seq <= seq:
                self.waiters.remove(waiter)
                if not waiter.future.done():
                    waiter.future.set_result(None)
        if self.on_durable is not None:
            self.on_durable(seq)
        if cleared and self.on_trouble is not None:
            self.on_trouble(None)

    def hold_up(self, error: LogBusyError) -> None:
        """Tell watchers that the disk is waited for too long, unless they know of worse. What waits may still land. Event
        loop."""
        if self.trouble is None:
            self.trouble = error
            if self.on_trouble is not None:
                self.on_trouble(error)

    def disappoint(self, error: LogError, attempt: int) -> None:
        """Tell watchers, and the waiters of commit `attempt`, that it failed. Event loop."""
        self.trouble = error
        for waiter in list(self.waiters):
            if waiter.attempt < attempt:
                self.waiters.remove(waiter)
                if not waiter.future.done():
                    waiter.future.set_exception(same_error(error))
        if self.on_trouble is not None:
            self.on_trouble(error)


def same_error(error: LogError) -> LogError:
    """Give a fresh error that says the same: one object raised in two tasks would mix their tracebacks."""
    return type(error)(error.message, **error.details)
