"""Opening of an LMDB environment: which folders can hold a store, with which settings LMDB opens it, how a new one
is made.

Never writes into a folder that holds something else than a store of this version. A store that this user may not write is
opened for reading, without locks in LMDB and without one attempt to write; who writes it elsewhere goes on. LMDB opens and
closes it in this process's turn only, and what it found is compared with what the store promised. That a process opens a store
only once is `registry.py`'s business.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.errors import ConfigError, RefoldError, SessionFormatUnsupportedError, StorageFullError
from refold_storage.disk import FULL_ERRNOS, FilesystemOf, is_full, refuse_remote, reserve
from refold_storage.environment import Environment, enlarged, read_only_error
from refold_storage.high_water import (
    MARK_FILE,
    NO_COMMIT,
    HighWaterMark,
    WentBackError,
    count_commit,
    last_commit,
    refuse_lost,
    went_back,
)
from refold_storage.locks import NOTE_FILE, OCCUPANCY_FILE, TURN_SECONDS, OpeningTurn, StoreLock, occupy
from refold_storage.store_format import (
    DATA_FILE,
    LOCK_FILE,
    NAMES,
    Databases,
    check_data_file,
    create_databases,
    meta_of,
    open_databases,
)

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


COPY_FILE: Final = "data.mdb.compact"
"""The unfinished copy of a compaction. One that is found belongs to a process that died."""

NEW_FILE: Final = "data.mdb.new"
"""A new store's data file that is not whole yet. One that is found belongs to a process that died."""

DEFAULT_MAP_BYTES: Final = 1 << 40
"""Map of a store where nothing else is configured: 1 TiB of address space, not of disk."""

MIN_MAP_BYTES: Final = 1 << 20

MAX_READERS: Final = 1024
"""Read transactions that may be open at one time, in all processes."""


class Wanted(Struct, frozen=True):
    """How a store is to be opened: size of the map, in bytes, to begin with and at most; the time to note in a new one;
    whether data that are older than what was promised are accepted."""

    map_bytes: int
    max_bytes: int | None
    now: int
    accept: bool


def open_environment(
    folder: Path,
    *,
    now: int,
    map_bytes: int | None,
    max_bytes: int | None,
    create: bool,
    filesystem: FilesystemOf,
    occupied: Callable[[Path], StoreLock] | None = None,
    accept: bool = False,
) -> Environment:
    """Open the store in `folder`, which this process must not have open.

    `map_bytes` is the size of the map to begin with, `max_bytes` the end of its growth. `now` (epoch ms) is noted in a
    new store, which is made unless `create` is False. `occupied` says that the store is open from now on, in place of
    `occupy`; who gives one means to write, and is refused where that cannot be. Data that lack what the store promised are
    opened with `accept` only, and are what it promised from then on. May wait for the store's write lock, so it is not for the
    event loop's thread. Raises ConfigError for a folder that cannot hold a store, SessionFormatUnsupportedError for one that
    holds something else, StorageFullError, LogBusyError where another process does not end opening it, WentBackError, and
    what `occupied` raises.
    """
    there = _existing(folder)
    _prepare(folder, there, create, filesystem)
    size = max(min(map_bytes or DEFAULT_MAP_BYTES, max_bytes or DEFAULT_MAP_BYTES), MIN_MAP_BYTES)
    wanted = Wanted(size, max_bytes, now, accept)
    try:
        if not is_read_only(folder):
            return _open(folder, there, wanted, occupied or occupy)
        if occupied is not None:
            raise read_only_error(folder)
        return _open_for_reading(folder, wanted)
    except (lmdb.Error, OSError) as error:
        raise _clear_error(folder, error) from error


def _prepare(folder: Path, there: Path, create: bool, filesystem: FilesystemOf) -> None:
    """Make sure that `folder` is there, local, and holds a store of this version or nothing. `there` is the part of its
    path that existed before."""
    try:
        if not create and not (folder / DATA_FILE).exists():
            raise ConfigError("store.path", f"there is no store in {folder}")
        refuse_remote(there, filesystem)
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_data_file(folder)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise _clear_error(folder, error) from error
        raise ConfigError("store.path", f"{folder} cannot hold a store: {error.strerror}") from None


def is_read_only(folder: Path) -> bool:
    """Tell whether a file without which nothing can be written to the store in `folder` may not be written, or not be made.
    Asks and does not try."""
    effective = os.access in os.supports_effective_ids
    for path in (folder / name for name in (DATA_FILE, LOCK_FILE, OCCUPANCY_FILE, MARK_FILE, NOTE_FILE)):
        asked, access = (path, os.R_OK | os.W_OK) if os.path.lexists(path) else (folder, os.W_OK | os.X_OK)
        if not os.access(asked, access, effective_ids=effective):
            return True
    return False


