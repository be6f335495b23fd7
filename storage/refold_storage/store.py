"""Changes of whole sessions in the LMDB store: fork, deletion, archiving, import, counting anew.

Each takes the lease that it needs and makes its change in a transaction of its own. What has begun is finished even when
its caller is cancelled, and before the store is closed: a lease must not be freed in the middle. Knows no open handle.

Sessions of a store in LMDB: creating, opening, finding and listing them.

It only puts parts together: leases say who may write, the commit thread writes, handles read. All calls belong to the
event loop's thread. How a store is opened is `lmdb_store.py`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from refold_protocol.errors import (
    LogUnwritableError,
    RefoldError,
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionNotFoundError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import FORMAT_VERSION
from refold_storage import catalog
from refold_storage.batch import EMPTY_HEAD, Head
from refold_storage.catalog import CatalogRow, counted_summary
from refold_storage.changes import Work, change, delete, fork, rebuild_catalogue
from refold_storage.commit import CommitQueue
from refold_storage.environment import vitals
from refold_storage.interface import (
    Access,
    Clock,
    NewSession,
    Progress,
    RecentCursor,
    Recount,
    SessionRecord,
    Vitals,
    no_progress,
)
from refold_storage.lease import Lease, Leases
from refold_storage.pending_writes import PendingWrites
from refold_storage.reader import ReadHandle, check_tail, committed_lines, last_record, read_records
from refold_storage.records import Record, decode_record, may_grow
from refold_storage.shared_environments import REGISTRY
from refold_storage.transfer import Transfer
from refold_storage.writer import WriteHandle, WriteLimits

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
        await self._whole(self._owned(session, partial(delete, session=session)))

    async def set_archived(self, session: SessionId, archived: bool) -> SessionRecord:
        """Set or take away the archived flag; see `interface.Store.set_archived`."""
        row = await self._whole(self._change(partial(catalog.mark_archived, session=session, archived=archived)))
        return row.record

    async def rehome(self, session: SessionId, cwd: str) -> SessionRecord:
        """Give a session another folder; see `interface.Store.rehome`."""
        return (await self._whole(self._owned(session, partial(catalog.rehome, session=session, cwd=cwd)))).record

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

    def row(self, session: SessionId) -> CatalogRow | None:
        """Give the row of a session, None where there is none."""
        environment = self._commits.environment
        with environment.reading() as transaction:
            return catalog.find(transaction, environment.databases, session)

    async def _fork(self, parent: SessionId, at: int, empty: CatalogRow) -> SessionRecord:
        if self.row(parent) is None:  # asked first, so that no lock file appears for nothing
            raise unknown(parent)
        lease = await self.reserve(empty.id)
        try:
            return (await self._change(partial(fork, parent=parent, at=at, empty=empty))).record
        finally:
            lease.release()

    async def _owned(self, session: SessionId, work: Work[T]) -> T:
        """Change a session that nobody writes meanwhile."""
        if self.row(session) is None:
            raise unknown(session)
        lease = await self._leases.take(session)
        try:
            return await self._change(work)
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


class LmdbStore:
    """A store in LMDB. See `interface.Store` for what each member promises."""

    def __init__(
        self, commits: CommitQueue, leases: Leases, clock: Clock, new_uuid: Callable[[], str], limits: WriteLimits
    ) -> None:
        self.commits: Final = commits
        self.environment: Final = commits.environment
        self._leases = leases
        self._clock = clock
        self._new_uuid = new_uuid
        self._limits = limits
        self._handles: set[ReadHandle | WriteHandle] = set()
        self._whole = SessionChanges(commits, leases, limits.flush_seconds)
        self._closed = False
        self._last_seen = -1

    async def create(self, session: NewSession) -> WriteHandle:
        """Open a new session for writing; see `interface.Store.create`. Raises InvalidJsonError for an id or a folder
        that is not valid Unicode."""
        self._check_writable()
        row = catalog.empty_row(session)
        if self._whole.row(session.id) is not None:
            raise exists_already(session.id)
        lease = await self._whole.reserve(session.id)
        try:
            if self._whole.row(session.id) is not None:  # somebody was quicker
                raise exists_already(session.id)
            return self._write_handle(lease, row, EMPTY_HEAD, None)
        except BaseException:
            lease.release()
            raise

    async def open(self, session: SessionId, access: Access) -> ReadHandle | WriteHandle:
        """Open a session; see `interface.Store.open`."""
        self._check_open()
        if access == "read":
            handle = ReadHandle(self.environment, session, self._handles.discard)
            self._handles.add(handle)
            return handle
        self._check_writable()
        if self._whole.row(session) is None:  # asked first, so that no lock file appears for a session that is not there
            raise unknown(session)
        lease = await self._leases.take(session)
        try:
            self.environment.see_newest()  # the owner before may have been killed right behind a commit
            row, head, open_run = self._stored(session)
            if row.estimated:
                summary = await counted_summary(partial(committed_lines, self.environment, row), row.tail)
                row, head = replace(row, summary=summary, estimated=False), replace(head, summary=summary)
            return self._write_handle(lease, row, head, open_run)
        except BaseException:
            lease.release()
            raise

    async def fork(self, parent: SessionId, at: int, session: NewSession) -> SessionRecord:
        """Make a session that begins with the events 0 to `at` of another one; see `interface.Store.fork`."""
        self._check_writable()
        return await self._whole.fork(parent, at, session)

    async def open_damaged(self, session: SessionId) -> ReadHandle:
        """Open a session for inspection; see `interface.Store.examine`."""
        self._check_open()
        handle = ReadHandle(self.environment, session, self._handles.discard, damaged=True)
        self._handles.add(handle)
        return handle

    async def delete(self, session: SessionId) -> None:
        """Delete a session; see `interface.Store.delete`."""
        self._check_writable()
        await self._whole.delete(session)

    async def set_archived(self, session: SessionId, archived: bool) -> SessionRecord:
        """Set or take away the archived flag; see `interface.Store.set_archived`."""
        self._check_writable()
        return await self._whole.set_archived(session, archived)

    async def rehome(self, session: SessionId, cwd: str) -> SessionRecord:
        """Give a session another folder; see `interface.Store.rehome`."""
        self._check_writable()
        return await self._whole.rehome(session, cwd)

    async def import_session(self, record: SessionRecord, lines: Iterable[bytes]) -> SessionRecord:
        """Make a session of exact lines; see `interface.Store.import_session`."""
        self._check_writable()
        return await self._whole.import_session(record, lines)

    async def rebuild_catalogue(self, progress: Progress = no_progress) -> Recount:
        """Count summaries and the list of recent sessions anew; see `interface.Store.rebuild_catalogue`."""
        self._check_writable()
        return await self._whole.rebuild_catalogue(list(self.survey()), progress)

    def get(self, session: SessionId) -> SessionRecord:
        """Give the committed record of a session. Raises SessionNotFoundError."""
        self._check_open()
        row = self._whole.row(session)
        if row is None:
            raise unknown(session)
        return row.record

    def recent(self, *, limit: int, before: RecentCursor | None = None) -> list[tuple[RecentCursor, SessionRecord]]:
        """List sessions, most recently active first; see `interface.Store.recent`."""
        self._check_open()
        with self.environment.reading() as transaction:
            rows = catalog.recent_rows(transaction, self.environment.databases, limit, before)
        return [(cursor, row.record) for cursor, row in rows]

    def survey(self) -> Iterator[SessionId | RefoldError]:
        """Iterate over all sessions; see `interface.Store.survey`."""
        self._check_open()
        rows = self._surveyed(b"")
        while rows:
            yield from (found for _, found in rows)
            self._check_open()
            rows = self._surveyed(rows[-1][0])

    def is_owned(self, session: SessionId) -> bool:
        """Tell whether somebody, in whatever process, holds the session for writing right now."""
        self._check_open()
        return self._leases.is_held(session)

    def last_transaction(self) -> int:
        """Give a number that rises when there is news to be read; see `interface.Store.last_transaction`."""
        if self.environment.last_transaction() != self._last_seen:
            # A writer's number is in the map for the length of a sync before views begin at it: told then, whoever looks
            # would see nothing new, and not be told again.
            with self.environment.reading() as transaction:
                self._last_seen = transaction.id()
        return self._last_seen

    def follow(self, session: SessionId) -> Callable[[], None]:
        """Let the session's writer know that it is followed; see `interface.Store.follow`."""
        self._check_open()
        return (lambda: None) if self.environment.read_only else self._leases.follow(session).release

    def vitals(self) -> Vitals:
        """Tell how the store is; see `interface.Store.vitals`."""
        self._check_open()
        return vitals(self.environment, str(self.environment.folder), FORMAT_VERSION)

    async def close(self) -> None:
        """Close every handle and the environment. Idempotent. The first flush that failed is raised at the end."""
        if self._closed:
            return
        await self._whole.finish()
        handles = list(self._handles)
        ends = await asyncio.gather(*(handle.close() for handle in handles), return_exceptions=True)
        if not self._closed:
            self._closed = True
            REGISTRY.give_back(self.commits)
        for end in ends:
            if end is not None:
                raise end

    def _surveyed(self, behind: bytes) -> list[tuple[bytes, SessionId | RefoldError]]:
        with self.environment.reading() as transaction:
            return catalog.rows_behind(transaction, self.environment.databases, behind, _PAGE)

    def _stored(self, session: SessionId) -> tuple[CatalogRow, Head, Record | None]:
        """Read where a log ends, and make sure that row and records agree about it."""
        databases = self.environment.databases
        with self.environment.reading() as transaction:
            row = catalog.find(transaction, databases, session)
            if row is None:
                raise unknown(session)
            catalog.refuse_later_row(transaction, databases, session)
            check_tail(transaction, databases.records, row)
            stored = last_record(transaction, databases.records, row.number)
            if stored is not None:
                last = decode_record(*stored)
            elif row.segments:
                last = read_records(transaction, databases.records, row, row.tail, row.tail, 1)[-1]
            else:
                return row, EMPTY_HEAD, None
        event = decode_event(last.lines[-1])
        head = Head(row.tail, event.time, last.digest, row.summary)
        return row, head, last if stored is not None and may_grow(len(last.lines), len(stored[1])) else None

    def _write_handle(self, lease: Lease, row: CatalogRow, head: Head, open_run: Record | None) -> WriteHandle:
        writer = WriterId(f"{self._new_uuid()}.{head.tail}")
        pending_writes = PendingWrites(lease, writer, row, head, open_run)
        handle = WriteHandle(self.commits, pending_writes, self._clock, self._limits, self._handles.discard)
        self._handles.add(handle)
        return handle

    def _check_writable(self) -> None:
        self._check_open()
        self.environment.check_writable()

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnwritableError("the store was closed")


_PAGE: Final = 256
"""Rows that one read transaction looks at."""
