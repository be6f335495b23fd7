"""Owns how a store is recognised: LMDB's file header, the `meta` database, and the set of databases of format version 0.

Only looks, except for `create_databases`, which makes a new store in one transaction. Whatever is not a store of this
version is refused before a byte is written: it may be somebody else's data.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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


def check_data_file(folder: Path) -> None:
    """Look at the header of the data file in `folder`; an absent or empty one is fine, it becomes a new store.

    Raises SessionFormatUnsupportedError for a file that is no LMDB database, or one of LMDB 1.0's format.
    """
    try:
        with (folder / DATA_FILE).open("rb") as file:
            head = file.read(_HEADER.size)
    except FileNotFoundError:
        return
    if not head:
        return
    if len(head) < _HEADER.size:
        raise _foreign(folder, "its data file is too short for a database")
    _, _, flags, _, magic, version = _HEADER.unpack(head)
    if magic != _MAGIC or not flags & _META_PAGE:
        raise _foreign(folder, "its data file is no LMDB database")
    if version != _LMDB_FORMAT:
        raise _foreign(folder, f"its data file has version {version} of LMDB's format, and version {_LMDB_FORMAT} is read")


def is_new(environment: lmdb.Environment, folder: Path) -> bool:
    """Tell whether an environment holds nothing yet; otherwise make sure that it is a store of this version.

    Raises SessionFormatUnsupportedError for a store of another version and for an LMDB database that is no store.
    """
    transaction = environment.begin()
    try:
        if transaction.stat()["entries"] == 0:
            return True
        try:
            meta = environment.open_db(b"meta", txn=transaction, create=False)
        except (lmdb.NotFoundError, lmdb.IncompatibleError):
            raise _foreign(folder, "its data file is an LMDB database of something else") from None
        version = transaction.get(b"format", db=meta)
    finally:
        transaction.abort()
    if version is None or not version.isdigit():
        raise _foreign(folder, "its data file does not name a format version")
    if int(version) != FORMAT_VERSION:
        older = "refold" if int(version) > FORMAT_VERSION else "the store"
        raise SessionFormatUnsupportedError(
            f"the store in {folder} has format version {int(version)} and this release of refold reads version "
            f"{FORMAT_VERSION}: {older} is the older one"
        )
    return False


def create_databases(environment: lmdb.Environment, transaction: Transaction, created: int) -> None:
    """Make a new store: all databases, and the rows of `meta` (`created` is epoch ms)."""
    for name in NAMES:
        environment.open_db(name, txn=transaction)
    meta = environment.open_db(b"meta", txn=transaction, create=False)
    transaction.put(b"format", b"%d" % FORMAT_VERSION, db=meta)
    transaction.put(b"created", b"%d" % created, db=meta)


def open_databases(environment: lmdb.Environment, transaction: Transaction, folder: Path) -> Databases:
    """Open the databases for as long as `environment` lives. `transaction` must be a write transaction (the binding
    forgets handles that were opened in a read transaction) and commits without writing anything.

    Raises SessionFormatUnsupportedError when one is missing.
    """
    try:
        return Databases(*(environment.open_db(name, txn=transaction, create=False) for name in NAMES))
    except lmdb.NotFoundError:
        raise _foreign(folder, "a database of the format is missing") from None


def _foreign(folder: Path, reason: str) -> SessionFormatUnsupportedError:
    return SessionFormatUnsupportedError(f"{folder} holds no store that this release of refold reads: {reason}")


_HEADER: Final = struct.Struct("=QHHIII")
"""First page number, padding, page flags, free space, then magic and version of the first meta page, in the machine's
byte order (MDB_page and MDB_meta of LMDB's mdb.c)."""

_MAGIC: Final = 0xBEEFC0DE
_META_PAGE: Final = 0x08
_LMDB_FORMAT: Final = 1
