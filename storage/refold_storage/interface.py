"""Record of a session beside its log: the record, where a fork comes from, what a new session is made with.

Data only. `interface.py`, which uses all but `Parent`, names them again.

Interface of storage: what a store and a handle promise, and the record beside a log.

Two implementations keep these promises, the LMDB store (`lmdb_store.py`) and the in-memory double (`memory.py`); one
conformance suite runs against both. The promises in short: `append` is acceptance, `flush` is durability; storage
returns the contiguous log that it has and neither cuts nor repairs it; one writer per session across all processes,
readers without limit. All calls belong to one thread, the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from refold_protocol.errors import LogError, RefoldError
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.events import Draft, Event
from refold_protocol.session.session_totals import SessionTotals
from refold_storage.batch import Batch
from refold_storage.records import Damage, Record

RecentCursor: TypeAlias = tuple[int, int]
"""A place in the list of recent sessions: last activity (epoch ms) and the session's number. Opaque to callers."""

Progress: TypeAlias = Callable[[int, int], None]
"""Told now and then how much of a long work is done, and how much there is in all."""


def no_progress(done: int, whole: int) -> None:
    """Tell nobody."""


class Parent(Struct, frozen=True, gc=False):
    """Where a fork comes from: the parent's session, the last inherited seq, and the digest of that event in hex."""

    session: SessionId
    at: int
    digest: str


