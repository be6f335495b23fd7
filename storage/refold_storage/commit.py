"""Commits of an environment: the thread that makes them, the transaction over all sessions, and what each session puts into it.

The thread commits at once when somebody waits for a flush, else 200 ms after the oldest unwritten event (50 ms while another
process follows) or at 256 KiB; all sessions that have something go into one transaction, which is repeated after the map grew.
The store must still stand where a session's writer left it: if it does not, somebody wrote past the lease, and that session is
left out. Space that ran out means: try again later, with growing pauses, and whenever somebody flushes; nothing is lost. After
any other failure the environment cannot be trusted any more. The thread never calls into objects of the event loop; it hands
notices over with `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import lmdb
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import (
    LogError,
    LogUnwritableError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
    StorageFullError,
)
from refold_storage import catalog
from refold_storage.batch import Batch
from refold_storage.catalog import CatalogRow
from refold_storage.disk import is_full
from refold_storage.environment import Environment
from refold_storage.pending_writes import PendingWrites, Share
from refold_storage.record_keys import record_key
from refold_storage.records import Packed, Record, decode_record, pack
from refold_storage.store_format import DATA_FILE, Databases

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


class CommitOutcome(Struct, frozen=True, gc=False):
    """What the store holds of a session when the transaction has committed: its row, and its last record if a later
    commit may extend it."""

    share: Share
    row: CatalogRow
    open_run: Record | None


class LandingRefusedError(Exception):
    """One session's share must not be written; the others of the same commit can. Carries the share and the reason."""

    def __init__(self, share: Share, reason: LogUnwritableError) -> None:
        super().__init__(reason.message)
        self.share = share
        self.reason = reason


def land(transaction: Transaction, databases: Databases, share: Share) -> CommitOutcome:
    """Write a share. Raises LandingRefusedError when the store is not where this writer left it, and what lmdb raises."""
    try:
        before = catalog.find(transaction, databases, share.row.id)
        _check_unmoved(share, before)
        number = before.number if before is not None else catalog.next_number(transaction, databases)
    except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
        raise _refused(share, error.message) from None
    settled = () if share.open_run is None else share.open_run.lines
    first = share.base.tail + 1 - len(settled)
    packed = pack(first, [*settled, *share.lines], share.digests, len(settled))
    put_records(transaction, databases, number, packed)
    # Whoever archives a session needs no lease, so that flag is the store's and not the writer's.
    row = replace(share.row, number=number, archived=before is not None and before.archived)
    catalog.put(transaction, databases, row, before)
    last = packed[-1]
    return CommitOutcome(share, row, decode_record(last.first, last.value) if last.may_grow else None)


def put_records(transaction: Transaction, databases: Databases, number: int, packed: Sequence[Packed]) -> None:
    """Store records under a number, the first perhaps in place of an older one. New ones that belong at the very end of
    the database are appended, which lets LMDB fill its pages to the brim; anywhere else it leaves a part of each free."""
    with transaction.cursor(db=databases.records) as cursor:
        last = cursor.key() if cursor.last() else b""
    for record in packed:
        key = record_key(number, record.first)
        transaction.put(key, record.value, append=key > last, db=databases.records)


def _check_unmoved(share: Share, before: CatalogRow | None) -> None:
    if before is None:
        if share.base.number != 0:
            raise _refused(share, f"session {share.row.id} vanished from the store")
    elif before.number != share.base.number or before.tail != share.base.tail:
        raise _refused(
            share,
            f"session {share.row.id} ends at {before.tail} in the store, where this writer left it at "
            f"{share.base.tail}: somebody else wrote to it",
        )


def _refused(share: Share, reason: str) -> LandingRefusedError:
    return LandingRefusedError(share, LogUnwritableError(reason, session=share.row.id))


FailPoint: TypeAlias = Callable[[str], None]
"""Called at the stages of a commit, in order: `begun` (the write lock is held), `written` (not yet committed),
`committed`. What it raises counts as a failure at that stage; faults are injected here."""


def no_fault(stage: str) -> None:
    """The fail point of a store in which nothing is made to fail."""


Claim: TypeAlias = Callable[[Sequence[Share]], list[Share]]
"""Told, with the write lock held, which shares are about to be written; gives those that still should be."""


class Outcome(Struct, frozen=True):
    """What became of a commit: what landed, who was refused and why, and the failure of all others, if it failed."""

    landed: tuple[CommitOutcome, ...]
    refused: tuple[LandingRefusedError, ...]
    failure: LogError | None


def commit_shares(environment: Environment, shares: Sequence[Share], claim: Claim, fail_point: FailPoint) -> Outcome:
    """Commit `shares` in one transaction with full sync. A failure is a StorageFullError when it may succeed later, a
    LogUnwritableError when the environment is done for. Raises nothing but what ends the thread."""
    refused: list[LandingRefusedError] = []
    while True:
        try:
            landed = _transact(environment, shares, claim, fail_point)
        except LandingRefusedError as error:  # rolled back as a whole, and repeated without that session
            refused.append(error)
            shares = [share for share in shares if share is not error.share]
        except lmdb.MapFullError:
            if not environment.grow():
                failure = StorageFullError("the store has reached its largest allowed size")
                return Outcome((), tuple(refused), failure)
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits to be told
            size = sum(len(line) for share in shares for line in share.lines)
            return Outcome((), tuple(refused), meaning(error, environment, size))
        else:
            return Outcome(landed, tuple(refused), None)


