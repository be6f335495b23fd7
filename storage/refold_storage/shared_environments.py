"""Rule of one environment per process: a second open of a store shares the first one's, found by the identity
of the data file and not by the spelling of its path.

LMDB's locks belong to the process: opening the file twice, or using it in a forked child, would lose them without a word.
A child that was forked finds every environment unusable; so does this process once a commit failed for good.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from refold_protocol.errors import LogUnwritableError
from refold_storage.commit import CommitQueue
from refold_storage.store_format import DATA_FILE

Identity: TypeAlias = tuple[int, int]
"""Device and inode of a data file."""

STOP_SECONDS: Final = 5.0
"""How long closing waits for a commit or another change that another process holds up."""


class Registry:
    """The commit queues of this process, each with its environment, by identity, with the number of their users."""

    def __init__(self) -> None:
        self._opening = threading.Lock()  # held while a store is opened, which may take long
        self._lock = threading.Lock()  # held for an instant; taken after the other one
        self._opened: dict[Identity, tuple[CommitQueue, int]] = {}

    def take(self, folder: Path, open_new: Callable[[], CommitQueue]) -> CommitQueue:
        """Give the queue of the store in `folder`: the one this process has, else what `open_new` gives.

        Raises LogUnwritableError for a store that this process may not touch any more, and what `open_new` raises.
        """
        with self._opening:
            shared = self._share(_identity(folder))
            if shared is not None:
                return shared
            commits = open_new()
            identity = _identity(folder)
            assert identity is not None  # an open environment has its data file
            with self._lock:
                self._opened[identity] = commits, 1
            return commits

    def give_back(self, commits: CommitQueue) -> None:
        """Let go of a queue; its last user stops the thread and closes the environment. An unusable one stays open until
        the process ends: its file must not be opened again here."""
        with self._lock:
            for identity, (opened, users) in list(self._opened.items()):
                if opened is not commits or commits.environment.unusable is not None:
                    continue
                if users > 1:
                    self._opened[identity] = opened, users - 1
                elif commits.stop(STOP_SECONDS) and commits.environment.close(STOP_SECONDS):
                    del self._opened[identity]
                else:
                    commits.environment.mark_failed("the store was closed while another process held up its last change")

    def has(self, folder: Path) -> bool:
        """Tell whether this process has the store in `folder` open, usable or not."""
        with self._lock:
            return _identity(folder) in self._opened

    def users(self) -> int:
        """How many uses of usable environments are open."""
        with self._lock:
            return sum(users for commits, users in self._opened.values() if commits.environment.unusable is None)

    def after_fork(self) -> None:
        """Run in a forked child, where the locks may be held by threads that were not forked along."""
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        for commits, _ in self._opened.values():
            commits.environment.mark_failed("the store was opened by the process that this one was forked from")

    def _share(self, identity: Identity | None) -> CommitQueue | None:
        with self._lock:
            if identity is None or identity not in self._opened:
                return None
            commits, users = self._opened[identity]
            if commits.environment.unusable is not None:
                raise LogUnwritableError(commits.environment.unusable)
            self._opened[identity] = commits, users + 1
            return commits


def _identity(folder: Path) -> Identity | None:
    try:
        status = (folder / DATA_FILE).stat()
    except OSError:  # no data file, or none that could be opened: nobody here has it open
        return None
    return status.st_dev, status.st_ino


REGISTRY: Final = Registry()
"""The registry of this process."""

os.register_at_fork(after_in_child=REGISTRY.after_fork)
