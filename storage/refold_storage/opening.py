"""Owns how an environment is opened: which folders can hold a store, with which settings LMDB opens it, how a new one
is made.

Never writes into a folder that holds something else than a store of this version. That a process opens a store only once
is `registry.py`'s business.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import lmdb

from refold_protocol.errors import ConfigError, RefoldError, SessionFormatUnsupportedError, StorageFullError
from refold_storage.environment import Environment
from refold_storage.filesystem import FilesystemOf, refuse_remote
from refold_storage.format import (
    DATA_FILE,
    LOCK_FILE,
    NAMES,
    check_data_file,
    create_databases,
    is_new,
    open_databases,
)
from refold_storage.occupancy import OCCUPANCY_FILE, Occupancy, occupy
from refold_storage.space import FULL_ERRNOS

COPY_FILE: Final = "data.mdb.compact"
"""The unfinished copy of a compaction. One that is found belongs to a process that died."""

DEFAULT_MAP_BYTES: Final = 1 << 40
"""Map of a store where nothing else is configured: 1 TiB of address space, not of disk."""

MIN_MAP_BYTES: Final = 1 << 20

MAX_READERS: Final = 1024
"""Read transactions that may be open at one time, in all processes."""


def open_environment(
    folder: Path,
    *,
    now: int,
    map_bytes: int | None,
    max_bytes: int | None,
    create: bool,
    filesystem: FilesystemOf,
    occupied: Callable[[Path], Occupancy] = occupy,
) -> Environment:
    """Open the store in `folder`, which this process must not have open.

    `map_bytes` is the size of the map to begin with, `max_bytes` the end of its growth. `now` (epoch ms) is noted in a
    new store, which is made unless `create` is False. `occupied` says that the store is open from now on. May wait for
    the store's write lock, so it is not for the event loop's thread. Raises ConfigError for a folder that cannot hold a
    store, SessionFormatUnsupportedError for one that holds something else, StorageFullError, and what `occupied` raises.
    """
    there = _existing(folder)
    _prepare(folder, there, create, filesystem)
    size = max(min(map_bytes or DEFAULT_MAP_BYTES, max_bytes or DEFAULT_MAP_BYTES), MIN_MAP_BYTES)
    try:
        return _open(folder, there, size, now, max_bytes, occupied)
    except (lmdb.Error, OSError) as error:
        raise _clear_error(folder, error) from error


def _prepare(folder: Path, there: Path, create: bool, filesystem: FilesystemOf) -> None:
    """Make sure that `folder` is there, local, and holds a store of this version or nothing. `there` is the part of its
    path that existed before."""
    data = folder / DATA_FILE
    try:
        if not create and not data.exists():
            raise ConfigError("store.path", f"there is no store in {folder}")
        refuse_remote(there, filesystem)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_data_file(folder)
        unlocked = data.exists() and data.stat().st_size > 0 and not (folder / LOCK_FILE).exists()
    except OSError as error:
        raise ConfigError("store.path", f"{folder} cannot hold a store: {error.strerror}") from None
    if unlocked:
        _look_without_locks(folder)


def _existing(folder: Path) -> Path:
    """Give the nearest part of the path that exists and may be seen: a new folder will lie in it and on its file system."""
    for part in (folder, *folder.absolute().parents):
        if os.path.exists(part):  # noqa: PTH110 - `Path.exists` raises where that is forbidden
            return part
    return folder


def _look_without_locks(folder: Path) -> None:
    """Check a data file without a lock file, which means that no process has it open, and leave no trace."""
    try:
        environment = _mapped(folder, MIN_MAP_BYTES, readonly=True)
        try:
            is_new(environment, folder)
        finally:
            environment.close()
    except lmdb.Error as error:
        raise _clear_error(folder, error) from error


def _open(
    folder: Path, there: Path, size: int, now: int, max_bytes: int | None, occupied: Callable[[Path], Occupancy]
) -> Environment:
    environment, occupancy = _occupied(folder, size, occupied)
    try:
        environment.reader_check()
        with environment.begin(write=True) as transaction:
            new = is_new(environment, folder)  # asked again, now that no other process can be making it
            if new:
                create_databases(environment, transaction, now)
            databases = open_databases(environment, transaction, folder)
        if new:
            _sync_folders(folder, there)
        _keep_from_children(folder / DATA_FILE)
        (folder / COPY_FILE).unlink(missing_ok=True)
        return Environment(environment, databases, folder, max_bytes, occupancy)
    except BaseException:
        environment.close()
        occupancy.release()
        raise


def _occupied(folder: Path, size: int, occupied: Callable[[Path], Occupancy]) -> tuple[lmdb.Environment, Occupancy]:
    """Say that the store is open, then open the data file: whoever waits while a compaction replaces it must not have it
    open. LMDB's lock file tells the next opener of the last transaction as long as anybody has it open, and that number is
    the old file's: the new one would look empty. A folder that never was a store's is looked at before, because one of
    somebody else must stay as it is."""
    if not (folder / OCCUPANCY_FILE).exists():
        environment = _mapped(folder, size, readonly=False)
        try:
            is_new(environment, folder)
        finally:
            environment.close()
    occupancy = occupied(folder)
    try:
        return _mapped(folder, size, readonly=False), occupancy
    except BaseException:
        occupancy.release()
        raise


def _mapped(folder: Path, size: int, *, readonly: bool) -> lmdb.Environment:
    """Open with the largest map that the process may have, from `size` downwards by halves."""
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
    if isinstance(error, lmdb.DiskError) or (isinstance(error, OSError) and error.errno in FULL_ERRNOS):
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