def _transact(
    environment: Environment, shares: Sequence[Share], claim: Claim, fail_point: FailPoint
) -> tuple[CommitOutcome, ...]:
    with environment.writing() as transaction:
        fail_point("begun")
        landed = tuple(land(transaction, environment.databases, share) for share in claim(shares))
        fail_point("written")
    fail_point("committed")
    return landed


def meaning(error: Exception, environment: Environment, size: int) -> LogError:
    """Give what a failed transaction means that was to write about `size` bytes beside the trees: StorageFullError when
    it may succeed later, else LogUnwritableError."""
    if isinstance(error, StorageFullError | LogUnwritableError):
        return error
    full = isinstance(error, lmdb.Error | OSError) and is_full(error, environment.folder / DATA_FILE, size + _TREE_BYTES)
    if full:
        return StorageFullError(f"no space left for the log: {error}")
    # After a failed sync what the system holds of the file cannot be trusted any more, and only a new process reads it anew.
    what = f"{type(error).__name__}: {error}"
    return LogUnwritableError(
        f"the log cannot be written any more, because a commit failed ({what}); what was told to be kept is kept: end this "
        "process, look after the disk, and start again"
    )


_TREE_BYTES = 1 << 20
"""What a transaction writes beside its events, generously: pages of the trees and of the list of free pages."""


COMMIT_SECONDS: Final = 0.2
"""Longest time an accepted event waits before a commit that nobody asked for begins."""

FOLLOWED_SECONDS: Final = 0.05
"""The same where another process follows the session."""

COMMIT_BYTES: Final = 256 * 1024
"""Unwritten bytes of lines at which a commit begins without waiting."""

RETRY_SECONDS: Final = (0.5, 30.0)
"""Pause after the first commit for which there was no space, and the longest one; each is twice the one before."""


class Notice(Struct, frozen=True):
    """What became of one session's share in commit `attempt`: durable up to `seq`, or failed with `error`."""

    pending_writes: PendingWrites
    attempt: int
    seq: int
    error: LogError | None


