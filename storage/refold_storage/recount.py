"""Owns rebuilding what the catalogue caches: the summary of every session from its log, and the list of recent ones.

Each session is counted under its lease, so that no writer's own count is overwritten by an older one; a session that
somebody writes, and one that cannot be read, is passed over and named. Cancelled between two sessions it has rebuilt some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import lmdb
from msgspec.structs import replace

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.summary import Summary
from refold_storage import catalog
from refold_storage.catalog import SessionRow
from refold_storage.change import change
from refold_storage.commit import CommitQueue
from refold_storage.format import Databases
from refold_storage.interface import Recount
from refold_storage.lease import Leases
from refold_storage.reading import committed_lines
from refold_storage.tally import counted_summary

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


async def rebuild_catalogue(
    commits: CommitQueue,
    leases: Leases,
    seconds: float,
    found: Sequence[SessionId | RefoldError],
    progress: Callable[[int, int], None],
) -> Recount:
    """Rebuild the caches of the sessions that a survey `found`; see `interface.Store.rebuild_catalogue`."""
    changed = 0
    skipped: list[RefoldError] = []
    for done, session in enumerate(found):
        progress(done, len(found))
        if isinstance(session, RefoldError):
            skipped.append(session)
            continue
        try:
            changed += await _recounted(commits, leases, seconds, session)
        except RefoldError as error:  # the others can be counted all the same
            skipped.append(error)
    misplaced = await change(commits, catalog.rebuild_recent, seconds)
    progress(len(found), len(found))
    return Recount(len(found) - len(skipped), changed, misplaced, tuple(skipped))


async def _recounted(commits: CommitQueue, leases: Leases, seconds: float, session: SessionId) -> bool:
    lease = await leases.take(session)
    try:
        environment = commits.environment
        with environment.reading() as transaction:
            row = catalog.find(transaction, environment.databases, session)
        if row is None:  # deleted since the survey
            return False
        summary = await counted_summary(partial(committed_lines, environment, row), row.tail)
        if summary == row.summary and not row.estimated:
            return False
        await change(commits, partial(_put_summary, row=row, summary=summary), seconds)
        return True
    finally:
        lease.release()


def _put_summary(transaction: Transaction, databases: Databases, row: SessionRow, summary: Summary) -> None:
    """Write the summary into the row as it is now: archiving needs no lease."""
    before = catalog.find(transaction, databases, row.id)
    if before is not None:
        catalog.refuse_later_row(transaction, databases, row.id)
        catalog.put(transaction, databases, replace(before, summary=summary, estimated=False), before)
