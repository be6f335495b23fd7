"""Right to write a session: one lock file per session, `leases/<first two>/<sha256 of the id>.lock`.

The lock is `flock`'s, so the operating system frees it when its holder dies, however it dies. The file says who holds it,
for error messages, and is never unlinked while the store is in use: a second owner could lock a new file beside the old
one. Knows nothing of logs.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import weakref
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from refold_protocol.errors import LogUnwritableError, SessionAlreadyOwnedError, StorageFullError
from refold_protocol.ids import SessionId
from refold_storage.disk import FULL_ERRNOS
from refold_storage.interface import Clock
from refold_storage.locks import FollowLock, FollowProbe, follow_file

PATIENCE_SECONDS: Final = 0.05
"""How long an opener goes on trying: a reader that only asks whether somebody owns the session holds the lock for an
instant too."""


class Holder(Struct, frozen=True, gc=False):
    """Who holds a lease: process id, since when (epoch ms), on which machine, and the program's own name."""

    pid: int
    since: int
    host: str
    client: str


class Holding(Struct, frozen=True, gc=False, omit_defaults=True):
    """A lease that is held right now: `name` is its file's, which `lease_name` gives for a session; `holder` is None
    where the file says nothing."""

    name: str
    holder: Holder | None = None


class Lease:
    """A held lease. `release` frees it; so does the end of the process. `probe` tells whether others follow the session."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self.probe: Final = FollowProbe(follow_file(path))
        _HELD.add(self)

    def release(self) -> None:
        """Free the lease. Idempotent; may be called from any thread."""
        file, self._file = self._file, -1
        if file < 0:
            return
        try:
            os.ftruncate(file, 0)  # an unheld lease names nobody; cutting needs no space on a full disk
        except OSError:  # a disk that takes nothing any more: the name in a free lease is never shown
            pass
        finally:
            os.close(file)

    def abandon(self) -> None:
        """In a forked child: let go of the inherited descriptor, which would keep the parent's lease alive."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class Leases:
    """The leases of one store."""

    def __init__(self, store: Path, clock: Clock, client: str) -> None:
        self._folder = store / "leases"
        self._clock = clock
        self._client = client

    def path(self, session: SessionId) -> Path:
        """Give the lock file of a session, whether or not it exists."""
        name = lease_name(session)
        return self._folder / name[:2] / f"{name}.lock"

    async def take(self, session: SessionId) -> Lease:
        """Take the lease, trying for PATIENCE_SECONDS. Raises SessionAlreadyOwnedError, which names the holder."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while (lease := self._try(session)) is None:
            if loop.time() >= deadline:
                raise self._owned(session)
            await asyncio.sleep(PATIENCE_SECONDS / 10)
        return lease

    def is_held(self, session: SessionId) -> bool:
        """Tell whether somebody, in this process or another, holds the lease right now. Raises LogUnwritableError when that
        cannot be found out, for want of descriptors, say."""
        try:
            return _is_locked(self.path(session))
        except OSError as error:
            raise LogUnwritableError(f"the lease of session {session} cannot be looked at: {error.strerror}") from None

    def holder(self, session: SessionId) -> Holder | None:
        """Give what the lock file says about its holder; None when it says nothing."""
        return _signature(self.path(session))

    def follow(self, session: SessionId) -> FollowLock:
        """Let whoever writes the session know that this process follows it, until the lock is released."""
        return FollowLock(follow_file(self.path(session)))

    def _try(self, session: SessionId) -> Lease | None:
        path = self.path(session)
        try:
            return self._lock(path)
        except OSError as error:
            if error.errno in FULL_ERRNOS:
                raise StorageFullError(f"no space left for the lease of session {session}") from None
            raise LogUnwritableError(f"the lease of session {session} cannot be taken: {error.strerror}") from None

    def _lock(self, path: Path) -> Lease | None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(file, path):  # swept between opening and locking: this lock protects nothing
                os.close(file)
                return None
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        self._sign(file)
        return Lease(file, path)

    def _sign(self, file: int) -> None:
        holder = Holder(os.getpid(), self._clock(), socket.gethostname(), self._client)
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, msgspec.json.encode(holder), 0)
        except OSError:  # a full disk: the lease holds all the same, it is just anonymous
            return

    def _owned(self, session: SessionId) -> SessionAlreadyOwnedError:
        holder = self.holder(session)
        if holder is None:
            return SessionAlreadyOwnedError(f"another process writes session {session}; {_WAY_OUT}", session=session)
        return SessionAlreadyOwnedError(
            f"process {holder.pid} on {holder.host} ({holder.client}) writes session {session}; {_WAY_OUT}",
            session=session,
            pid=holder.pid,
            since=holder.since,
            host=holder.host,
            client=holder.client,
        )


def lease_name(session: SessionId) -> str:
    """Give the name of a session's lock file, without its ending."""
    return sha256(session.encode("utf-8", "surrogatepass")).hexdigest()


def holdings(store: Path) -> tuple[Holding, ...]:
    """Give the leases of the store in that folder which are held right now, by whatever process, in the order of their
    names; none where there is no store. Also those of sessions that have nothing on disk yet. Opens every lock file once."""
    held = (path for path in sorted((store / "leases").glob("*/*.lock")) if _is_locked(path))
    return tuple(Holding(path.stem, _signature(path)) for path in held)


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:  # somebody else's: it cannot be taken here either, whether or not they hold it
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _signature(path: Path) -> Holder | None:
    try:
        return _DECODER.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):  # between locking and writing, or written on a full disk
        return None


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _abandon_all() -> None:
    for lease in list(_HELD):
        lease.abandon()


_WAY_OUT: Final = "read or fork it meanwhile, or close it there"
_HELD: Final[weakref.WeakSet[Lease]] = weakref.WeakSet()
_DECODER: Final = msgspec.json.Decoder(Holder)
os.register_at_fork(after_in_child=_abandon_all)
