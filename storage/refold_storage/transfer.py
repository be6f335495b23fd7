"""Owns reading a log into the store: in transactions of bounded size, hidden until the last one, which writes the row.

Until then the records lie under a number that no row has, marked as a hidden origin's are; whatever a crash leaves of them
is swept by `compact_store`. Any number of sessions may go on writing meanwhile. Knows nothing of files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import lmdb
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import RefoldError, SessionAlreadyExistsError
from refold_storage import catalog
from refold_storage.catalog import SessionRow
from refold_storage.change import Work, change
from refold_storage.commit import CommitQueue
from refold_storage.delete import hide, reveal, shed
from refold_storage.format import Databases
from refold_storage.intake import Intake
from refold_storage.interface import NewSession, SessionRecord
from refold_storage.landing import put_records
from refold_storage.packing import pack
from refold_storage.reading import BATCH_BYTES
from refold_storage.records import Record, decode_record

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


class _Written(Struct, frozen=True):
    """What is in the store so far: the number (0 for nothing yet), and the last record if it may be extended."""

    number: int
    open_run: Record | None


class Transfer:
    """One log on its way into the store. Whoever drives it holds the lease of its id; after a failure of `run`, `undo`."""

    def __init__(self, commits: CommitQueue, seconds: float, record: SessionRecord) -> None:
        self._commits = commits
        self._seconds = seconds
        self._record = record
        self._empty: Final = catalog.empty_row(NewSession(record.id, record.cwd, record.created_at))
        self._intake = Intake()
        self._written = _Written(0, None)
        self._pending: asyncio.Future[_Written] | None = None

    async def run(self, lines: Iterable[bytes]) -> SessionRecord:
        """Write all lines and then the row; see `interface.Store.import_session`. May be cancelled between two batches."""
        for batch in batches(lines):
            first = self._intake.head.tail + 1
            _, digests = self._intake.take(batch)
            await self._do(partial(_put, before=self._written, first=first, lines=batch, digests=digests))
        self._intake.finish(self._record)
        head = self._intake.head
        row = replace(
            imported_row(self._empty, self._record),
            number=self._written.number,
            tail=head.tail,
            head_digest=head.digest.hex(),
            summary=head.summary,
        )
        await self._do(partial(_show, row=row))
        return row.record

    async def undo(self) -> None:
        """Take back what was written. Where that fails too, the rest stays hidden until the store is compacted."""
        try:
            if self._pending is not None:
                self._written = await self._pending
            await change(self._commits, partial(shed, number=self._written.number), self._seconds)
        except RefoldError as error:  # the import has failed already, for a reason that matters more
            _LOG.debug("an import could not be taken back now: %s", error)

    async def _do(self, work: Work[_Written]) -> None:
        self._pending = asyncio.ensure_future(change(self._commits, work, self._seconds, BATCH_BYTES))
        self._written = await asyncio.shield(self._pending)


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines: a batch ends with the line that brings it to BATCH_BYTES."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def imported_row(empty: SessionRow, record: SessionRecord) -> SessionRow:
    """Give what an imported session's row has of the record that came with it."""
    return replace(empty, writers=record.writers, parent=record.parent, archived=record.archived)


def _put(
    transaction: Transaction,
    databases: Databases,
    before: _Written,
    first: int,
    lines: Sequence[bytes],
    digests: Sequence[bytes],
) -> _Written:
    number = before.number or catalog.next_number(transaction, databases)
    hide(transaction, databases, number)
    settled = () if before.open_run is None else before.open_run.lines
    packed = pack(first - len(settled), [*settled, *lines], digests, len(settled))
    put_records(transaction, databases, number, packed)
    last = packed[-1]
    return _Written(number, decode_record(last.first, last.value) if last.may_grow else None)


def _show(transaction: Transaction, databases: Databases, row: SessionRow) -> _Written:
    if catalog.find(transaction, databases, row.id) is not None:
        raise SessionAlreadyExistsError(f"there is a session {row.id} already", session=row.id)
    reveal(transaction, databases, row.number)
    catalog.put(transaction, databases, row, None)
    return _Written(row.number, None)


_LOG: Final = logging.getLogger(__name__)