def _existing(folder: Path) -> Path:
    """Give the nearest part of the path that exists and may be seen: a new folder will lie in it and on its file system."""
    for part in (folder, *folder.absolute().parents):
        if os.path.exists(part):  # noqa: PTH110 - `Path.exists` raises where that is forbidden
            return part
    return folder


def _open(folder: Path, there: Path, wanted: Wanted, occupied: Callable[[Path], StoreLock]) -> Environment:
    """Say that the store is open, then open it: whoever waits while a compaction replaces the data file must not have it
    open. LMDB's lock file tells the next opener of the last transaction as long as anybody has it open, and that number is
    the old file's: the new one would look empty."""
    with ExitStack() as undo:
        turn = OpeningTurn(folder)
        undo.callback(turn.release)
        with turn.taken(TURN_SECONDS):
            _look_at_foreign(folder)
        occupancy = occupied(folder)
        undo.callback(occupancy.release)
        mark = HighWaterMark(folder)
        undo.callback(mark.close)
        with turn.taken(TURN_SECONDS):
            if not check_data_file(folder):
                _make(folder, there, wanted, mark)
            environment = _trusted(folder, wanted, mark)
        undo.callback(_close, environment, turn)
        databases = _databases(environment, folder, wanted, mark)
        _keep_from_children(folder / DATA_FILE)
        (folder / COPY_FILE).unlink(missing_ok=True)
        opened = Environment(environment, databases, folder, wanted.max_bytes, occupancy, turn, mark)
        undo.pop_all()
        return opened


def _open_for_reading(folder: Path, wanted: Wanted) -> Environment:
    """Open a store that may only be read. What was promised and is not there is told, and the rest is read: nothing is
    appended to it here. Its pages may be used again by a writer elsewhere after two commits, which a view is too short for."""
    with ExitStack() as undo:
        turn = OpeningTurn(folder)
        undo.callback(turn.release)
        occupancy = occupy(folder, read_only=True)
        undo.callback(occupancy.release)
        mark = HighWaterMark(folder, read_only=True)
        undo.callback(mark.close)
        if not check_data_file(folder):
            raise ConfigError("store.path", f"there is no store in {folder}, and none can be made: it may only be read")
        environment = _mapped(folder, wanted.map_bytes, readonly=True)
        undo.callback(environment.close)
        try:
            _compare(environment, folder, wanted, mark)
        except WentBackError as error:
            _LOG.warning("%s", error.message)
        databases = _databases_for_reading(environment, folder)
        _keep_from_children(folder / DATA_FILE)
        opened = Environment(environment, databases, folder, wanted.max_bytes, occupancy, turn, mark, read_only=True)
        undo.pop_all()
        return opened


def _databases_for_reading(environment: lmdb.Environment, folder: Path) -> Databases:
    while True:
        try:
            return open_databases(environment, None, folder)
        except lmdb.MapResizedError:  # another process grew the map
            environment.set_mapsize(enlarged(environment, folder))


def _look_at_foreign(folder: Path) -> None:
    """Make sure that a folder which never was a store's, or in which no process has the data file open, holds a store of
    this version or nothing, and leave no trace in any other."""
    closed = not (folder / LOCK_FILE).exists()
    if not check_data_file(folder) or ((folder / OCCUPANCY_FILE).exists() and not closed):
        return
    environment = _mapped(folder, MIN_MAP_BYTES, readonly=closed)
    try:
        with _reading(environment, folder) as transaction:
            meta_of(environment, transaction, folder)
    finally:
        environment.close()


def _make(folder: Path, there: Path, wanted: Wanted, mark: HighWaterMark) -> None:
    """Make a new store's data file beside its place, and have it there whole: a disk that is full leaves nothing."""
    promised = mark.newest()
    if promised != NO_COMMIT and not wanted.accept:
        raise WentBackError(went_back(folder, f"its data file is empty, and commit {promised.number} was promised"))
    new = folder / NEW_FILE
    new.unlink(missing_ok=True)
    try:
        environment = lmdb.open(
            str(new), MIN_MAP_BYTES, subdir=False, mode=0o600, lock=False, max_dbs=len(NAMES), lib_version=0
        )
        try:
            with environment.begin(write=True) as transaction:
                count_commit(transaction, create_databases(environment, transaction, wanted.now), promised)
        finally:
            environment.close()
        new.replace(folder / DATA_FILE)
    finally:
        new.unlink(missing_ok=True)
    _sync_folders(folder, there)


def _trusted(folder: Path, wanted: Wanted, mark: HighWaterMark) -> lmdb.Environment:
    """Have LMDB open the data file, and see whether it found all that was promised. If not, once more: what it took from its
    lock file may have been left by a process that died, and who opens it alone sets that right."""
    _reserve_lock_file(folder / LOCK_FILE)
    for last_try in (False, True):
        environment = _mapped(folder, wanted.map_bytes, readonly=False)
        try:
            _compare(environment, folder, wanted, mark)
        except (WentBackError, lmdb.InvalidParameterError):  # the latter is LMDB's word for a mutex that was destroyed
            environment.close()
            if last_try:
                raise
        except BaseException:
            environment.close()
            raise
        else:
            return environment
    raise AssertionError("the second try ends it")


