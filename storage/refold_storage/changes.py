"""Changes of the store that are no commit of a log, as a fork or a deletion: each in one transaction with full sync,
in a thread of its own, because it may have to wait for the store's write lock.

What the work refuses (a RefoldError) rolls the change back and is raised. When space ran out it may be tried again. After
any other failure the environment is spoilt, as after a failed commit. Knows nothing of what is changed.

Making a fork: a row whose segments name where the inherited events lie, and nothing else. No event is copied, so
a fork costs the same whatever the length of the history.

`children` says who needs whose events: under the numbers of origin and fork, the last seq that the fork inherits from that
origin, and its digest. Works inside the caller's transaction; never touches a record.

What goes when a session goes: its row, its place among the recent ones, and every record that no fork needs.

What forks need stays under the session's number without a row, as a hidden origin, and goes with the last of them: a mark
in `children` (`HIDDEN` in the fork's place) says that nobody else keeps it. Forks name the first owners of what they
inherited, so no origin needs another one. Works inside the caller's transaction; the pages go back to the store, not to
the file system.

Rebuilding what the catalogue caches: the summary of every session from its log, and the list of recent ones.

Each session is counted under its lease, so that no writer's own count is overwritten by an older one; a session that
somebody writes, and one that cannot be read, is passed over and named. Cancelled between two sessions it has rebuilt some.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

import lmdb
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import (
    LogBusyError,
    LogUnwritableError,
    RefoldError,
    SeqRangeError,
    SessionAlreadyExistsError,
    SessionNotFoundError,
    StorageFullError,
)
from refold_protocol.ids import SessionId
from refold_protocol.session.session_totals import SessionTotals
from refold_storage import catalog
from refold_storage.catalog import CatalogRow, counted_summary
from refold_storage.commit import CommitQueue, FailPoint, meaning
from refold_storage.environment import Environment
from refold_storage.interface import Parent, Recount
from refold_storage.lease import Leases
from refold_storage.reader import check_tail, committed_lines, digest_at, seek
from refold_storage.record_keys import (
    HIDDEN,
    MAX_U64,
    child_key,
    child_value,
    forked_segments,
    parse_child_key,
    parse_child_value,
    parse_record_key,
    record_key,
)
from refold_storage.records import decode_record, encode_record
from refold_storage.store_format import Databases

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


T = TypeVar("T")

Work: TypeAlias = "Callable[[lmdb.Transaction[bytes], Databases], T]"
"""Makes a change inside the transaction and gives its result. It may be repeated: after the map grew."""


async def change(commits: CommitQueue, work: Work[T], seconds: float, size: int = 0) -> T:
    """Do `work`, which writes about `size` bytes, in one transaction and give its result once that is on the disk.

    Raises what `work` refuses; LogBusyError when another process holds the write lock for longer than `seconds`, and
    nothing happens then; StorageFullError; LogUnwritableError. A caller who is cancelled before the work began prevents
    it, later not any more.
    """
    loop = asyncio.get_running_loop()
    single = _Change(commits, work, size, loop)
    threading.Thread(target=single.run, name="refold change", daemon=True).start()
    timer = loop.call_later(seconds, single.give_up, seconds)
    try:
        return await single.result
    finally:
        timer.cancel()
        single.abandon()


class _AbandonedError(Exception):
    """Nobody waits for the change any more, and it has not begun."""


class _Change(Generic[T]):
    def __init__(self, commits: CommitQueue, work: Work[T], size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.result: Final[asyncio.Future[T]] = loop.create_future()
        self._commits: Final = commits
        self._environment: Final[Environment] = commits.environment
        self._fail_point: FailPoint = commits.fail_point
        self._work = work
        self._size = size
        self._loop = loop
        self._lock = threading.Lock()
        self._begun = False
        self._abandoned = False

    def abandon(self) -> bool:
        """Prevent the change if it has not begun. Tells whether it had not."""
        with self._lock:
            self._abandoned = self._abandoned or not self._begun
            return self._abandoned

    def give_up(self, seconds: float) -> None:
        """The time is over: disappoint the waiter, unless the change has begun and will be over soon."""
        if self.abandon() and not self.result.done():
            holder = self._environment.note.read()
            who = "" if holder is None else f" by process {holder}"
            error = LogBusyError(f"the store's write lock was held{who} for {seconds:g} s; nothing was changed", holder=holder)
            self.result.set_exception(error)

    def run(self) -> None:
        """Make the change and hand over what became of it. Runs in the thread."""
        try:
            told = partial(self._succeed, self._transact())
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits to be told
            told = partial(self._fail, self._understood(error))
        try:
            self._loop.call_soon_threadsafe(told)
        except RuntimeError:  # that loop was closed: nobody waits there any more
            return

    def _transact(self) -> T:
        while True:
            try:
                with self._environment.writing() as transaction:
                    self._begin()
                    self._fail_point("begun")
                    result = self._work(transaction, self._environment.databases)
                    self._fail_point("written")
            except lmdb.MapFullError:
                if not self._environment.grow():
                    raise StorageFullError("the store has reached its largest allowed size") from None
            else:
                self._fail_point("committed")
                return result

    def _begin(self) -> None:
        with self._lock:
            if self._abandoned:
                raise _AbandonedError
            self._begun = True

    def _understood(self, error: Exception) -> Exception:
        if isinstance(error, RefoldError | _AbandonedError) and not isinstance(error, LogUnwritableError):
            return error
        understood = meaning(error, self._environment, self._size)
        if isinstance(understood, LogUnwritableError):
            self._commits.mark_failed(understood)
        return understood

    def _succeed(self, result: T) -> None:
        if not self.result.done():
            self.result.set_result(result)

    def _fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


def fork(transaction: Transaction, databases: Databases, parent: SessionId, at: int, empty: CatalogRow) -> CatalogRow:
    """Store the fork of `parent` behind its event `at` in place of the row `empty`, and give its row.

    Raises SessionNotFoundError, SessionAlreadyExistsError, SeqRangeError for an event that is not on disk,
    SessionCorruptionError and SessionFormatUnsupportedError for a parent that cannot be read there.
    """
    origin = catalog.find(transaction, databases, parent)
    if origin is None:
        raise SessionNotFoundError(f"there is no session {parent}", session=parent)
    if catalog.find(transaction, databases, empty.id) is not None:
        raise SessionAlreadyExistsError(f"there is a session {empty.id} already", session=empty.id)
    check_fork_seq(parent, at, origin.tail)
    check_tail(transaction, databases.records, origin)
    digest = digest_at(transaction, databases.records, origin, at).hex()
    row = replace(
        forked_row(empty, origin, at, digest),
        number=catalog.next_number(transaction, databases),
        segments=forked_segments(origin.number, origin.segments, at, digest),
    )
    catalog.put(transaction, databases, row, None)
    for segment in row.segments:
        need = child_value(segment.last, bytes.fromhex(segment.digest))
        transaction.put(child_key(segment.owner, row.number), need, db=databases.children)
    return row


def check_fork_seq(parent: SessionId, at: int, tail: int) -> None:
    """Raise SeqRangeError unless a log that ends at `tail` can be forked behind event `at`."""
    if not 0 <= at <= tail:
        raise SeqRangeError(
            f"session {parent} cannot be forked at {at}: it has events 0 to {tail} on disk", first=at, tail=tail
        )


def forked_row(empty: CatalogRow, origin: CatalogRow, at: int, digest: str) -> CatalogRow:
    """Give what a fork's row says of its log before it has events of its own."""
    parent = Parent(origin.id, at, digest)
    estimated = origin.estimated or at != origin.tail
    return replace(empty, tail=at, head_digest=digest, summary=origin.summary, parent=parent, estimated=estimated)


