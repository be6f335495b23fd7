"""Owns the ways in which a connection can be ended from outside its stream: signals, and the death of the editor.

Costs nothing while nothing happens: a process is watched through a descriptor of the kernel, not by asking again and
again. Where the kernel has none (macOS), the end of standard input is the only sign.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

EndReason: TypeAlias = Literal["exit", "inputEnded", "outputClosed", "parentGone", "brokenFrame", "terminated"]
"""Why a connection ended: the client said `exit`, closed its writing or its reading end, died, lost its framing; or a
signal came. `terminated` is the strongest: it replaces an ending that is under way."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What ends the daemon in good order."""


@contextmanager
def signals_watched(end: Callable[[EndReason], None]) -> Generator[None]:
    """Call `end` on the running loop when one of SIGNALS comes. For the main thread only."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for number in SIGNALS:
            loop.add_signal_handler(number, end, "terminated")
            stack.callback(loop.remove_signal_handler, number)
        yield


def watch_parent(pid: int, end: Callable[[EndReason], None]) -> Callable[[], None] | None:
    """Call `end` on the running loop when the process `pid` ends; give the function that stops watching.

    None, and nothing is watched, unless the process exists and is our parent or an ancestor of ours: in a container an
    editor's number may be anybody's.
    """
    if not hasattr(os, "pidfd_open") or pid <= 1:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, OverflowError):  # no such process, or no such number
        return None
    if not _is_ancestor(pid):  # looked at after the descriptor was got, so that it is not a later process of that number
        os.close(descriptor)
        return None
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)

    def gone() -> None:
        loop.remove_reader(descriptor)  # it stays readable for ever
        end("parentGone")

    loop.add_reader(descriptor, gone)
    return stop


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
