"""Owns one commit from beginning to end: the transaction over all shares, its repetition after the map grew, and what
each kind of failure means.

Space that ran out means: try again later. A session whose store moved under it is left out. Everything else means that
the environment cannot be trusted any more. Runs on the commit thread; decides, and leaves acting on it to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.errors import LogError, LogUnwritableError, StorageFullError
from refold_storage.backlog import Share
from refold_storage.environment import Environment
from refold_storage.format import DATA_FILE
from refold_storage.landing import Landed, LandingRefusedError, land
from refold_storage.space import is_full

FailPoint: TypeAlias = Callable[[str], None]
"""Called at the stages of a commit, in order: `begun` (the write lock is held), `written` (not yet committed),
`committed`. What it raises counts as a failure at that stage; faults are injected here."""


def no_fault(stage: str) -> None:
    """The fail point of a store in which nothing is made to fail."""


Claim: TypeAlias = Callable[[Sequence[Share]], list[Share]]
"""Told, with the write lock held, which shares are about to be written; gives those that still should be."""


class Outcome(Struct, frozen=True):
    """What became of a commit: what landed, who was refused and why, and the failure of all others, if it failed."""

    landed: tuple[Landed, ...]
    refused: tuple[LandingRefusedError, ...]
    failure: LogError | None


def commit_shares(environment: Environment, shares: Sequence[Share], claim: Claim, fail_point: FailPoint) -> Outcome:
    """Commit `shares` in one transaction with full sync. A failure is a StorageFullError when it may succeed later, a
    LogUnwritableError when the environment is done for. Raises nothing but what ends the thread."""
    refused: list[LandingRefusedError] = []
    while True:
        try:
            landed = _transact(environment, shares, claim, fail_point)
        except LandingRefusedError as error:  # rolled back as a whole, and repeated without that session
            refused.append(error)
            shares = [share for share in shares if share is not error.share]
        except lmdb.MapFullError:
            if not environment.grow():
                failure = StorageFullError("the store has reached its largest allowed size")
                return Outcome((), tuple(refused), failure)
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits to be told
            size = sum(len(line) for share in shares for line in share.lines)
            return Outcome((), tuple(refused), meaning(error, environment, size))
        else:
            return Outcome(landed, tuple(refused), None)


def _transact(environment: Environment, shares: Sequence[Share], claim: Claim, fail_point: FailPoint) -> tuple[Landed, ...]:
    with environment.writing() as transaction:
        fail_point("begun")
        landed = tuple(land(transaction, environment.databases, share) for share in claim(shares))
        fail_point("written")
    fail_point("committed")
    return landed


def meaning(error: Exception, environment: Environment, size: int) -> LogError:
    """Give what a failed transaction means that was to write about `size` bytes beside the trees: StorageFullError when
    it may succeed later, else LogUnwritableError."""
    if isinstance(error, StorageFullError | LogUnwritableError):
        return error
    full = isinstance(error, lmdb.Error | OSError) and is_full(error, environment.folder / DATA_FILE, size + _TREE_BYTES)
    if full:
        return StorageFullError(f"no space left for the log: {error}")
    # After a failed sync what the system holds of the file cannot be trusted any more, and only a new process reads it anew.
    what = f"{type(error).__name__}: {error}"
    return LogUnwritableError(
        f"the log cannot be written any more, because a commit failed ({what}); what was told to be kept is kept: end this "
        "process, look after the disk, and start again"
    )


_TREE_BYTES = 1 << 20
"""What a transaction writes beside its events, generously: pages of the trees and of the list of free pages."""
