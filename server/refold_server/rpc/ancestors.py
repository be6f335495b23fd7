"""Owns the look at the process that `initialize` names: is it there, and is it ours to watch?

Imported before the answer to `initialize`: nothing here may bring asyncio along, and the look is taken before that answer
leaves, because an editor may die right after it.
"""

from __future__ import annotations

import os
from pathlib import Path


def open_ancestor(pid: int | None) -> int | None:
    """Give a descriptor that becomes readable when the process `pid` ends. Not inherited; the caller closes it.

    None unless the process exists and is our parent or an ancestor of ours: in a container an editor's number may be
    anybody's. None also where the kernel has no such descriptors (macOS): there the end of standard input is the only
    sign. The first process of all needs no watching: nobody outlives it.
    """
    if pid is None or pid <= 1 or not hasattr(os, "pidfd_open"):
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, OverflowError):  # no such process, or no such number
        return None
    if _is_ancestor(pid):  # looked at after the descriptor was got, so that it is not a later process of that number
        return descriptor
    os.close(descriptor)
    return None


def _is_ancestor(pid: int) -> bool:
    ancestor = os.getppid()
    while ancestor > 1 and ancestor != pid:
        ancestor = _parent_of(ancestor)
    return ancestor == pid


def _parent_of(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it ended meanwhile, or there is no /proc: only our own parent is known
        return 0
    return int(status.rpartition(")")[2].split()[1])