def delete(transaction: Transaction, databases: Databases, session: SessionId) -> None:
    """Delete a session. Raises SessionNotFoundError, and SessionCorruptionError or SessionFormatUnsupportedError for a row
    that this release does not understand whole: it cannot know what belongs to it."""
    row = catalog.find(transaction, databases, session)
    if row is None:
        raise SessionNotFoundError(f"there is no session {session}", session=session)
    catalog.refuse_later_row(transaction, databases, session)
    catalog.remove(transaction, databases, row)
    hide(transaction, databases, row.number)
    for segment in row.segments:
        transaction.delete(child_key(segment.owner, row.number), db=databases.children)
    for number in (row.number, *(segment.owner for segment in row.segments)):
        shed(transaction, databases, number)


def hide(transaction: Transaction, databases: Databases, number: int) -> None:
    """Say that no row keeps the records under `number`."""
    transaction.put(child_key(number, HIDDEN), b"", db=databases.children)


def reveal(transaction: Transaction, databases: Databases, number: int) -> None:
    """Take `hide` back, for the row that comes with this transaction."""
    transaction.delete(child_key(number, HIDDEN), db=databases.children)


def shed(transaction: Transaction, databases: Databases, number: int) -> None:
    """Delete what no fork needs of the records under `number`, if they are hidden."""
    need = _need(transaction, databases, number)
    if not need.hidden:
        return
    if need.last is None:
        _drop_records(transaction, databases, number, 0)
        reveal(transaction, databases, number)
    else:
        _cut(transaction, databases, number, need.last, need.digest)
        _drop_records(transaction, databases, number, need.last + 1)


