"""Harness's processes: forked, heard through a pipe, killed.

Forked, because a process that has everything imported costs milliseconds then. The parent itself never opens a store and
runs no event loop, so there is nothing that a child could inherit half-way.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from tests.crash.child import Ground


class Child:
    """A child that does `work`, which is given the writing end of a pipe. `lines` and `told` count what came through it:
    lines, and messages of the daemon among them."""

    def __init__(self, ground: Ground, work: Callable[[int], None]) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(reading)
            _work(ground, lambda: work(writing))
        os.close(writing)
        self.pipe = reading
        self.lines = self.told = 0
        self.ended = False
        self._pieces: list[bytes] = []

    @property
    def data(self) -> bytes:
        """What came through the pipe."""
        return b"".join(self._pieces)

    def take(self) -> None:
        """Read once; waits until there is something or the end."""
        piece = os.read(self.pipe, 1 << 16)
        self.ended = not piece
        self._pieces.append(piece)
        self.lines += piece.count(b"\n")
        self.told += piece.count(b"\n< ")

    def kill(self) -> int:
        """End it at once if it lives, and take in what it had said. Gives its exit code, −9 for a kill."""
        os.kill(self.pid, signal.SIGKILL)
        return self.over()

    def over(self) -> int:
        """Take in what it says until its end; give its exit code."""
        while not self.ended:
            self.take()
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def listen(children: Sequence[Child], enough: Callable[[], bool], seconds: float) -> bool:
    """Hear all of them until it is enough, the first one has ended, or the time is over. Tells whether it was enough."""
    deadline = time.monotonic() + seconds
    while not enough() and not children[0].ended:
        left = deadline - time.monotonic()
        pipes = {child.pipe: child for child in children if not child.ended}
        ready = select.select(list(pipes), [], [], left)[0] if left > 0 else []
        if not ready:
            return False
        for pipe in ready:
            pipes[pipe].take()
    return enough()


def errors_of(ground: Ground) -> str:
    """Give the end of what children said on standard error."""
    path = ground.root / "errors.txt"
    return path.read_text()[-2_000:] if path.exists() else ""


def _work(ground: Ground, work: Callable[[], None]) -> None:
    try:
        errors = os.open(ground.root / "errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        work()
    except BaseException:  # noqa: BLE001 - it must not go on as the parent does
        traceback.print_exc()
        os._exit(70)
    os._exit(0)
