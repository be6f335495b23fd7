"""Opening of a store in LMDB, with its settings and their defaults.

The first open of a store may wait for its write lock, so it runs in a thread of its own and has a time limit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from refold_protocol.errors import LogBusyError
from refold_storage.commit import COMMIT_SECONDS, CommitQueue, FailPoint, no_fault
from refold_storage.disk import FilesystemOf, filesystem_type
from refold_storage.high_water import MARK_FILE
from refold_storage.interface import Clock
from refold_storage.lease import Leases
from refold_storage.locks import noted_holder, occupy_alone
from refold_storage.shared_environments import REGISTRY
from refold_storage.store import LmdbStore
from refold_storage.store_opening import open_environment
from refold_storage.writer import WriteLimits

BACKLOG_BYTES: Final = 128 * 1024 * 1024
"""Bytes of accepted lines of one session that may wait for a commit: twice the largest message of a client, so that a prompt
of that size and what follows it in its turn find room before the disk had a chance."""

FLUSH_SECONDS: Final = 30.0
"""Time limit of a flush where the caller gives none."""


def epoch_ms() -> int:
    """Give the system's clock in Unix epoch milliseconds."""
    return time.time_ns() // 1_000_000


async def open_store(
    path: Path | str,
    *,
    new_uuid: Callable[[], str],
    clock: Clock = epoch_ms,
    client: str = "refold",
    create: bool = True,
    map_bytes: int | None = None,
    max_bytes: int | None = None,
    backlog_bytes: int = BACKLOG_BYTES,
    flush_seconds: float = FLUSH_SECONDS,
    commit_seconds: float = COMMIT_SECONDS,
    filesystem: FilesystemOf = filesystem_type,
    fail_point: FailPoint = no_fault,
) -> LmdbStore:
    """Open the store in the folder `path`, making it unless `create` is False; `close` it at the end.

    `new_uuid` draws UUIDv7s in lower case for writer ids; `client` names this program in leases. `map_bytes` is the size
    of the map to begin with and `max_bytes` the end of its growth, which then behaves like a full disk. A process has
    one environment per store: a further open of it, by whatever path, shares the first one's with its `map_bytes`,
    `max_bytes`, `commit_seconds` and `fail_point`.

    Raises ConfigError (key `store.path`) for a folder that cannot hold a store, also one on a network file system;
    SessionFormatUnsupportedError for another format version or a foreign file, with nothing written; StorageFullError;
    LogBusyError when another process holds the write lock for longer than `flush_seconds` or compacts the store;
    LogUnwritableError when the data are older than what was promised (`accept_store`), when an earlier commit of this process
    failed for good, and in a forked child of a process that has the store open.
    """
    folder = _resolved(path)

    def open_new() -> CommitQueue:
        environment = open_environment(
            folder, now=clock(), map_bytes=map_bytes, max_bytes=max_bytes, create=create, filesystem=filesystem
        )
        return CommitQueue(environment, commit_seconds, fail_point)

    commits = await _in_thread(lambda: REGISTRY.take(folder, open_new), flush_seconds, folder)
    limits = WriteLimits(backlog_bytes, flush_seconds)
    return LmdbStore(commits, Leases(folder, clock, client), clock, new_uuid, limits)


def accept_store(path: Path | str, *, filesystem: FilesystemOf = filesystem_type) -> None:
    """Take the store in the folder `path` for whole as it is, though it promised more: after an old copy was restored on
    purpose. Blocks. Raises LogBusyError when any process has it open (this one included), and what `open_store` raises."""
    folder = _resolved(path)
    if REGISTRY.has(folder):
        raise LogBusyError(f"this process has the store in {folder} open")
    environment = open_environment(
        folder,
        now=epoch_ms(),
        map_bytes=None,
        max_bytes=None,
        create=(folder / MARK_FILE).exists(),  # a data file that was removed
        filesystem=filesystem,
        occupied=occupy_alone,
        accept=True,
    )
    environment.close()


def _resolved(path: Path | str) -> Path:
    return Path(path).expanduser().resolve()


async def _in_thread(take: Callable[[], CommitQueue], seconds: float, folder: Path) -> CommitQueue:
    """Run `take` in a thread. What it gives after nobody waits for it any more is given back at once."""
    loop = asyncio.get_running_loop()
    taken: asyncio.Future[CommitQueue] = loop.create_future()

    def deliver(commits: CommitQueue | None, error: BaseException | None) -> None:
        if taken.done():
            if commits is not None:
                REGISTRY.give_back(commits)
        elif commits is not None:
            taken.set_result(commits)
        elif error is not None:
            taken.set_exception(error)

    def run() -> None:
        commits, error = None, None
        try:
            commits = take()
        except BaseException as caught:  # noqa: BLE001 - handed to whoever waits for this thread
            error = caught
        try:
            loop.call_soon_threadsafe(deliver, commits, error)
        except RuntimeError:  # the loop was closed meanwhile
            if commits is not None:
                REGISTRY.give_back(commits)

    def give_up() -> None:
        if not taken.done():
            holder = noted_holder(folder)
            who = "another process" if holder is None else f"process {holder}"
            message = f"the store could not be opened within {seconds:g} s: {who} held its write lock"
            taken.set_exception(LogBusyError(message, holder=holder))

    threading.Thread(target=run, name="refold open", daemon=True).start()
    timer = loop.call_later(seconds, give_up)
    try:
        return await taken
    finally:
        timer.cancel()
