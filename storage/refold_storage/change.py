"""Owns changes of the store that are no commit of a log, as a fork or a deletion: each in one transaction with full sync,
in a thread of its own, because it may have to wait for the store's write lock.

What the work refuses (a RefoldError) rolls the change back and is raised. When space ran out it may be tried again. After
any other failure the environment is spoilt, as after a failed commit. Knows nothing of what is changed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import lmdb

from refold_protocol.errors import LogBusyError, LogUnwritableError, RefoldError, StorageFullError
from refold_storage.commit import CommitQueue
from refold_storage.environment import Environment
from refold_storage.format import Databases
from refold_storage.transact import FailPoint, meaning

T = TypeVar("T")

Work: TypeAlias = "Callable[[lmdb.Transaction[bytes], Databases], T]"
"""Makes a change inside the transaction and gives its result. It may be repeated: after the map grew."""


async def change(commits: CommitQueue, work: Work[T], seconds: float, size: int = 0) -> T:
    """Do `work`, which writes about `size` bytes, in one transaction and give its result once that is on the disk.

    Raises what `work` refuses; LogBusyError when another process holds the write lock for longer than `seconds`, and
    nothing happens then; StorageFullError; LogUnwritableError. A caller who is cancelled before the work began prevents
    it, later not any more.
    """
    loop = asyncio.get_running_loop()
    single = _Change(commits, work, size, loop)
    threading.Thread(target=single.run, name="refold change", daemon=True).start()
    timer = loop.call_later(seconds, single.give_up, seconds)
    try:
        return await single.result
    finally:
        timer.cancel()
        single.abandon()


class _AbandonedError(Exception):
    """Nobody waits for the change any more, and it has not begun."""


class _Change(Generic[T]):
    def __init__(self, commits: CommitQueue, work: Work[T], size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.result: Final[asyncio.Future[T]] = loop.create_future()
        self._commits: Final = commits
        self._environment: Final[Environment] = commits.environment
        self._fail_point: FailPoint = commits.fail_point
        self._work = work
        self._size = size
        self._loop = loop
        self._lock = threading.Lock()
        self._begun = False
        self._abandoned = False

    def abandon(self) -> bool:
        """Prevent the change if it has not begun. Tells whether it had not."""
        with self._lock:
            self._abandoned = self._abandoned or not self._begun
            return self._abandoned

    def give_up(self, seconds: float) -> None:
        """The time is over: disappoint the waiter, unless the change has begun and will be over soon."""
        if self.abandon() and not self.result.done():
            holder = self._environment.note.read()
            who = "" if holder is None else f" by process {holder}"
            error = LogBusyError(f"the store's write lock was held{who} for {seconds:g} s; nothing was changed", holder=holder)
            self.result.set_exception(error)

    def run(self) -> None:
        """Make the change and hand over what became of it. Runs in the thread."""
        try:
            told = partial(self._succeed, self._transact())
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits to be told
            told = partial(self._fail, self._understood(error))
        try:
            self._loop.call_soon_threadsafe(told)
        except RuntimeError:  # that loop was closed: nobody waits there any more
            return

    def _transact(self) -> T:
        while True:
            try:
                with self._environment.writing() as transaction:
                    self._begin()
                    self._fail_point("begun")
                    result = self._work(transaction, self._environment.databases)
                    self._fail_point("written")
            except lmdb.MapFullError:
                if not self._environment.grow():
                    raise StorageFullError("the store has reached its largest allowed size") from None
            else:
                self._fail_point("committed")
                return result

    def _begin(self) -> None:
        with self._lock:
            if self._abandoned:
                raise _AbandonedError
            self._begun = True

    def _understood(self, error: Exception) -> Exception:
        if isinstance(error, RefoldError | _AbandonedError) and not isinstance(error, LogUnwritableError):
            return error
        understood = meaning(error, self._environment, self._size)
        if isinstance(understood, LogUnwritableError):
            self._commits.spoil(understood)
        return understood

    def _succeed(self, result: T) -> None:
        if not self.result.done():
            self.result.set_result(result)

    def _fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)