class CommitQueue:
    """The backlogs that wait for a commit, and the thread that commits them; it starts with the first event."""

    def __init__(self, environment: Environment, delay: float, fail_point: FailPoint) -> None:
        self.environment: Final = environment
        self._delay = delay
        self.fail_point = fail_point
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._members: set[PendingWrites] = set()
        self._queued: list[PendingWrites] = []
        self._unwritten = 0
        self._due: float | None = None
        self._hurried = False
        self._stopping = False
        self._attempts = 0
        self._failures = 0
        self._thread: threading.Thread | None = None

    def join(self, pending_writes: PendingWrites) -> None:
        """Tell a backlog, until it is withdrawn, when nothing can be written any more, though none of it was on its way."""
        with self._lock:
            self._members.add(pending_writes)

    def add(self, pending_writes: PendingWrites, batch: Batch) -> None:
        """Take in an accepted batch. Cheap: the thread is woken once per pending window, not per event."""
        with self._lock:
            pending_writes.add(batch)
            self._unwritten += batch.size
            if not pending_writes.queued:
                self._queue(pending_writes)
                self._schedule(pending_writes)
            elif self._unwritten >= COMMIT_BYTES and not self._hurried and not self._failures:
                self._hurried = True
                self._wake()

    def flush_now(self) -> int:
        """Commit now what is queued. Gives the number of commits begun so far; the one asked for has a higher one."""
        with self._lock:
            self._hurried = True
            self._wake()
            return self._attempts

    def drop(self, pending_writes: PendingWrites, seq: int) -> None:
        """Let a backlog forget the events up to `seq`, which are durable."""
        with self._lock:
            pending_writes.drop(seq)

    def withdraw(self, pending_writes: PendingWrites) -> None:
        """Forget a session and free its lease: what it has not committed is lost. While its events are on their way to
        the disk the lease is kept until that is over, so that the next owner sees all of them or none."""
        with self._lock:
            self._members.discard(pending_writes)
            pending_writes.withdrawn = True
            if pending_writes.writing:
                return
        pending_writes.lease.release()

    def mark_failed(self, failure: LogUnwritableError) -> None:
        """Make the environment unusable for good and tell all who write, for a change that failed beside the commits."""
        self.environment.mark_failed(failure.message)
        with self._lock:
            notices = [Notice(pending_writes, self._attempts, -1, failure) for pending_writes in self._members]
        self._tell(notices)

    def stop(self, timeout: float) -> bool:
        """End the thread, after the commit that it is in; what is queued then is not written. Tells whether it ended
        within `timeout` seconds."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _schedule(self, pending_writes: PendingWrites) -> None:
        """Let the next commit come in time for a backlog that has something since now. A retry is not brought forward."""
        if self.environment.unusable is not None or (self._failures and self._due is not None):
            return
        delay = min(FOLLOWED_SECONDS, self._delay) if pending_writes.lease.probe.followed() else self._delay
        due = time.monotonic() + delay
        if self._due is None or due < self._due:
            self._due = due
            self._wake()

    def _queue(self, pending_writes: PendingWrites) -> None:
        if not (pending_writes.queued or pending_writes.withdrawn or pending_writes.refused):
            pending_writes.queued = True
            self._queued.append(pending_writes)

    def _wake(self) -> None:
        if self._thread is not None:
            self._changed.notify()
            return
        thread = threading.Thread(target=self._run, name="refold commit", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # none to be had now; what is accepted waits for the next one who asks
            _LOG.warning("the commits wait for a thread: %s", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        try:
            while (shares := self._next()) is not None:
                if shares:
                    outcome = commit_shares(self.environment, shares, self._claim, self.fail_point)
                    self._tell(self._conclude(shares, outcome))
        except BaseException as error:  # noqa: BLE001 - a bug: who waits, and who would, must be told that nothing comes
            _LOG.exception("the thread of the commits failed")
            self.mark_failed(
                LogUnwritableError(f"a bug in refold ended its commits: {error!r}; end this process and start again")
            )

    def _next(self) -> list[Share] | None:
        """Wait until there is something to do; give the shares of the next commit, None at the end."""
        with self._lock:
            while not self._stopping and not self._hurried:
                left = None if self._due is None else self._due - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            if self._stopping:
                return None
            self._hurried, self._due, self._unwritten = False, None, 0
            self._attempts += 1
            backlogs, self._queued = self._queued, []
            for pending_writes in backlogs:
                pending_writes.queued = False
            return [pending_writes.share() for pending_writes in backlogs if not pending_writes.withdrawn]

    def _claim(self, shares: Sequence[Share]) -> list[Share]:
        with self._lock:
            claimed = [share for share in shares if not share.pending_writes.withdrawn]
            for share in claimed:
                share.pending_writes.writing = True
            return claimed

    def _conclude(self, shares: list[Share], outcome: Outcome) -> list[Notice]:
        """Note in backlogs and queue what became of a commit; give the notices for those who wait."""
        attempt, failure = self._attempts, outcome.failure
        notices: list[Notice] = []
        with self._lock:
            for landed in outcome.landed:
                landed.share.pending_writes.committed(landed.row, landed.open_run)
                notices.append(Notice(landed.share.pending_writes, attempt, landed.row.tail, None))
            for refusal in outcome.refused:
                refusal.share.pending_writes.refused = True
                notices.append(Notice(refusal.share.pending_writes, attempt, -1, refusal.reason))
            freed = [
                share.pending_writes.lease
                for share in shares
                if share.pending_writes.writing and share.pending_writes.withdrawn
            ]
            for share in shares:
                share.pending_writes.writing = False
                if failure is not None and not share.pending_writes.refused:
                    self._queue(share.pending_writes)
                    notices.append(Notice(share.pending_writes, attempt, -1, failure))
            if isinstance(failure, LogUnwritableError):
                told = {share.pending_writes for share in shares}
                notices += [Notice(other, attempt, -1, failure) for other in self._members - told]
            self._failures = 0 if failure is None else self._failures + 1
            if isinstance(failure, StorageFullError):
                first, longest = RETRY_SECONDS
                self._due = time.monotonic() + min(first * 2 ** min(self._failures - 1, 16), longest)
        self._act_on(failure)
        for lease in freed:
            lease.release()
        return notices

    def _act_on(self, failure: LogError | None) -> None:
        if isinstance(failure, StorageFullError):
            if self._failures == 1:
                _LOG.warning("the log waits for space: %s", failure.message)
        elif failure is not None:
            self.environment.mark_failed(failure.message)
            _LOG.error("%s", failure.message)

    def _tell(self, notices: list[Notice]) -> None:
        """Hand the notices over to the event loops that their handles live in."""
        loops: defaultdict[asyncio.AbstractEventLoop, list[Notice]] = defaultdict(list)
        for notice in notices:
            loops[notice.pending_writes.loop].append(notice)
        for loop, theirs in loops.items():
            try:
                loop.call_soon_threadsafe(self._deliver, theirs)
            except RuntimeError:  # that loop was closed: nobody waits there any more
                continue

    def _deliver(self, notices: list[Notice]) -> None:
        """Tell handles what became of their events. Runs on their event loop."""
        for notice in notices:
            if notice.error is not None:
                notice.pending_writes.disappoint(notice.error, notice.attempt)
            else:
                self.drop(notice.pending_writes, notice.seq)
                notice.pending_writes.settle(notice.seq)


_LOG: Final = logging.getLogger(__name__)
