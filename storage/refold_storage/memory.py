"""Owns the in-memory double of the store: the same promises, no disk. For tests, and for trying things out.

Acceptance is the real store's (`accept.py`); durability is a second list to which a flush moves what was accepted.
Nothing is committed by itself, so a test decides what a crash would leave: `after_crash` gives a store that holds just
that. `fail_point` makes flushes fail as disks do. Never touches a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from refold_storage import catalog
from refold_storage.health import Vitals
from refold_storage.interface import Access, Clock, NewSession, RecentCursor, SessionRecord
from refold_storage.lmdb_store import BACKLOG_BYTES, no_fault
from refold_storage.memory_log import Medium, MemoryHandle, MemoryLog
from refold_storage.transact import FailPoint


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
        self._closed = False

    async def create(self, session: NewSession) -> MemoryHandle:
        """Open a new session for writing; see `interface.Store.create`."""
        self._check_open()
        if session.id in self._logs or session.id in self._owners:
            raise SessionAlreadyExistsError(f"there is a session {session.id} already", session=session.id)
        return self._open(MemoryLog(catalog.empty_row(session)), write=True)

    async def open(self, session: SessionId, access: Access) -> MemoryHandle:
        """Open a session; see `interface.Store.open`."""
        self._check_open()
        log = self._log(session)
        if access == "write" and session in self._owners:
            raise SessionAlreadyOwnedError(f"this process writes session {session} already", session=session)
        return self._open(log, write=access == "write")

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
        survivor._new_uuid = self._new_uuid
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
            log.row = replace(log.row, number=len(self._logs) + 1)
            self._logs[log.row.id] = log

    def _forget(self, handle: MemoryHandle) -> None:
        self._handles.discard(handle)
        if self._owners.get(handle.id) is handle:
            del self._owners[handle.id]

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