def hidden_numbers(transaction: Transaction, databases: Databases) -> list[int]:
    """Give the numbers under which there are records without a row, in order."""
    with transaction.cursor(db=databases.children) as cursor:
        pairs = (parse_child_key(key) for key in cursor.iternext(keys=True, values=False))
        return [origin for origin, fork in pairs if fork == HIDDEN]


class _Need(Struct, frozen=True):
    """What forks need under a number: up to event `last` (None: nothing), whose digest that is."""

    hidden: bool
    last: int | None
    digest: bytes


def _need(transaction: Transaction, databases: Databases, number: int) -> _Need:
    hidden, last, digest = False, -1, b""
    with transaction.cursor(db=databases.children) as cursor:
        more = cursor.set_range(child_key(number, 0))
        while more:
            origin, fork = parse_child_key(cursor.key())
            if origin != number:
                break
            if fork == HIDDEN:
                hidden = True
            else:
                last, digest = max((last, digest), parse_child_value(cursor.value()))
            more = cursor.next()
    return _Need(hidden, None if last < 0 else last, digest)


def _cut(transaction: Transaction, databases: Databases, number: int, last: int, digest: bytes) -> None:
    """Cut the record that holds event `last` behind it: what was deleted is not kept because of its neighbours."""
    with transaction.cursor(db=databases.records) as cursor:
        if not seek(cursor, number, last):
            return
        _, first = parse_record_key(cursor.key())
        record = decode_record(first, cursor.value())
    if record.last > last:
        value = encode_record(record.lines[: last + 1 - first], digest)
        transaction.put(record_key(number, first), value, db=databases.records)


def _drop_records(transaction: Transaction, databases: Databases, number: int, first: int) -> None:
    """Delete the records under `number` that begin at `first` or behind."""
    with transaction.cursor(db=databases.records) as cursor:
        while cursor.set_range(record_key(number, first)) and cursor.key() <= record_key(number, MAX_U64):
            cursor.delete()


async def rebuild_catalogue(
    commits: CommitQueue,
    leases: Leases,
    seconds: float,
    found: Sequence[SessionId | RefoldError],
    progress: Callable[[int, int], None],
) -> Recount:
    """Rebuild the caches of the sessions that a survey `found`; see `interface.Store.rebuild_catalogue`."""
    changed = 0
    skipped: list[RefoldError] = []
    for done, session in enumerate(found):
        progress(done, len(found))
        if isinstance(session, RefoldError):
            skipped.append(session)
            continue
        try:
            changed += await _recounted(commits, leases, seconds, session)
        except RefoldError as error:  # the others can be counted all the same
            skipped.append(error)
    misplaced = await change(commits, catalog.rebuild_recent, seconds)
    progress(len(found), len(found))
    return Recount(len(found) - len(skipped), changed, misplaced, tuple(skipped))


async def _recounted(commits: CommitQueue, leases: Leases, seconds: float, session: SessionId) -> bool:
    lease = await leases.take(session)
    try:
        environment = commits.environment
        with environment.reading() as transaction:
            row = catalog.find(transaction, environment.databases, session)
        if row is None:  # deleted since the survey
            return False
        summary = await counted_summary(partial(committed_lines, environment, row), row.tail)
        if summary == row.summary and not row.estimated:
            return False
        await change(commits, partial(_put_summary, row=row, summary=summary), seconds)
        return True
    finally:
        lease.release()


def _put_summary(transaction: Transaction, databases: Databases, row: CatalogRow, summary: SessionTotals) -> None:
    """Write the summary into the row as it is now: archiving needs no lease."""
    before = catalog.find(transaction, databases, row.id)
    if before is not None:
        catalog.refuse_later_row(transaction, databases, row.id)
        catalog.put(transaction, databases, replace(before, summary=summary, estimated=False), before)
