"""Format of a store: LMDB's file header, the `meta` database, and the set of databases of format version 0.

Only looks, except for `create_databases`, which makes a new store in one transaction. Whatever is not a store of this
version is refused before a byte is written: it may be somebody else's data.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.errors import SessionFormatUnsupportedError
from refold_protocol.session.events import FORMAT_VERSION

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


DATA_FILE: Final = "data.mdb"
LOCK_FILE: Final = "lock.mdb"

Database: TypeAlias = Any
"""An open database of an environment: lmdb's own handle, whose type has no public name."""

COMMIT_ROW: Final = b"commits"
"""The row of `meta` that counts commits: their number, and that of the last one's transaction in LMDB, as decimal text."""

NAMES: Final = (b"meta", b"sessions", b"records", b"recent", b"children", b"blobs")
"""Every database of a store."""


class Databases(Struct, frozen=True):
    """The open databases of one environment, in the order of NAMES."""

    meta: Database
    sessions: Database
    records: Database
    recent: Database
    children: Database
    blobs: Database


def check_data_file(folder: Path) -> bool:
    """Look at the header of the data file in `folder`, and tell whether something is in it: one that is absent, empty, or a
    database without any entry becomes a new store.

    Raises SessionFormatUnsupportedError for a file that is no LMDB database, one of LMDB 1.0's format, and one that was
    cut off so far that LMDB would read past its end, which kills the process.
    """
    try:
        with (folder / DATA_FILE).open("rb") as file:
            if file.seek(0, 2) == 0:
                return False
            first = _meta(folder, file, 0)
            second = _meta(folder, file, first.page_size)
            size = file.seek(0, 2)  # asked last: another process may be enlarging the file
    except FileNotFoundError:
        return False
    newest = max(first, second, key=lambda meta: meta.transaction)
    if any((root + 1) * newest.page_size > size for root in newest.roots if root != _NO_PAGE):
        raise _foreign(folder, "its data file was cut off")
    return newest.roots[1] != _NO_PAGE


class _Meta(Struct, frozen=True):
    page_size: int
    roots: tuple[int, int]
    transaction: int


def _meta(folder: Path, file: BinaryIO, offset: int) -> _Meta:
    """Read one of the two meta pages."""
    file.seek(offset)
    head = file.read(_META.size)
    if len(head) < _META.size:
        raise _foreign(folder, "its data file is too short for a database")
    flags, magic, version, page_size, free_root, main_root, transaction = _META.unpack(head)
    if magic != _MAGIC or not flags & _META_PAGE:
        raise _foreign(folder, "its data file is no LMDB database")
    if version != _LMDB_FORMAT:
        raise _foreign(folder, f"its data file has version {version} of LMDB's format, and version {_LMDB_FORMAT} is read")
    if not _SMALLEST_PAGE <= page_size <= _LARGEST_PAGE:
        raise _foreign(folder, f"its data file has pages of {page_size} bytes")
    return _Meta(page_size, (free_root, main_root), transaction)


def meta_of(environment: lmdb.Environment, transaction: Transaction, folder: Path) -> Database:
    """Give the `meta` database of an environment that is a store of this version.

    Raises SessionFormatUnsupportedError for a store of another version and for an LMDB database that is no store.
    """
    try:
        meta: Database = environment.open_db(b"meta", txn=transaction, create=False)
    except (lmdb.NotFoundError, lmdb.IncompatibleError):
        raise _foreign(folder, "its data file is an LMDB database of something else") from None
    version = transaction.get(b"format", db=meta)
    if version is None or not version.isdigit():
        raise _foreign(folder, "its data file does not name a format version")
    if int(version) != FORMAT_VERSION:
        older = "refold" if int(version) > FORMAT_VERSION else "the store"
        raise SessionFormatUnsupportedError(
            f"the store in {folder} has format version {int(version)} and this release of refold reads version "
            f"{FORMAT_VERSION}: {older} is the older one"
        )
    return meta


def create_databases(environment: lmdb.Environment, transaction: Transaction, created: int) -> Database:
    """Make a new store: all databases, and the rows of `meta` (`created` is epoch ms). Gives `meta`."""
    for name in NAMES:
        environment.open_db(name, txn=transaction)
    meta = environment.open_db(b"meta", txn=transaction, create=False)
    transaction.put(b"format", b"%d" % FORMAT_VERSION, db=meta)
    transaction.put(b"created", b"%d" % created, db=meta)
    return meta


def open_databases(environment: lmdb.Environment, transaction: Transaction | None, folder: Path) -> Databases:
    """Open the databases for as long as `environment` lives. `transaction` must be a write transaction (the binding
    forgets handles that were opened in a read transaction) and commits without writing anything; an environment that is
    read only goes without.

    Raises SessionFormatUnsupportedError when one is missing.
    """
    try:
        return Databases(*(environment.open_db(name, txn=transaction, create=False) for name in NAMES))
    except lmdb.NotFoundError:
        raise _foreign(folder, "a database of the format is missing") from None


def _foreign(folder: Path, reason: str) -> SessionFormatUnsupportedError:
    return SessionFormatUnsupportedError(f"{folder} holds no store that this release of refold reads: {reason}")


_META: Final = struct.Struct("=10xH4xII16xI36xQ40xQ8xQ")
"""Page flags; magic, version, page size; root pages of the free list and of the main database; number of the last
transaction: a meta page, in the machine's byte order (MDB_page, MDB_meta and MDB_db of LMDB's mdb.c)."""

_MAGIC: Final = 0xBEEFC0DE
_META_PAGE: Final = 0x08
_LMDB_FORMAT: Final = 1
_NO_PAGE: Final = (1 << 64) - 1
_SMALLEST_PAGE: Final = 512
_LARGEST_PAGE: Final = 65_536
