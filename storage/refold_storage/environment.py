"""One LMDB environment of a store in this process: its transactions, the gate around them, and the map's size.

Rules that nothing else has to know: read transactions are short and never nested; the map is changed only while no
transaction of this process is open; it grows up to a configured end, and follows when another process grew it. After a
commit failed for a reason that is not space, or after a fork, the environment is unusable for good. Knows nothing of
sessions.

Vitals of a store, without reading any log: its size, its map, who reads it right now.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.errors import LogBusyError, LogUnwritableError, SessionCorruptionError
from refold_storage.high_water import Commit, HighWaterMark, count_commit, last_commit, refuse_lost
from refold_storage.interface import Reader, Vitals
from refold_storage.locks import TURN_SECONDS, HolderNote, OpeningTurn, StoreLock
from refold_storage.store_format import DATA_FILE, Databases

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


class Figures(Struct, frozen=True, gc=False):
    """What LMDB and the file system say of a data file."""

    file_bytes: int
    used_bytes: int
    map_bytes: int
    sessions: int


class Environment:
    """An open environment. `reading` may be called from any thread, `writing` and `grow` from the commit thread."""

    def __init__(
        self,
        environment: lmdb.Environment,
        databases: Databases,
        folder: Path,
        max_bytes: int | None,
        occupancy: StoreLock,
        turn: OpeningTurn,
        mark: HighWaterMark,
        *,
        read_only: bool = False,
    ) -> None:
        self.databases: Final = databases
        self.folder: Final = folder
        self.read_only: Final = read_only
        self.note: Final = HolderNote(folder, read_only=read_only)
        self._environment = environment
        self._file: Final = (folder / DATA_FILE).stat()
        self._occupancy = occupancy
        self._turn = turn
        self._mark = mark
        self._max_bytes = max_bytes
        self._unusable: str | None = None
        self._closed = False
        # Order where both are taken: writes, then reads. Growing takes both; a follower of another process's growth too.
        self._writes = threading.RLock()
        self._reads = threading.Lock()
        self._readers_checked = time.monotonic()

    @property
    def unusable(self) -> str | None:
        """Why nothing can be read or written any more; None while all is well."""
        return self._unusable

    @property
    def map_bytes(self) -> int:
        """Size of the map: how large the data file may become before the map grows."""
        return self._environment.info()["map_size"]

    @property
    def syncs(self) -> bool:
        """Whether each commit is on the disk, data and meta page, when it returns, without a writable map."""
        flags = self._environment.flags()
        return flags["sync"] and flags["metasync"] and not flags["writemap"]

    def mark_failed(self, reason: str) -> None:
        """Make the environment unusable for good."""
        self._unusable = self._unusable or reason

    def check_writable(self) -> None:
        """Raise LogUnwritableError where the store may only be read."""
        if self.read_only:
            raise read_only_error(self.folder)

    def last_transaction(self) -> int:
        """Give the number of the last committed transaction, of whatever process: it rises when anything changed."""
        self._check_usable()
        with self._reads:  # LMDB looks into the map for it, which must not be changed meanwhile
            return self._environment.info()["last_txnid"]

    def see_newest(self) -> None:
        """Have views see all that is committed. A process that is killed between its commit and telling LMDB's lock file of it
        leaves everybody with the view before, until somebody takes the write lock, which waits for who has it."""
        with self.reading() as transaction:
            seen = transaction.id()
        if self.last_transaction() > seen:
            with self._writes:
                self._begin_writing().abort()

    @contextmanager
    def reading(self) -> Generator[Transaction]:
        """A read transaction: a view that does not change. For the length of a few records, never across a yield. Raises
        SessionCorruptionError for a page that is not what it should be."""
        transaction = self._begin_reading()
        try:
            yield transaction
        except lmdb.Error as error:
            raise SessionCorruptionError(f"the data file of the store in {self.folder} is damaged: {error}") from error
        finally:
            try:
                transaction.abort()
            finally:
                self._reads.release()

    @contextmanager
    def writing(self) -> Generator[Transaction]:
        """The write transaction: waits for LMDB's write lock, commits with full sync at the end of the block, and rolls
        back when the block raises. What LMDB raises comes through as it is. Raises LogUnwritableError when the data file is
        not where it was, because what is written then vanishes with this process, when it lacks what was promised, and when it
        may only be read."""
        self._check_usable()
        self.check_writable()
        with self._writes:
            self._check_there()
            self._check_readers()
            transaction = self._begin_writing()
            self.note.claim()
            try:
                commit = self._counted(transaction)
                yield transaction
            except BaseException:
                transaction.abort()
                raise
            transaction.commit()
            self._mark.put(commit)

    def grow(self) -> bool:
        """Double the map, up to the configured end. False when that is reached or the address space is used up."""
        with self._writes:
            size = self._environment.info()["map_size"]
            wanted = size * 2 if self._max_bytes is None else min(size * 2, self._max_bytes)
            wanted -= wanted % mmap.PAGESIZE
            if wanted <= size or not _fits_address_space(wanted):
                return False
            self._remap(wanted)
            return True

    def figures(self) -> Figures:
        """Give the sizes of file and map, in bytes, and the number of sessions."""
        with self.reading() as transaction:
            sessions = transaction.stat(self.databases.sessions)["entries"]
            info, pages = self._environment.info(), self._environment.stat()["psize"]
        blocks = (self.folder / DATA_FILE).stat().st_blocks
        return Figures(blocks * 512, (info["last_pgno"] + 1) * pages, info["map_size"], sessions)

    def open_readers(self) -> str:
        """Give LMDB's table of open read transactions, of all processes, as text."""
        return self._environment.readers()

    def close(self, timeout: float = -1) -> bool:
        """Close the environment behind a transaction that runs, or waits for another process. Gives False, and closes
        nothing, where that is not over within `timeout` seconds (−1: waits however long it takes), or where another process
        does not end opening or closing the store. Idempotent."""
        if not self._writes.acquire(timeout=timeout):
            return False
        try:
            with self._reads:
                if not self._closed:
                    with self._turn.taken(timeout if timeout >= 0 else TURN_SECONDS):
                        self._environment.close()
                    self._closed = True
                    self.mark_failed("the store was closed")
                    self.note.close()
                    self._mark.close()
                    self._turn.release()
                    self._occupancy.release()
        except LogBusyError:  # somebody who opens or closes it does not get on with that
            return False
        finally:
            self._writes.release()
        return True

    def copy_to(self, file: int) -> None:
        """Write a compact copy of everything to a descriptor. Blocks; what LMDB raises comes through as it is."""
        self._check_usable()
        self._environment.copyfd(file, compact=True)

    def _begin_reading(self) -> Transaction:
        checked = False
        while True:
            self._check_usable()  # before the lock: in a forked child it may be held by a thread that is not there
            self._reads.acquire()
            try:
                return self._environment.begin()
            except lmdb.MapResizedError:  # another process grew the map; followed below, then tried again
                self._reads.release()
                self._follow()
            except lmdb.ReadersFullError:
                self._reads.release()
                if checked:
                    raise LogBusyError("more processes read the store at once than it has places for") from None
                checked = True
                self._environment.reader_check()  # slots of dead processes are freed
            except lmdb.Error as error:
                self._reads.release()
                raise LogUnwritableError(f"the store in {self.folder} cannot be read: {error}") from error
            except BaseException:
                self._reads.release()
                raise

    def _counted(self, transaction: Transaction) -> Commit:
        """Count a write transaction, which holds the write lock, once it is sure that it goes on from the newest commit."""
        last = last_commit(transaction, self.databases.meta)
        refuse_lost(self.folder, self._mark.newest(), last, transaction.id() - 1)
        return count_commit(transaction, self.databases.meta, last)

    def _begin_writing(self) -> Transaction:
        while True:
            try:
                return self._environment.begin(write=True)
            except lmdb.MapResizedError:  # as above
                self._catch_up()

    def _follow(self) -> None:
        if not self._writes.acquire(timeout=_FOLLOW_SECONDS):
            raise LogBusyError("another process enlarged the store while a commit of this one waits", holder=self.note.read())
        try:
            self._catch_up()
        finally:
            self._writes.release()

    def _catch_up(self) -> None:
        """Double the map, as often as it takes until it holds what another process wrote."""
        self._remap(enlarged(self._environment, self.folder))

    def _remap(self, size: int) -> None:
        with self._reads:
            self._environment.set_mapsize(size)

    def _check_usable(self) -> None:
        if self._unusable is not None:
            raise LogUnwritableError(self._unusable)

    def _check_there(self) -> None:
        try:
            there = os.path.samestat((self.folder / DATA_FILE).stat(), self._file)
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError:  # a folder that may not be looked into any more, say: the file is in it all the same
            return
        if not there:
            raise LogUnwritableError(
                f"the store in {self.folder} was removed, moved or replaced while it was open, so nothing can be kept in it "
                "any more; end this process and start again"
            )

    def _check_readers(self) -> None:
        """Free the slots of dead readers now and then: each pins the pages that were current when it died."""
        now = time.monotonic()
        if now - self._readers_checked >= _READER_CHECK_SECONDS:
            self._readers_checked = now
            self._environment.reader_check()


