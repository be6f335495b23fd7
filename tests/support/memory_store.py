"""In-memory double of the store: the same promises, no disk. For tests, and for trying things out.

Acceptance is the real store's (`accept.py`); durability is a second list to which a flush moves what was accepted.
Nothing is committed by itself, so a test decides what a crash would leave: `after_crash` gives a store that holds just
that. `fail_point` makes flushes fail as disks do. Never touches a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Final

from msgspec.structs import replace

from refold_protocol.errors import (
    LogError,
    LogUnwritableError,
    RefoldError,
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionNotFoundError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.events import FORMAT_VERSION
from refold_protocol.session.session_totals import EMPTY_SUMMARY, summary_step
from refold_storage import catalog
from refold_storage.batch import Head
from refold_storage.changes import check_fork_seq, forked_row
from refold_storage.commit import FailPoint, no_fault
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
from refold_storage.lmdb_store import BACKLOG_BYTES
from refold_storage.transfer import ImportIntake, imported_row
from tests.support.memory_log import Medium, MemoryHandle, MemoryLog


class MemoryStore:
    """A store that lives and dies with this object. See `interface.Store` for what each member promises."""

    def __init__(
        self,
        *,
        clock: Clock,
        new_uuid: Callable[[], str] | None = None,
        backlog_bytes: int = BACKLOG_BYTES,
        fail_point: FailPoint = no_fault,
    ) -> None:
        self._medium: Final = Medium(clock, backlog_bytes, fail_point)
        self._new_uuid = new_uuid or self._counted
        self._logs: dict[SessionId, MemoryLog] = {}
        self._owners: dict[SessionId, MemoryHandle] = {}
        self._handles: set[MemoryHandle] = set()
        self._writers = 0
        self._numbers = 0
        self._closed = False

    async def create(self, session: NewSession) -> MemoryHandle:
        """Open a new session for writing; see `interface.Store.create`."""
        self._check_open()
        self._check_new(session.id)
        return self._open(MemoryLog(catalog.empty_row(session)), write=True)

    async def open(self, session: SessionId, access: Access) -> MemoryHandle:
        """Open a session; see `interface.Store.open`."""
        self._check_open()
        log = self._log(session)
        if access == "write" and session in self._owners:
            raise _owned(session)
        return self._open(log, write=access == "write")

    async def open_damaged(self, session: SessionId) -> MemoryHandle:
        """Open a session for reading."""
        return await self.open(session, "read")

    async def fork(self, parent: SessionId, at: int, session: NewSession) -> SessionRecord:
        """Make a session that begins with the events 0 to `at` of another one; see `interface.Store.fork`."""
        self._check_open()
        origin = self._log(parent)
        self._check_new(session.id)
        check_fork_seq(parent, at, origin.row.tail)
        digest = origin.digests[at]
        row = forked_row(catalog.empty_row(session), origin.row, at, digest.hex())
        log = MemoryLog(row)
        log.events, log.digests = origin.events[: at + 1], origin.digests[: at + 1]
        summary = reduce(summary_step, log.events, EMPTY_SUMMARY)
        log.row, log.head = replace(row, summary=summary, estimated=False), Head(at, log.events[at].time, digest, summary)
        self._medium.commit()
        self._committed(log)
        return log.row.record

    async def delete(self, session: SessionId) -> None:
        """Delete a session; see `interface.Store.delete`."""
        self._check_open()
        log = self._log(session)
        if session in self._owners:
            raise _owned(session)
        self._medium.commit()
        log.deleted = True
        del self._logs[session]

    async def set_archived(self, session: SessionId, archived: bool) -> SessionRecord:
        """Set or take away the archived flag; see `interface.Store.set_archived`."""
        self._check_open()
        log = self._log(session)
        self._medium.commit()
        log.row = replace(log.row, archived=archived)
        return log.row.record

    async def rehome(self, session: SessionId, cwd: str) -> SessionRecord:
        """Give a session another folder; see `interface.Store.rehome`."""
        self._check_open()
        log = self._log(session)
        if session in self._owners:
            raise _owned(session)
        catalog.empty_row(NewSession(session, cwd, 0))
        self._medium.commit()
        log.row = replace(log.row, cwd=cwd)
        return log.row.record

    async def import_session(self, record: SessionRecord, lines: Iterable[bytes]) -> SessionRecord:
        """Make a session of exact lines; see `interface.Store.import_session`."""
        self._check_open()
        empty = catalog.empty_row(NewSession(record.id, record.cwd, record.created_at))
        self._check_new(record.id)
        intake, log = ImportIntake(), MemoryLog(imported_row(empty, record))
        log.events, log.digests = intake.take(list(lines))
        intake.finish(record)
        log.head = intake.head
        log.row = replace(log.row, tail=record.tail, head_digest=record.head_digest, summary=log.head.summary)
        self._medium.commit()
        self._committed(log)
        return log.row.record

    async def rebuild_catalogue(self, progress: Progress = no_progress) -> Recount:
        """Count summaries anew; see `interface.Store.rebuild_catalogue`. The list of recent sessions is none to rebuild."""
        self._check_open()
        owned = [session for session in self._logs if session in self._owners]
        changed = 0
        for session, log in self._logs.items():
            summary = reduce(summary_step, log.events, EMPTY_SUMMARY)
            if session not in owned and summary != log.row.summary:
                log.row, log.head = replace(log.row, summary=summary), replace(log.head, summary=summary)
                changed += 1
        progress(len(self._logs), len(self._logs))
        return Recount(len(self._logs) - len(owned), changed, 0, tuple(map(_owned, owned)))

    def get(self, session: SessionId) -> SessionRecord:
        """Give the committed record of a session. Raises SessionNotFoundError."""
        self._check_open()
        return self._log(session).row.record

    def recent(self, *, limit: int, before: RecentCursor | None = None) -> list[tuple[RecentCursor, SessionRecord]]:
        """List sessions, most recently active first; see `interface.Store.recent`."""
        self._check_open()
        rows = sorted(((log.row.activity, log.row.number), log.row.record) for log in self._logs.values())
        behind = [row for row in reversed(rows) if before is None or row[0] < before]
        return behind[:limit]

    def survey(self) -> Iterator[SessionId | RefoldError]:
        """Iterate over all sessions; see `interface.Store.survey`."""
        self._check_open()
        return iter(tuple(self._logs))

    def is_owned(self, session: SessionId) -> bool:
        """Tell whether somebody holds the session for writing right now."""
        self._check_open()
        return session in self._owners

    def last_transaction(self) -> int:
        """Give a number that rises with each commit."""
        self._medium.check_usable()
        return self._medium.commits

    def follow(self, session: SessionId) -> Callable[[], None]:
        """Follow a session, whose writer can only be in this process."""
        del session
        return lambda: None

    def vitals(self) -> Vitals:
        """Tell how the store is: it has no file, so all sizes are 0."""
        self._check_open()
        return Vitals("memory", FORMAT_VERSION, 0, 0, 0, sum(1 for _ in self.survey()), 0)

    async def close(self) -> None:
        """Close every handle. Idempotent. The first flush that failed is raised at the end."""
        if self._closed:
            return
        failures: list[LogError] = []
        for handle in list(self._handles):
            try:
                await handle.close()
            except LogError as error:  # the others are closed all the same
                failures.append(error)
        self._closed = True
        if failures:
            raise failures[0]

    def after_crash(self) -> MemoryStore:
        """Give a store that holds what is durable now, as another process would find it; nobody owns anything there."""
        survivor = MemoryStore(clock=self._medium.clock, backlog_bytes=self._medium.backlog_bytes)
        survivor._new_uuid, survivor._numbers = self._new_uuid, self._numbers
        for session, log in self._logs.items():
            copy = MemoryLog(log.row)
            copy.head, copy.events, copy.digests = log.head, list(log.events), list(log.digests)
            survivor._logs[session] = copy
        return survivor

    def _open(self, log: MemoryLog, *, write: bool) -> MemoryHandle:
        writer = WriterId(f"{self._new_uuid()}.{log.head.tail}") if write else None
        handle = MemoryHandle(self._medium, log, writer, self._committed, self._forget)
        self._handles.add(handle)
        if write:
            self._owners[handle.id] = handle
        return handle

    def _committed(self, log: MemoryLog) -> None:
        if log.row.number == 0:
            self._numbers += 1
            log.row = replace(log.row, number=self._numbers)
            self._logs[log.row.id] = log

    def _forget(self, handle: MemoryHandle) -> None:
        self._handles.discard(handle)
        if self._owners.get(handle.id) is handle:
            del self._owners[handle.id]

    def _check_new(self, session: SessionId) -> None:
        if session in self._logs or session in self._owners:
            raise SessionAlreadyExistsError(f"there is a session {session} already", session=session)

    def _log(self, session: SessionId) -> MemoryLog:
        if session not in self._logs:
            raise SessionNotFoundError(f"there is no session {session}", session=session)
        return self._logs[session]

    def _counted(self) -> str:
        self._writers += 1
        return f"00000000-0000-7000-8000-{self._writers:012x}"

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnwritableError("the store was closed")


def _owned(session: SessionId) -> SessionAlreadyOwnedError:
    return SessionAlreadyOwnedError(f"this process writes session {session} already", session=session)
