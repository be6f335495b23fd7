"""Owns what one commit puts into the database for one session: records, row and the place among recent sessions.

Runs inside the commit thread's transaction and touches nothing else, so it can be repeated after the map grew. The store
must still stand where this writer left it: if it does not, somebody wrote past the lease, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import lmdb
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import LogUnwritableError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_storage import catalog
from refold_storage.backlog import Share
from refold_storage.catalog import SessionRow
from refold_storage.format import Databases
from refold_storage.keys import record_key
from refold_storage.packing import Packed, pack
from refold_storage.records import Record, decode_record

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


class Landed(Struct, frozen=True, gc=False):
    """What the store holds of a session when the transaction has committed: its row, and its last record if a later
    commit may extend it."""

    share: Share
    row: SessionRow
    open_run: Record | None


class LandingRefusedError(Exception):
    """One session's share must not be written; the others of the same commit can. Carries the share and the reason."""

    def __init__(self, share: Share, reason: LogUnwritableError) -> None:
        super().__init__(reason.message)
        self.share = share
        self.reason = reason


def land(transaction: Transaction, databases: Databases, share: Share) -> Landed:
    """Write a share. Raises LandingRefusedError when the store is not where this writer left it, and what lmdb raises."""
    try:
        before = catalog.find(transaction, databases, share.row.id)
        _check_unmoved(share, before)
        number = before.number if before is not None else catalog.next_number(transaction, databases)
    except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
        raise _refused(share, error.message) from None
    settled = () if share.open_run is None else share.open_run.lines
    first = share.base.tail + 1 - len(settled)
    packed = pack(first, [*settled, *share.lines], share.digests, len(settled))
    put_records(transaction, databases, number, packed)
    # Whoever archives a session needs no lease, so that flag is the store's and not the writer's.
    row = replace(share.row, number=number, archived=before is not None and before.archived)
    catalog.put(transaction, databases, row, before)
    last = packed[-1]
    return Landed(share, row, decode_record(last.first, last.value) if last.may_grow else None)


def put_records(transaction: Transaction, databases: Databases, number: int, packed: Sequence[Packed]) -> None:
    """Store records under a number, the first perhaps in place of an older one. New ones that belong at the very end of
    the database are appended, which lets LMDB fill its pages to the brim; anywhere else it leaves a part of each free."""
    with transaction.cursor(db=databases.records) as cursor:
        last = cursor.key() if cursor.last() else b""
    for record in packed:
        key = record_key(number, record.first)
        transaction.put(key, record.value, append=key > last, db=databases.records)


def _check_unmoved(share: Share, before: SessionRow | None) -> None:
    if before is None:
        if share.base.number != 0:
            raise _refused(share, f"session {share.row.id} vanished from the store")
    elif before.number != share.base.number or before.tail != share.base.tail:
        raise _refused(
            share,
            f"session {share.row.id} ends at {before.tail} in the store, where this writer left it at "
            f"{share.base.tail}: somebody else wrote to it",
        )


def _refused(share: Share, reason: str) -> LandingRefusedError:
    return LandingRefusedError(share, LogUnwritableError(reason, session=share.row.id))
