"""The high-water mark of a store: the newest commit that was ever told as durable, and the check that the data still has it.

Each write transaction counts itself in a row of the `meta` database, together with its number in LMDB. After the commit,
before anybody is told, the same pair goes into a file of the store's folder. Whatever LMDB, a file system or a restored copy
does: where the data has less than the file, nothing is committed. The file is not synced: it outlives every process, and
after a power cut it may know too little, never too much.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.errors import LogUnwritableError
from refold_storage.disk import FULL_ERRNOS, reserve
from refold_storage.store_format import COMMIT_ROW, Database

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]

MARK_FILE: Final = "commits.mark"


class Commit(Struct, frozen=True, order=True):
    """A commit of a store: its number, from 1 and never used twice, and the number that its transaction had in LMDB, which
    begins anew with the file of a compaction."""

    number: int
    transaction: int


NO_COMMIT: Final = Commit(0, 0)


class WentBackError(LogUnwritableError):
    """The data of a store are older than what it promised, or LMDB is about to count its transactions anew."""


class HighWaterMark:
    """The file of one store. Places for SLOTS commits, each at its number modulo SLOTS: so a process that comes late with
    its own never overwrites a newer one, and nobody has to lock the file. With `read_only` it is only looked at."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        path = folder / MARK_FILE
        self._file = -1
        if read_only:
            with suppress(FileNotFoundError, PermissionError):  # then nothing is known of what was promised
                self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return
        try:
            reserve(path, _BYTES)  # a later write to it must not need space
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def newest(self) -> Commit:
        """Give the newest commit of which the file knows; NO_COMMIT where it knows none. A place that is empty or was
        written in part counts as empty."""
        data = os.pread(self._file, _BYTES, 0) if self._file >= 0 else b""
        places = _PLACE.iter_unpack(data[: len(data) - len(data) % _PLACE.size])
        return max((Commit(n, t) for n, t, check in places if n and check == _check(n, t)), default=NO_COMMIT)

    def put(self, commit: Commit) -> None:
        """Note a commit that is on the disk."""
        number, transaction = commit.number, commit.transaction
        place = _PLACE.pack(number, transaction, _check(number, transaction))
        try:
            os.pwrite(self._file, place, number % SLOTS * _PLACE.size)
        except OSError:  # the commit is durable all the same; only this check of it is missing
            return

    def close(self) -> None:
        """Close the file; it stays."""
        if self._file >= 0:
            os.close(self._file)


def last_commit(transaction: Transaction, meta: Database) -> Commit:
    """Give the commit that the data of a store end with; NO_COMMIT in a store of a release that did not count."""
    row = transaction.get(COMMIT_ROW, db=meta)
    if row is None:
        return NO_COMMIT
    number, _, in_lmdb = row.partition(b" ")
    return Commit(int(number), int(in_lmdb))


def count_commit(transaction: Transaction, meta: Database, after: Commit) -> Commit:
    """Count the write transaction that is running as the one after `after`, and give what it is."""
    commit = Commit(after.number + 1, transaction.id())
    transaction.put(COMMIT_ROW, b"%d %d" % (commit.number, commit.transaction), db=meta)
    return commit


def refuse_lost(folder: Path, mark: Commit, last: Commit, before: int) -> None:
    """Raise WentBackError where data that end with `last` do not have the commit of the `mark`, or where LMDB takes the
    transaction number `before` for the newest one that it has."""
    if last.number < mark.number or (last.number == mark.number and last != mark):
        raise WentBackError(went_back(folder, f"it ends with commit {last.number}, and {mark.number} was promised"))
    if before < last.transaction:
        raise WentBackError(went_back(folder, f"LMDB counts from transaction {before}, and {last.transaction} was written"))


def went_back(folder: Path, what: str) -> str:
    """Give the message of an error about a store whose numbers went back."""
    return (
        f"the store in {folder} is older than what was kept in it ({what}), so nothing is written; end every refold that has "
        "it open and start again; if an old copy was restored on purpose, `refold store accept` accepts it"
    )


def _check(number: int, transaction: int) -> int:
    return zlib.crc32(b"%d %d" % (number, transaction))


SLOTS: Final = 16
_PLACE: Final = struct.Struct("<QQQ")
"""Number, transaction, checksum of both."""

_BYTES: Final = SLOTS * _PLACE.size
