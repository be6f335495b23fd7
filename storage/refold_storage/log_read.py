"""Owns the handle of a session that was opened for reading: the committed log as of the last refresh.

Other processes may append meanwhile; what this handle shows moves only with `refresh`. It holds no lease, no transaction
and no event. Never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from refold_protocol.errors import (
    LogError,
    LogUnwritableError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
    SessionHandleClosedError,
    SessionNotFoundError,
    SessionReadOnlyError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.events import Draft, Event
from refold_storage import catalog
from refold_storage.accept import Batch
from refold_storage.catalog import SessionRow
from refold_storage.environment import Environment
from refold_storage.inspection import inspect_records
from refold_storage.interface import Access, DurableWatcher, Observer, SessionRecord, TroubleWatcher
from refold_storage.listeners import Listeners
from refold_storage.reading import (
    BATCH_BYTES,
    check_range,
    check_tail,
    committed_lines,
    decode_lines,
    gather_lines,
    walk_records,
)
from refold_storage.records import Damage, Record


class ReadHandle:
    """A session, opened for reading. See `interface.Handle` for what each member promises. With `damaged` a log that
    does not agree with its record is opened too, to be inspected."""

    def __init__(
        self, environment: Environment, session: SessionId, forget: Callable[[ReadHandle], None], *, damaged: bool = False
    ) -> None:
        self._environment = environment
        self._session = session
        self._forget = forget
        self._watchers: Listeners[int] = Listeners()
        self._closed = False
        self._damaged = damaged
        self._agreed = True
        self._seen, self._row = self._look(None)

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._session

    @property
    def access(self) -> Access:
        """`read`."""
        return "read"

    @property
    def writer(self) -> WriterId | None:
        """None."""
        return None

    @property
    def tail(self) -> int:
        """The committed tail as of the last refresh."""
        return self._row.tail

    @property
    def durable(self) -> int:
        """The same as `tail`."""
        return self._row.tail

    @property
    def head_digest(self) -> bytes:
        """The chain's digest at `tail`."""
        return bytes.fromhex(self._row.head_digest)

    @property
    def trouble(self) -> LogError | None:
        """An error when the store cannot be used any more, else None."""
        reason = self._environment.unusable
        return None if reason is None else LogUnwritableError(reason)

    @property
    def record(self) -> SessionRecord:
        """The record as of the last refresh."""
        return self._row.record

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """Iterate over events; see `interface.Handle.read`."""
        self._check_open()
        return self._read(first, check_range(first, last, self.tail))

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give exact lines; see `interface.Handle.lines`."""
        self._check_open()
        end = check_range(first, last, self.tail)
        return gather_lines(partial(self._batch, chunks=chunks), first, end, max_bytes)

    def records(self, first: int = 0) -> Iterator[Record]:
        """Iterate over committed records; see `interface.Handle.records`."""
        self._check_open()
        check_range(first, None, self.tail)
        return walk_records(self._environment, self._row, first, self.tail, self._check_open)

    def inspect(self) -> Iterator[Record | Damage]:
        """Iterate over what is stored; see `interface.Handle.inspect`."""
        self._check_open()
        return inspect_records(self._environment, self._row, self._check_open, agreed=self._agreed)

    def seal(self, drafts: Sequence[Draft], *, closing: bool = False) -> Batch:
        """Raise SessionReadOnlyError."""
        del drafts, closing
        raise self._refusal()

    def accept(self, batch: Batch) -> None:
        """Raise SessionReadOnlyError."""
        del batch
        raise self._refusal()

    def append(self, drafts: Sequence[Draft], *, closing: bool = False) -> tuple[Event, ...]:
        """Raise SessionReadOnlyError."""
        del drafts, closing
        raise self._refusal()

    def _refusal(self) -> SessionReadOnlyError:
        self._check_open()
        return SessionReadOnlyError(f"session {self._session} was opened for reading", session=self._session)

    async def flush(self, up_to: int | None = None, *, timeout: float | None = None) -> int:  # noqa: ARG002
        """Give `durable`: nothing here waits for a commit."""
        self._check_open()
        check_range(0, up_to, self.tail)
        return self.durable

    def observe(self, observer: Observer) -> Callable[[], None]:  # noqa: ARG002
        """Accept an observer that will never be called."""
        self._check_open()
        return lambda: None

    def watch_durable(self, watcher: DurableWatcher) -> Callable[[], None]:
        """Call `watcher` when a refresh found more events."""
        self._check_open()
        return self._watchers.add(watcher)

    def watch_trouble(self, watcher: TroubleWatcher) -> Callable[[], None]:  # noqa: ARG002
        """Accept a watcher that will never be called."""
        self._check_open()
        return lambda: None

    def refresh(self) -> int:
        """Look for events of other processes; see `interface.Handle.refresh`. About a microsecond when nothing at all
        was committed to the store since."""
        self._check_open()
        if self._environment.last_transaction() != self._seen:
            before = self._row.tail
            self._seen, self._row = self._look(self._row.number)
            if self._row.tail > before:
                self._watchers.tell(self._row.tail)
        return self._row.tail

    async def close(self) -> None:
        """Forget the handle. Idempotent."""
        if not self._closed:
            self._closed = True
            self._watchers.clear()
            self._forget(self)

    def _read(self, first: int, last: int) -> Iterator[Event]:
        while first <= last:
            self._check_open()
            lines = self._batch(first, last, BATCH_BYTES)
            yield from decode_lines(lines, first)
            first += len(lines)

    def _batch(self, first: int, last: int, max_bytes: int, *, chunks: bool = True) -> list[bytes]:
        return committed_lines(self._environment, self._row, first, last, max_bytes, chunks=chunks)

    def _look(self, number: int | None) -> tuple[int, SessionRow]:
        """Read the row, of the session with that number if one is given: another one may have taken its id since."""
        with self._environment.reading() as transaction:
            # What was seen is the view's own number. A writer's number is in the map for the length of a sync before views
            # begin at it: taken for seen, the last commit of a turn would be missed until there is another one.
            seen = transaction.id()
            row = catalog.find(transaction, self._environment.databases, self._session)
            if row is None or number not in (None, row.number):
                raise SessionNotFoundError(f"there is no session {self._session}", session=self._session)
            try:
                check_tail(transaction, self._environment.databases.records, row)
            except (SessionCorruptionError, SessionFormatUnsupportedError):  # what does not agree, an inspection finds
                if not self._damaged:
                    raise
                self._agreed = False
        return seen, row

    def _check_open(self) -> None:
        if self._closed:
            raise SessionHandleClosedError(f"this handle of session {self._session} was closed", session=self._session)
