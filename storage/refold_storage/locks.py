"""Locks and notes of a store, and of those who follow a session.

A process that follows a session holds a shared lock on `<lease>.follow` for as long as it does. The owner asks now and then
whether anybody holds it, and commits sooner then. It is a courtesy: without the file followers just see events later.

Two locks are on a store as a whole. One says who has it open: a `flock` on `store.lock`, shared by every process for as long
as it has the store open, and taken alone by `compact_store`, which replaces the data file. The other one says whose turn it
is to open or close it: a `flock` on the folder itself. Where both are taken: first the one on the file, then the one on the
folder. The operating system frees all of them when a process dies, however it dies.

For messages only: who holds a lock, where the system says so (Linux does, in /proc/locks), and a note of the process that
holds the store's write lock or held it last, because LMDB does not say. Either may be out of date and decides nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from refold_protocol.errors import LogBusyError

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
        _FOLLOWED.add(self)
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


def _abandon_followed() -> None:
    for lock in list(_FOLLOWED):
        lock.abandon()


_FOLLOWED: Final[weakref.WeakSet[FollowLock]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_abandon_followed)


_LOCKS: Final = Path("/proc/locks")


def lock_holders(file: Path) -> tuple[int, ...]:
    """Give the pids of the processes that hold an `flock` on `file`, ascending; those that took it, where it was inherited."""
    try:
        status = file.stat()
        lines = _LOCKS.read_text(encoding="ascii", errors="replace").split("\n")
    except OSError:  # another system, or nothing there: nobody is known
        return ()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    found = {row[4] for row in map(str.split, lines) if row[1:2] == ["FLOCK"] and row[5:6] == [device]}
    return tuple(sorted(int(pid) for pid in found if pid.isdigit() and pid != "0"))


OCCUPANCY_FILE: Final = "store.lock"

OCCUPY_SECONDS: Final = 5.0
"""How long an opener waits for a compaction to end."""

TURN_SECONDS: Final = 20.0
"""How long who opens a store waits for those who open or close it before him."""


class StoreLock:
    """An open file that is locked. `release` frees it; so does the end of the process. A forked child lets go of it."""

    def __init__(self, file: int) -> None:
        self._file = file
        _OCCUPIED.add(self)

    def again(self) -> StoreLock:
        """Give a second hold of the same lock: it is free when both are released."""
        return StoreLock(os.dup(self._file))

    def lock(self, kind: int) -> bool:
        """Lock the file, shared or alone; False where somebody else's lock forbids it."""
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Free the lock and keep the file open."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def release(self) -> None:
        """Let go. Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class OpeningTurn:
    """The lock under which one process at a time opens or closes LMDB's environment in a folder, one object an environment.

    LMDB's own lock is not enough. An opener that is alone sets the number of the last transaction to 0 and to the true one
    only at its end; a closer that is alone destroys the mutexes. Whoever waits in LMDB's lock meanwhile finds them so when
    that process is killed, or just goes on closing, and begins to write from a page that is not the newest. At the end of a
    process Linux frees LMDB's locks before any `flock`, so nobody gets into LMDB's lock while a dying process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = StoreLock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    @contextmanager
    def taken(self, seconds: float) -> Generator[None]:
        """Have the turn within the block. Raises LogBusyError when it is somebody else's for `seconds`."""
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
        while not self._held.lock(fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                pid = next(iter(lock_holders(self._folder)), None)
                who = "another process" if pid is None else f"process {pid}"
                raise LogBusyError(f"{who} does not end opening or closing the store in {self._folder}", holder=pid)
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS)
        try:
            yield
        finally:
            self._held.unlock()

    def release(self) -> None:
        """Let go of the folder. Idempotent."""
        self._held.release()


def occupy(folder: Path, *, read_only: bool = False) -> StoreLock:
    """Say that this process has the store in `folder` open. Blocks while the store is compacted, for PATIENCE_SECONDS at
    most; raises LogBusyError then. With `read_only` no file is made: without one nothing is said."""
    deadline = time.monotonic() + OCCUPY_SECONDS
    while (held := _lock(folder, fcntl.LOCK_SH, read_only=read_only)) is None:
        if time.monotonic() >= deadline:
            raise LogBusyError(f"the store in {folder} is being compacted; try again when that is over")
        time.sleep(_PAUSE_SECONDS)
    return held


def occupy_alone(folder: Path) -> StoreLock:
    """Keep everybody else from opening the store. Raises LogBusyError when anybody has it open, this process included."""
    held = _lock(folder, fcntl.LOCK_EX)
    if held is None:
        pids = lock_holders(folder / OCCUPANCY_FILE)
        who = f" in {'process' if len(pids) == 1 else 'the processes'} {', '.join(map(str, pids))}" if pids else ""
        raise LogBusyError(
            f"the store in {folder} is open{who}; close every editor and every refold that uses it first",
            holder=pids[0] if pids else None,
        )
    return held


def _lock(folder: Path, kind: int, *, read_only: bool = False) -> StoreLock | None:
    try:
        access = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
        held = StoreLock(os.open(folder / OCCUPANCY_FILE, access | os.O_CLOEXEC, 0o600))
    except (FileNotFoundError, PermissionError):
        if not read_only:
            raise
        return StoreLock(-1)  # a copy without its locks, or somebody else's: nobody can be told
    try:
        locked = held.lock(kind)
    except BaseException:
        held.release()
        raise
    if not locked:
        held.release()
    return held if locked else None


def _release_all() -> None:
    """In a forked child: let go of inherited descriptors, which would keep the parent's lock alive."""
    for occupancy in list(_OCCUPIED):
        occupancy.release()


_OCCUPIED: Final[weakref.WeakSet[StoreLock]] = weakref.WeakSet()
_FIRST_PAUSE_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.02
os.register_at_fork(after_in_child=_release_all)


NOTE_FILE: Final = "writer.pid"


class HolderNote:
    """The note of one store. `claim` is called with the write lock held, once per commit."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        access = os.O_RDWR | os.O_CREAT
        self._file = -1 if read_only else os.open(folder / NOTE_FILE, access | os.O_CLOEXEC, 0o600)
        self._mine = b"%-19d\n" % os.getpid()

    def claim(self) -> None:
        """Write this process's id, unless it stands there already."""
        try:
            if os.pread(self._file, _BYTES, 0) != self._mine:
                os.pwrite(self._file, self._mine, 0)
        except OSError:  # a full disk, say: a missing note only makes an error message poorer
            return

    def read(self) -> int | None:
        """Give the process id of the last holder, if that is another process than this one and still there; None otherwise:
        who waits for a slow disk is not held up by itself."""
        try:
            return _alive(os.pread(self._file, _BYTES, 0))
        except OSError:  # a note that cannot be read names nobody
            return None

    def close(self) -> None:
        """Close the file; the note stays."""
        if self._file >= 0:
            os.close(self._file)


def noted_holder(folder: Path) -> int | None:
    """Give the same for the store in `folder` without making a note."""
    try:
        return _alive((folder / NOTE_FILE).read_bytes()[:_BYTES])
    except OSError:  # no note yet
        return None


def _alive(note: bytes) -> int | None:
    try:
        pid = int(note)
    except ValueError:  # no note yet, or a damaged one
        return None
    if pid == os.getpid():
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:  # it is there and belongs to somebody else
        return pid
    except (OSError, OverflowError):  # a process that is gone, or a number that is none
        return None
    return pid


_BYTES: Final = 20
