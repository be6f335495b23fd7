"""Owns the commit thread of an environment: when accepted events are written, and who is told what became of them.

It commits at once when somebody waits for a flush, else 200 ms after the oldest unwritten event (50 ms while another
process follows) or at 256 KiB; all sessions that have something go into one transaction. When space ran out nothing is
lost: it tries again with growing pauses, and whenever somebody flushes. After any other failure the environment is
spoilt. The thread never calls into objects of the event loop; it hands notices over with `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from refold_protocol.errors import LogError, LogUnwritableError, StorageFullError
from refold_storage.accept import Batch
from refold_storage.backlog import Backlog, Share
from refold_storage.environment import Environment
from refold_storage.transact import FailPoint, Outcome, commit_shares

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

    backlog: Backlog
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
        self._members: set[Backlog] = set()
        self._queued: list[Backlog] = []
        self._unwritten = 0
        self._due: float | None = None
        self._hurried = False
        self._stopping = False
        self._attempts = 0
        self._failures = 0
        self._thread: threading.Thread | None = None

    def join(self, backlog: Backlog) -> None:
        """Tell a backlog, until it is withdrawn, when nothing can be written any more, though none of it was on its way."""
        with self._lock:
            self._members.add(backlog)

    def add(self, backlog: Backlog, batch: Batch) -> None:
        """Take in an accepted batch. Cheap: the thread is woken once per pending window, not per event."""
        with self._lock:
            backlog.add(batch)
            self._unwritten += batch.size
            if not backlog.queued:
                self._queue(backlog)
                self._schedule(backlog)
            elif self._unwritten >= COMMIT_BYTES and not self._hurried and not self._failures:
                self._hurried = True
                self._wake()

    def hurry(self) -> int:
        """Commit now what is queued. Gives the number of commits begun so far; the one asked for has a higher one."""
        with self._lock:
            self._hurried = True
            self._wake()
            return self._attempts

    def drop(self, backlog: Backlog, seq: int) -> None:
        """Let a backlog forget the events up to `seq`, which are durable."""
        with self._lock:
            backlog.drop(seq)

    def withdraw(self, backlog: Backlog) -> None:
        """Forget a session and free its lease: what it has not committed is lost. While its events are on their way to
        the disk the lease is kept until that is over, so that the next owner sees all of them or none."""
        with self._lock:
            self._members.discard(backlog)
            backlog.withdrawn = True
            if backlog.writing:
                return
        backlog.lease.release()

    def spoil(self, failure: LogUnwritableError) -> None:
        """Make the environment unusable for good and tell all who write, for a change that failed beside the commits."""
        self.environment.spoil(failure.message)
        with self._lock:
            notices = [Notice(backlog, self._attempts, -1, failure) for backlog in self._members]
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

    def _schedule(self, backlog: Backlog) -> None:
        """Let the next commit come in time for a backlog that has something since now. A retry is not brought forward."""
        if self.environment.unusable is not None or (self._failures and self._due is not None):
            return
        delay = min(FOLLOWED_SECONDS, self._delay) if backlog.lease.probe.followed() else self._delay
        due = time.monotonic() + delay
        if self._due is None or due < self._due:
            self._due = due
            self._wake()

    def _queue(self, backlog: Backlog) -> None:
        if not (backlog.queued or backlog.withdrawn or backlog.refused):
            backlog.queued = True
            self._queued.append(backlog)

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
            self.spoil(LogUnwritableError(f"a bug in refold ended its commits: {error!r}; end this process and start again"))

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
            for backlog in backlogs:
                backlog.queued = False
            return [backlog.share() for backlog in backlogs if not backlog.withdrawn]

    def _claim(self, shares: Sequence[Share]) -> list[Share]:
        with self._lock:
            claimed = [share for share in shares if not share.backlog.withdrawn]
            for share in claimed:
                share.backlog.writing = True
            return claimed

    def _conclude(self, shares: list[Share], outcome: Outcome) -> list[Notice]:
        """Note in backlogs and queue what became of a commit; give the notices for those who wait."""
        attempt, failure = self._attempts, outcome.failure
        notices: list[Notice] = []
        with self._lock:
            for landed in outcome.landed:
                landed.share.backlog.committed(landed.row, landed.open_run)
                notices.append(Notice(landed.share.backlog, attempt, landed.row.tail, None))
            for refusal in outcome.refused:
                refusal.share.backlog.refused = True
                notices.append(Notice(refusal.share.backlog, attempt, -1, refusal.reason))
            freed = [share.backlog.lease for share in shares if share.backlog.writing and share.backlog.withdrawn]
            for share in shares:
                share.backlog.writing = False
                if failure is not None and not share.backlog.refused:
                    self._queue(share.backlog)
                    notices.append(Notice(share.backlog, attempt, -1, failure))
            if isinstance(failure, LogUnwritableError):
                told = {share.backlog for share in shares}
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
            self.environment.spoil(failure.message)
            _LOG.error("%s", failure.message)

    def _tell(self, notices: list[Notice]) -> None:
        """Hand the notices over to the event loops that their handles live in."""
        loops: defaultdict[asyncio.AbstractEventLoop, list[Notice]] = defaultdict(list)
        for notice in notices:
            loops[notice.backlog.loop].append(notice)
        for loop, theirs in loops.items():
            try:
                loop.call_soon_threadsafe(self._deliver, theirs)
            except RuntimeError:  # that loop was closed: nobody waits there any more
                continue

    def _deliver(self, notices: list[Notice]) -> None:
        """Tell handles what became of their events. Runs on their event loop."""
        for notice in notices:
            if notice.error is not None:
                notice.backlog.disappoint(notice.error, notice.attempt)
            else:
                self.drop(notice.backlog, notice.seq)
                notice.backlog.settle(notice.seq)


_LOG: Final = logging.getLogger(__name__)
