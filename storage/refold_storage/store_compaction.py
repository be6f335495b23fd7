"""Compaction of a store: its data file is copied without what is free, and the copy takes its place in one rename.

Only this shrinks the file, and only this makes the bytes of deleted sessions vanish from it. The store must be open
nowhere; while this runs nobody can open it. A process that is killed at whatever moment leaves the old file or the new
one, both whole. Never changes an event.
"""

from __future__ import annotations

import os
from pathlib import Path

import lmdb
from msgspec import Struct

from refold_protocol.errors import LogBusyError, LogUnwritableError, StorageFullError
from refold_storage.changes import hidden_numbers, shed
from refold_storage.commit import FailPoint, no_fault
from refold_storage.disk import FilesystemOf, filesystem_type, is_full
from refold_storage.environment import Environment
from refold_storage.high_water import Commit, count_commit, last_commit
from refold_storage.lease import holdings
from refold_storage.locks import StoreLock, occupy_alone
from refold_storage.shared_environments import REGISTRY
from refold_storage.store_format import DATA_FILE, NAMES
from refold_storage.store_opening import COPY_FILE, MIN_MAP_BYTES, open_environment, sync_folder


class Compacted(Struct, frozen=True):
    """What a compaction did: size of the data file before and after, in bytes; lock files of sessions that are gone and
    leftovers of broken imports that were removed."""

    before_bytes: int
    after_bytes: int
    leases: int
    leftovers: int


def compact_store(
    path: Path | str, *, filesystem: FilesystemOf = filesystem_type, fail_point: FailPoint = no_fault
) -> Compacted:
    """Compact the store in the folder `path`. Blocks; needs as much free space as the store holds.

    `fail_point` is called at the stages `swept`, `copied`, `replaced`. Raises LogBusyError when any process has the store
    open (this one included) or holds the lease of a session, ConfigError and SessionFormatUnsupportedError as
    `open_store` does, StorageFullError, LogUnwritableError; the store is as it was then.
    """
    folder = Path(path).expanduser().resolve()
    if REGISTRY.has(folder):
        raise LogBusyError(f"this process has the store in {folder} open")
    holds: list[StoreLock] = []

    def alone(place: Path) -> StoreLock:
        holds.append(occupy_alone(place))
        return holds[0].again()

    try:
        environment = open_environment(
            folder, now=0, map_bytes=None, max_bytes=None, create=False, filesystem=filesystem, occupied=alone
        )
        try:
            return _compacted(folder, environment, fail_point)
        finally:
            environment.close()
    finally:
        for hold in holds:
            hold.release()


def _compacted(folder: Path, environment: Environment, fail_point: FailPoint) -> Compacted:
    if held := holdings(folder):
        pid = None if held[0].holder is None else held[0].holder.pid
        raise LogBusyError("a session of the store is open for writing; close it first", holder=pid)
    data, copy = folder / DATA_FILE, folder / COPY_FILE
    before = data.stat().st_size
    try:
        leftovers, sessions = _sweep_origins(environment)
        fail_point("swept")
        _copy(environment, copy)
        fail_point("copied")
        if not environment.close():
            raise LogBusyError(f"another process does not end opening or closing the store in {folder}; nothing was changed")
        copy.replace(data)
        sync_folder(folder)
        fail_point("replaced")
    except (lmdb.Error, OSError) as error:
        if is_full(error, data, before):
            raise StorageFullError(f"no space left to compact the store in {folder}: it needs {before} bytes more") from error
        raise LogUnwritableError(f"the store in {folder} could not be compacted: {error}") from error
    finally:
        copy.unlink(missing_ok=True)
    return Compacted(before, data.stat().st_size, _sweep_leases(folder, sessions), leftovers)


def _sweep_origins(environment: Environment) -> tuple[int, frozenset[str]]:
    """Delete records that neither a session nor a fork needs. Gives how many numbers they had, and the names of the lease
    files that are still needed."""
    with environment.writing() as transaction:
        databases = environment.databases
        hidden = hidden_numbers(transaction, databases)
        for number in hidden:
            shed(transaction, databases, number)
        left = hidden_numbers(transaction, databases)
        with transaction.cursor(db=databases.sessions) as cursor:
            sessions = frozenset(key.hex() for key in cursor.iternext(keys=True, values=False))
    return len(hidden) - len(left), sessions


def _copy(environment: Environment, copy: Path) -> None:
    """Write a compact copy that is on the disk and holds as much as the original, row by row counted."""
    copy.unlink(missing_ok=True)
    file = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        environment.copy_to(file)
        os.fsync(file)
    finally:
        os.close(file)
    with environment.reading() as transaction:
        databases = environment.databases
        expected = [transaction.stat(getattr(databases, name.decode()))["entries"] for name in NAMES]
        last = last_commit(transaction, databases.meta)
    if _counted_copy(copy, last) != expected:
        raise LogUnwritableError(f"the compact copy does not hold what the store holds; {copy.parent} is as it was")


def _counted_copy(file: Path, last: Commit) -> list[int]:
    """Note in a copy, in which LMDB begins to count anew, that it is a commit after `last`. Gives the rows of each of its
    databases. Nobody else has the file open."""
    size = 2 * file.stat().st_size + MIN_MAP_BYTES
    environment = lmdb.open(str(file), size, subdir=False, lock=False, max_dbs=len(NAMES), lib_version=0)
    try:
        databases = [environment.open_db(name, create=False) for name in NAMES]
        with environment.begin(write=True) as transaction:
            count_commit(transaction, databases[NAMES.index(b"meta")], last)
            return [transaction.stat(database)["entries"] for database in databases]
    finally:
        environment.close()


def _sweep_leases(folder: Path, sessions: frozenset[str]) -> int:
    """Remove the lock files of sessions that are not there: with the store open nowhere, nobody can be taking them."""
    swept = 0
    for path in (folder / "leases").glob("*/*"):
        if path.name.split(".")[0] not in sessions:
            path.unlink(missing_ok=True)
            swept += 1
    return swept