class NewSession(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a session is created with. `cwd` is an absolute path, `created_at` Unix epoch ms."""

    id: SessionId
    cwd: str
    created_at: int


class SessionRecord(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The record beside a log, as of one moment.

    `tail` is the seq of its last event (−1 for none), `head_digest` the chain's digest there in hex. `writers` has a row
    `(writer, first seq)` for each writer that put events into the log. `summary` is a cache, all else is data.
    """

    id: SessionId
    cwd: str
    created_at: int
    tail: int
    head_digest: str
    writers: tuple[tuple[WriterId, int], ...]
    summary: SessionTotals
    parent: Parent | None = None
    archived: bool = False


class Recount(Struct, frozen=True):
    """What rebuilding the catalogue did: sessions counted, summaries that were wrong, wrong or missing places in the list
    of recent sessions, and why which sessions were passed over."""

    sessions: int
    changed: int
    misplaced: int
    skipped: tuple[RefoldError, ...]


class Reader(Struct, frozen=True, gc=False):
    """An open read transaction of some process. `transaction` is the last commit that it sees: pages freed since then
    cannot be used again while it lives."""

    pid: int
    transaction: int


class Vitals(Struct, frozen=True, gc=False):
    """A store's state. Sizes are in bytes; `file_bytes` is what the data file takes on disk, `used_bytes` what it holds,
    `map_bytes` what it may grow to before the map does."""

    path: str
    format: int
    file_bytes: int
    used_bytes: int
    map_bytes: int
    sessions: int
    last_transaction: int
    readers: tuple[Reader, ...] = ()


Access: TypeAlias = Literal["read", "write"]

Observer: TypeAlias = Callable[[Sequence[Event]], None]
"""Told of each accepted batch, synchronously. What it raises is logged and contained; it must not append."""

DurableWatcher: TypeAlias = Callable[[int], None]
"""Told the seq of the last durable event whenever that rose, on the event loop's thread."""

TroubleWatcher: TypeAlias = Callable[[LogError | None], None]
"""Told why a commit failed, each time, or that a flush ran out of time, and None when a later commit succeeded; on the event
loop's thread."""

Clock: TypeAlias = Callable[[], int]
"""Gives Unix epoch milliseconds."""


class Handle(Protocol):
    """One session, opened. A write handle owns the session until it is closed or its process ends."""

    @property
    def id(self) -> SessionId:
        """The session's id."""
        ...

    @property
    def access(self) -> Access:
        """Whether this handle may append."""
        ...

    @property
    def writer(self) -> WriterId | None:
        """This open's writer id (`<UUIDv7>.<tail at open>`); None on a read handle."""
        ...

    @property
    def tail(self) -> int:
        """Seq of the last event that this handle can read, accepted ones included; −1 for an empty log."""
        ...

    @property
    def durable(self) -> int:
        """Seq of the last event that survives a crash; on a read handle, the committed tail it last saw."""
        ...

    @property
    def head_digest(self) -> bytes:
        """The chain's digest at `tail`: 32 bytes."""
        ...

    @property
    def trouble(self) -> LogError | None:
        """Why accepted events could not be committed when that was tried last, or in time; None while all is well."""
        ...

    @property
    def record(self) -> SessionRecord:
        """The record as of the accepted tail (write handle) or of the last refresh (read handle)."""
        ...

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """Iterate over the events `first` to `last` (both included; the tail where `last` is None), decoded, in order.

        Bounded in memory whatever the length: no transaction is held between two items. Raises SeqRangeError for a
        negative `first` or a `last` past the tail, SessionCorruptionError when it meets a damaged record.
        """
        ...

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give the exact lines of the events from `first` on: as many as fit into `max_bytes` together, but at least
        one where there is one. Errors as for `read`. Without `chunks` the line of a chunk may be `codec.CHUNK` instead, where
        its record holds nothing else: that need not be read then, and is not checked."""
        ...

    def seal(self, drafts: Sequence[Draft], *, closing: bool = False) -> Batch:
        """Make the batch that `drafts` would be behind the tail. Changes nothing: who does not like it just drops it.

        Each event gets the next seq and max(time of the one before, clock). Raises InvalidEventError for a draft that
        cannot be an event, and for a call from inside an observer, SessionReadOnlyError, SessionHandleClosedError, and,
        when the memory for accepted events is used up, StorageFullError / LogUnwritableError on a stalled handle,
        LogBusyError on one whose commits do not keep up. With `closing` the batch is made even then: it ends what stands
        open, so that nothing more will come.
        """
        ...

    def accept(self, batch: Batch) -> None:
        """Accept a batch that `seal` made, whole. Synchronous: no await between accepting and telling.

        When this returns the events are ordered and readable here; they survive a crash only after a `flush`. A batch is
        committed in one transaction. Raises InvalidEventError for one that does not begin right behind the tail, or for a
        call from inside an observer, SessionReadOnlyError and SessionHandleClosedError; the log is what it was then.
        """
        ...

    def append(self, drafts: Sequence[Draft], *, closing: bool = False) -> tuple[Event, ...]:
        """Seal `drafts` and accept the batch; give its events. Raises what the two raise."""
        ...

    async def flush(self, up_to: int | None = None, *, timeout: float | None = None) -> int:
        """Wait until the events up to `up_to` (default: all accepted ones) are durable; give the durable seq.

        `timeout` is in seconds (None: the store's default). Raises LogBusyError when it runs out, StorageFullError or
        LogUnwritableError when the commit fails; the events then stay accepted and a later flush tries again, except
        after LogUnwritableError. Cancelling the wait changes nothing about the commit.
        """
        ...

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` after each accepted batch; give the function that stops it."""
        ...

    def watch_durable(self, watcher: DurableWatcher) -> Callable[[], None]:
        """Call `watcher` whenever `durable` rose; give the function that stops it."""
        ...

    def watch_trouble(self, watcher: TroubleWatcher) -> Callable[[], None]:
        """Call `watcher` when a commit failed (on all handles of the store, when it cannot be written any more) or a flush
        of this handle ran out of time, and when a commit succeeded after that; give the function that stops it. Never
        called on a read handle."""
        ...

    def records(self, first: int = 0) -> Iterator[Record]:
        """Iterate over the committed log as the runs in which it is stored, from the one that holds `first` on, each with
        the recorded digest of its last event: what `chain_walk.py` checks. Errors as for `read`."""
        ...

    def inspect(self) -> Iterator[Record | Damage]:
        """Iterate over the committed log from its beginning as it is stored, damage included as items of their own: what
        `refold verify` checks. Raises nothing for what a record holds; what is missing at the end is no item."""
        ...

    def refresh(self) -> int:
        """On a read handle: look for events that other processes committed; give the new tail. Free on a write handle."""
        ...

    async def close(self) -> None:
        """Flush what was accepted, free the lease, and forget the handle. Idempotent. A flush that fails is raised after
        the lease was freed."""
        ...


class Store(Protocol):
    """All sessions of one place."""

    async def create(self, session: NewSession) -> Handle:
        """Open a new session for writing. Nothing is on disk until the first commit. Raises SessionAlreadyExistsError
        (also when another process holds the lease of that id)."""
        ...

    async def open(self, session: SessionId, access: Access) -> Handle:
        """Open a session. Raises SessionNotFoundError, SessionAlreadyOwnedError (after trying for 50 ms),
        SessionFormatUnsupportedError, SessionCorruptionError."""
        ...

    async def open_damaged(self, session: SessionId) -> Handle:
        """Open a session for `inspect`, also one whose log does not agree with its record. Raises SessionNotFoundError,
        and the errors of `open` where the record itself cannot be read."""
        ...

    async def fork(self, parent: SessionId, at: int, session: NewSession) -> SessionRecord:
        """Make the session `session` whose first events are the events 0 to `at` of `parent`, and give its record.

        One transaction, on disk when this returns; the cost does not depend on `at`. No lease of the parent is needed:
        it can be forked up to its durable tail, so whoever owns it flushes up to `at` first. The new session's chain
        goes on from the parent's, `record.parent` says where from, its first own event gets the seq `at` + 1. Before
        `tail`, its summary is the parent's until it is opened for writing. Nobody owns it yet: `open` it to go on.

        A caller who is cancelled does not learn whether the fork was made. Raises SessionNotFoundError,
        SessionAlreadyExistsError, SeqRangeError (negative, or not durable), SessionCorruptionError, StorageFullError,
        LogBusyError.
        """
        ...

    async def delete(self, session: SessionId) -> None:
        """Delete a session for good, on disk when this returns. Its id may be used again.

        Forks keep the events that they inherited, and those go with the last fork that needs them. Open read handles
        raise SessionNotFoundError from then on, in all processes. The file does not shrink and the bytes in it are only
        overwritten by and by: that is `compact_store`'s business.

        Raises SessionNotFoundError, SessionAlreadyOwnedError while anybody has it open for writing,
        SessionCorruptionError for a record that cannot be read, StorageFullError, LogBusyError.
        """
        ...

    async def set_archived(self, session: SessionId, archived: bool) -> SessionRecord:
        """Set or take away a session's archived flag, whoever owns it; give its record. No activity, and idempotent.

        `get` and `recent` show it at once, a read handle from its next refresh on, a write handle from its next commit
        on. Raises SessionNotFoundError, StorageFullError, LogBusyError.
        """
        ...

    async def rehome(self, session: SessionId, cwd: str) -> SessionRecord:
        """Give a session another folder, the absolute path `cwd`, on disk when this returns; give its record. No activity, and
        idempotent. Raises SessionNotFoundError, SessionAlreadyOwnedError while anybody has it open for writing,
        InvalidJsonError for a folder that is not valid Unicode, StorageFullError, LogBusyError."""
        ...

    async def import_session(self, record: SessionRecord, lines: Iterable[bytes]) -> SessionRecord:
        """Make a session of the exact `lines` of its events 0 to `record.tail`, and give its record as it is stored.

        Id, cwd, creation, writers, parent and archived flag are taken from `record`, the summary is counted anew; tail
        and digest must be what the lines give. `lines` is read once, from the event loop, some 256 KiB at a time; what
        it raises, and a cancellation, end the import. Written in bounded transactions, visible only when all of it is on
        disk; a crash leaves nothing that anybody sees. Nobody owns the session then.

        Raises SessionAlreadyExistsError, SessionCorruptionError (`seq`: where the first wrong line stands; also for a
        log of another length), DigestMismatchError, InvalidJsonError for an id or folder that is not valid Unicode,
        StorageFullError, LogBusyError.
        """
        ...

    async def rebuild_catalogue(self, progress: Progress = no_progress) -> Recount:
        """Count what is cached beside the logs anew, every summary and the list of recent sessions; say what was wrong.

        Reads every log once. `progress` is told of sessions. A session that somebody writes, or that cannot be read, is
        passed over and named. May be cancelled between two sessions. Raises StorageFullError, LogBusyError.
        """
        ...

    def get(self, session: SessionId) -> SessionRecord:
        """Give the committed record of a session. Raises SessionNotFoundError."""
        ...

    def recent(self, *, limit: int, before: RecentCursor | None = None) -> list[tuple[RecentCursor, SessionRecord]]:
        """Give up to `limit` records with their cursors, most recently active first, going on behind cursor `before`."""
        ...

    def survey(self) -> Iterator[SessionId | RefoldError]:
        """Iterate over all sessions, in no order, whether or not the list of recent ones has them: the id of each, or the
        error that keeps its record from being read. For checks: what is damaged must not be left out."""
        ...

    def last_transaction(self) -> int:
        """Give a number that rises whenever anything that any process committed to the store can be read here. About a
        microsecond where nothing changed. Raises LogUnwritableError when the store cannot be used any more."""
        ...

    def follow(self, session: SessionId) -> Callable[[], None]:
        """Let whoever writes the session in another process know that it is followed here, so that its events are
        committed sooner; give the function that ends it (idempotent)."""
        ...

    def is_owned(self, session: SessionId) -> bool:
        """Tell whether somebody, in whatever process, holds the session for writing right now."""
        ...

    def vitals(self) -> Vitals:
        """Tell how the store is: sizes, number of sessions, open read transactions of all processes."""
        ...

    async def close(self) -> None:
        """Close every handle and the environment. Idempotent."""
        ...
