"""Owns what happens to sessions as a whole in the LMDB store: fork, deletion, archiving, import, counting anew.

Each takes the lease that it needs and makes its change in a transaction of its own. What has begun is finished even when
its caller is cancelled, and before the store is closed: a lease must not be freed in the middle. Knows no open handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from refold_protocol.errors import RefoldError, SessionAlreadyExistsError, SessionAlreadyOwnedError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_storage import catalog
from refold_storage.catalog import SessionRow
from refold_storage.change import Work, change
from refold_storage.commit import CommitQueue
from refold_storage.delete import delete
from refold_storage.fork import fork
from refold_storage.interface import NewSession, Recount, SessionRecord
from refold_storage.lease import Lease, Leases
from refold_storage.recount import rebuild_catalogue
from refold_storage.transfer import Transfer

T = TypeVar("T")


class SessionChanges:
    """The changes of one open store. `seconds` is how long each waits for the store's write lock."""

    def __init__(self, commits: CommitQueue, leases: Leases, seconds: float) -> None:
        self._commits = commits
        self._leases = leases
        self._seconds = seconds
        self._running: set[asyncio.Future[Any]] = set()

    async def fork(self, parent: SessionId, at: int, session: NewSession) -> SessionRecord:
        """Make a fork; see `interface.Store.fork`."""
        return await self._whole(self._fork(parent, at, catalog.empty_row(session)))

    async def delete(self, session: SessionId) -> None:
        """Delete a session; see `interface.Store.delete`."""
        await self._whole(self._delete(session))

    async def set_archived(self, session: SessionId, archived: bool) -> SessionRecord:
        """Set or take away the archived flag; see `interface.Store.set_archived`."""
        row = await self._whole(self._change(partial(catalog.mark_archived, session=session, archived=archived)))
        return row.record

    async def import_session(self, record: SessionRecord, lines: Iterable[bytes]) -> SessionRecord:
        """Make a session of exact lines; see `interface.Store.import_session`."""
        transfer = Transfer(self._commits, self._seconds, record)
        if self.row(record.id) is not None:
            raise exists_already(record.id)
        lease = await self.reserve(record.id)
        try:
            imported = await transfer.run(lines)
        except BaseException:
            await self._whole(_undone(transfer, lease))
            raise
        lease.release()
        return imported

    async def rebuild_catalogue(
        self, found: Sequence[SessionId | RefoldError], progress: Callable[[int, int], None]
    ) -> Recount:
        """Rebuild the caches of the sessions that a survey `found`; see `interface.Store.rebuild_catalogue`."""
        return await rebuild_catalogue(self._commits, self._leases, self._seconds, found, progress)

    async def finish(self) -> None:
        """Wait until nothing is under way any more."""
        if self._running:
            await asyncio.wait(self._running)

    async def reserve(self, session: SessionId) -> Lease:
        """Take the lease of a session that is to be made. Raises SessionAlreadyExistsError when somebody holds it."""
        try:
            return await self._leases.take(session)
        except SessionAlreadyOwnedError:
            raise exists_already(session) from None

    def row(self, session: SessionId) -> SessionRow | None:
        """Give the row of a session, None where there is none."""
        environment = self._commits.environment
        with environment.reading() as transaction:
            return catalog.find(transaction, environment.databases, session)

    async def _fork(self, parent: SessionId, at: int, empty: SessionRow) -> SessionRecord:
        if self.row(parent) is None:  # asked first, so that no lock file appears for nothing
            raise unknown(parent)
        lease = await self.reserve(empty.id)
        try:
            return (await self._change(partial(fork, parent=parent, at=at, empty=empty))).record
        finally:
            lease.release()

    async def _delete(self, session: SessionId) -> None:
        if self.row(session) is None:
            raise unknown(session)
        lease = await self._leases.take(session)
        try:
            await self._change(partial(delete, session=session))
        finally:
            lease.release()

    async def _change(self, work: Work[T]) -> T:
        return await change(self._commits, work, self._seconds)

    async def _whole(self, steps: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(steps)
        self._running.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it when the caller was cancelled meanwhile


async def _undone(transfer: Transfer, lease: Lease) -> None:
    try:
        await transfer.undo()
    finally:
        lease.release()


def unknown(session: SessionId) -> SessionNotFoundError:
    """Give the error that says that there is no such session."""
    return SessionNotFoundError(f"there is no session {session}", session=session)


def exists_already(session: SessionId) -> SessionAlreadyExistsError:
    """Give the error that says that there is such a session."""
    return SessionAlreadyExistsError(f"there is a session {session} already", session=session)