def _compare(environment: lmdb.Environment, folder: Path, wanted: Wanted, mark: HighWaterMark) -> None:
    promised = mark.newest()  # first: what is committed from here on is in the view as well
    with _reading(environment, folder) as transaction:
        if transaction.stat()["entries"] == 0:
            raise WentBackError(went_back(folder, "LMDB sees nothing in it"))
        meta = meta_of(environment, transaction, folder)
        if not wanted.accept:
            refuse_lost(folder, promised, last_commit(transaction, meta), transaction.id())


def _reserve_lock_file(path: Path) -> None:
    """Have LMDB's lock file on the disk, because LMDB makes it sparse and writes to it through a map. Where somebody has it
    open, that was done."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # as LMDB does, to see whether anybody else is there
        reserve(path, _LOCK_HEAD_BYTES + MAX_READERS * _READER_BYTES)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
    finally:
        os.close(file)


def _databases(environment: lmdb.Environment, folder: Path, wanted: Wanted, mark: HighWaterMark) -> Databases:
    """Open the databases for as long as `environment` lives, and with `accept` make its data what is promised from now on."""
    environment.reader_check()  # slots of dead readers are freed
    while True:
        try:
            with environment.begin(write=True) as transaction:
                databases = open_databases(environment, transaction, folder)
                last, promised = last_commit(transaction, databases.meta), mark.newest()
                if wanted.accept:
                    last = count_commit(transaction, databases.meta, max(last, promised))
                else:
                    refuse_lost(folder, promised, last, transaction.id() - 1)
        except lmdb.MapResizedError:  # another process grew the map
            environment.set_mapsize(enlarged(environment, folder))
        else:
            if last > promised:  # this was accepted, or a process died before it noted its commit
                mark.put(last)
            return databases


@contextmanager
def _reading(environment: lmdb.Environment, folder: Path) -> Generator[Transaction]:
    while True:
        try:
            transaction = environment.begin()
            break
        except lmdb.MapResizedError:  # another process grew the map
            environment.set_mapsize(enlarged(environment, folder))
    try:
        yield transaction
    finally:
        transaction.abort()


def _close(environment: lmdb.Environment, turn: OpeningTurn) -> None:
    with turn.taken(TURN_SECONDS):
        environment.close()


def _mapped(folder: Path, size: int, *, readonly: bool) -> lmdb.Environment:
    """Open with the largest map that the process may have, from `size` downwards by halves. Where another process writes
    more than `size`, LMDB begins with a map that just holds the file, and may find it outgrown before it has opened it."""
    while True:
        try:
            return lmdb.open(
                str(folder),
                size,
                mode=0o700,
                create=False,
                readonly=readonly,
                lock=not readonly,
                sync=True,
                metasync=True,
                writemap=False,
                max_readers=MAX_READERS,
                max_dbs=len(NAMES),
                lib_version=0,
            )
        except lmdb.MemoryError:
            if size <= MIN_MAP_BYTES:
                raise
            size = max(size // 2, MIN_MAP_BYTES)
        except lmdb.MapResizedError:
            size *= 2


def _keep_from_children(data: Path) -> None:
    """Mark the descriptors of the data file as not to be inherited: LMDB does so for its lock file only."""
    wanted = data.stat()
    for entry in Path("/dev/fd").iterdir():
        try:
            if os.path.samestat(os.fstat(int(entry.name)), wanted):
                os.set_inheritable(int(entry.name), False)
        except OSError:  # the descriptor that listed the folder is closed again
            continue


def _sync_folders(folder: Path, there: Path) -> None:
    """Make the names of a new store durable, up to the folder that was there before: LMDB syncs files, not folders."""
    for part in (folder, *folder.parents):
        sync_folder(part)
        if part == there:
            break


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without syncing of folders has nothing to lose
            raise
    finally:
        os.close(file)


def _clear_error(folder: Path, error: lmdb.Error | OSError) -> RefoldError:
    if is_full(error, folder / DATA_FILE, _NEW_BYTES):
        return StorageFullError(f"no space left for a store in {folder}")
    if isinstance(error, _UNREADABLE):
        return SessionFormatUnsupportedError(f"{folder} holds no store that this release of refold reads: {error}")
    return ConfigError("store.path", f"the store in {folder} cannot be opened: {error}")


_UNREADABLE: Final = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.InvalidParameterError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
"""What LMDB raises for a file that it cannot make sense of."""

_LOG: Final = logging.getLogger(__name__)
_LOCK_HEAD_BYTES: Final = 128
_READER_BYTES: Final = 64
"""The parts of LMDB's lock file: its head, and a cache line for each reader (MDB_txninfo and MDB_reader of mdb.c)."""

_NEW_BYTES: Final = 1 << 16
"""What an opening may have to write, generously: a new store's first pages."""
