"""Owns making a fork: a row whose segments name where the inherited events lie, and nothing else. No event is copied, so
a fork costs the same whatever the length of the history.

`children` says who needs whose events: under the numbers of origin and fork, the last seq that the fork inherits from that
origin, and its digest. Works inside the caller's transaction; never touches a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import lmdb
from msgspec.structs import replace

from refold_protocol.errors import SeqRangeError, SessionAlreadyExistsError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_storage import catalog
from refold_storage.catalog import SessionRow
from refold_storage.format import Databases
from refold_storage.keys import child_key, child_value
from refold_storage.reading import check_tail, digest_at
from refold_storage.segments import forked_segments
from refold_storage.session_record import Parent

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


def fork(transaction: Transaction, databases: Databases, parent: SessionId, at: int, empty: SessionRow) -> SessionRow:
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


def forked_row(empty: SessionRow, origin: SessionRow, at: int, digest: str) -> SessionRow:
    """Give what a fork's row says of its log before it has events of its own."""
    parent = Parent(origin.id, at, digest)
    estimated = origin.estimated or at != origin.tail
    return replace(empty, tail=at, head_digest=digest, summary=origin.summary, parent=parent, estimated=estimated)
