"""Owns the names of files that a writing tool has not put in their place yet, and taking away those that a kill left behind.

Such a file is nobody's work: tools do not list or search it. Never touches a file of another name, a link or a folder.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from itertools import islice
from typing import Final

STALE_S: Final = 3600
"""So old is none that somebody still writes."""

MAX_LOOKED_AT: Final = 10_000
"""Entries of a folder that are looked at before one write."""

_NAME: Final = re.compile(r"\.refold-[0-9a-f]{16}\.tmp")


def unfinished_name() -> str:
    """Give a name that nobody has."""
    return f".refold-{os.urandom(8).hex()}.tmp"


def is_unfinished(name: str) -> bool:
    """Tell whether a file's name, without its folder, is one of these."""
    return _NAME.fullmatch(name) is not None


def remove_stale(folder: int) -> None:
    """Take away what kills left in the folder with that descriptor, if it is older than an hour. Raises nothing: what cannot
    be taken away stays. O(entries), up to a bound."""
    before = time.time() - STALE_S
    with suppress(OSError), os.scandir(folder) as listing:  # a folder that may be written to and not listed
        for entry in islice(listing, MAX_LOOKED_AT):
            if not is_unfinished(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(OSError):  # gone by now, or another user's
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(entry.name, dir_fd=folder)
