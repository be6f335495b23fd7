"""Owns the sessions of a store in LMDB: creating, opening, finding and listing them.

It only puts parts together: leases say who may write, the commit thread writes, handles read. All calls belong to the
event loop's thread. How a store is opened is `lmdb_store.py`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from refold_protocol.errors import (
    LogUnwritableError,
    RefoldError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import FORMAT_VERSION
from refold_storage import catalog
from refold_storage.accept import EMPTY_HEAD, Head
from refold_storage.backlog import Backlog
from refold_storage.catalog import SessionRow
from refold_storage.commit import CommitQueue
from refold_storage.health import Vitals, vitals
from refold_storage.interface import Access, Clock, NewSession, Progress, RecentCursor, Recount, SessionRecord, no_progress
from refold_storage.lease import Lease, Leases
from refold_storage.log_read import ReadHandle
from refold_storage.log_write import WriteHandle, WriteLimits
from refold_storage.packing import may_grow
from refold_storage.reading import check_tail, committed_lines, last_record, read_records
from refold_storage.records import Record, decode_record
from refold_storage.registry import REGISTRY
from refold_storage.session_changes import SessionChanges, exists_already, unknown
from refold_storage.tally import counted_summary


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
        self._check_open()
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
        if self._whole.row(session) is None:  # asked first, so that no lock file appears for a session that is not there
            raise unknown(session)
        lease = await self._leases.take(session)
        try:
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
        self._check_open()
        return await self._whole.fork(parent, at, session)

    async def examine(self, session: SessionId) -> ReadHandle:
        """Open a session for inspection; see `interface.Store.examine`."""
        self._check_open()
        handle = ReadHandle(self.environment, session, self._handles.discard, damaged=True)
        self._handles.add(handle)
        return handle

    async def delete(self, session: SessionId) -> None:
        """Delete a session; see `interface.Store.delete`."""
        self._check_open()
        await self._whole.delete(session)

    async def set_archived(self, session: SessionId, archived: bool) -> SessionRecord:
        """Set or take away the archived flag; see `interface.Store.set_archived`."""
        self._check_open()
        return await self._whole.set_archived(session, archived)

    async def import_session(self, record: SessionRecord, lines: Iterable[bytes]) -> SessionRecord:
        """Make a session of exact lines; see `interface.Store.import_session`."""
        self._check_open()
        return await self._whole.import_session(record, lines)

    async def rebuild_catalogue(self, progress: Progress = no_progress) -> Recount:
        """Count summaries and the list of recent sessions anew; see `interface.Store.rebuild_catalogue`."""
        self._check_open()
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
        return self._leases.follow(session).release

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

    def _stored(self, session: SessionId) -> tuple[SessionRow, Head, Record | None]:
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

    def _write_handle(self, lease: Lease, row: SessionRow, head: Head, open_run: Record | None) -> WriteHandle:
        writer = WriterId(f"{self._new_uuid()}.{head.tail}")
        backlog = Backlog(lease, writer, row, head, open_run)
        handle = WriteHandle(self.commits, backlog, self._clock, self._limits, self._handles.discard)
        self._handles.add(handle)
        return handle

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnwritableError("the store was closed")


_PAGE: Final = 256
"""Rows that one read transaction looks at."""
