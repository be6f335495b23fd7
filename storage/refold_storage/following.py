"""Owns how a process that follows a session makes itself known to the one that writes it: a shared lock on `<lease>.follow`.

The follower holds it for as long as it follows, and the operating system frees it when the process dies; the owner asks
now and then whether anybody holds it, and commits sooner then. It is a courtesy and decides nothing: without the file
followers just see events later. Knows nothing of logs.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

PROBE_SECONDS: Final = 1.0
"""How long an answer about followers holds."""

RETRY_SECONDS: Final = 0.025
"""When a follower tries again whose lock met the owner's question."""


def follow_file(lease: Path) -> Path:
    """Give the file whose shared lock says that somebody follows, beside the lease's own."""
    return lease.with_suffix(".follow")


class FollowProbe:
    """The owner's question: does anybody follow? Asked of the operating system once in PROBE_SECONDS at most."""

    def __init__(self, file: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._now = now
        self._asked: float | None = None
        self._answer = False

    def followed(self) -> bool:
        """Tell whether a process follows, as of the last PROBE_SECONDS."""
        now = self._now()
        if self._asked is None or now - self._asked >= PROBE_SECONDS:
            self._asked, self._answer = now, _is_shared(self._file)
        return self._answer


class FollowLock:
    """A follower's lock, taken at once or soon; `release` frees it. Belongs to the event loop's thread."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self._file = -1
        self._timer: asyncio.TimerHandle | None = None
        _HELD.add(self)
        self._take()

    @property
    def held(self) -> bool:
        """Whether the owner can see it."""
        return self._file >= 0

    def release(self) -> None:
        """Follow no longer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the descriptor: also in a forked child, which would keep the lock alive."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _take(self) -> None:
        try:
            self._file = _shared(self._path)
        except BlockingIOError:  # the owner is asking right now, which takes an instant
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._take)
        except OSError:  # a full disk, say: events are seen a little later
            return


def _shared(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BaseException:
        os.close(file)
        raise
    return file


def _is_shared(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # nobody ever followed, mostly
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock to be had: nobody can be seen, and the batch that asked is accepted already
        return False
    finally:
        os.close(file)
    return False


def _abandon_all() -> None:
    for lock in list(_HELD):
        lock.abandon()


_HELD: Final[weakref.WeakSet[FollowLock]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_abandon_all)