def read_only_error(folder: Path) -> LogUnwritableError:
    """Give the error of whoever would write to a store that may only be read."""
    return LogUnwritableError(
        f"the store in {folder} may only be read here (its permissions or its file system do not let this user write), so "
        "nothing can be kept or changed in it; name another one with --store or store.path"
    )


def enlarged(environment: lmdb.Environment, folder: Path) -> int:
    """Give twice the size of the map, for a store that another process enlarged. That one's map may be of a size that this
    process cannot have, and LMDB does not outlive an attempt at it: LogUnwritableError then."""
    size = environment.info()["map_size"] * 2
    if not _fits_address_space(size):
        raise LogUnwritableError(
            f"the store in {folder} has become larger than the address space that this process may have: a map of "
            f"{size} bytes is refused; raise the limit (ulimit -v) and start again"
        )
    return size


def _fits_address_space(size: int) -> bool:
    """Whether a map of `size` bytes can be had beside the present one; a failed enlargement would cost the environment."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
    except (OSError, OverflowError, ValueError):  # refused by a limit of the process or by the machine
        return False
    return True


_FOLLOW_SECONDS: Final = 5.0
_READER_CHECK_SECONDS: Final = 60.0


def vitals(environment: Environment, path: str, format_version: int) -> Vitals:
    """Look at a store. Raises LogUnwritableError when its environment is unusable."""
    figures = environment.figures()
    return Vitals(
        path,
        format_version,
        figures.file_bytes,
        figures.used_bytes,
        figures.map_bytes,
        figures.sessions,
        environment.last_transaction(),
        _readers(environment.open_readers()),
    )


def _readers(table: str) -> tuple[Reader, ...]:
    """Read LMDB's table: a heading, then process, thread and transaction in each line; `-` where a slot is idle."""
    readers: list[Reader] = []
    for line in table.split("\n"):
        words = line.split()
        if len(words) == 3 and words[0].isdigit() and words[2].isdigit():
            readers.append(Reader(int(words[0]), int(words[2])))
    return tuple(readers)
