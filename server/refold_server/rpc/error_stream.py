"""Standard error of a daemon: a bounded queue, and the thread that writes it.

Whoever logs or prints never waits for the reader: an editor that starts a daemon and never reads its standard error must
not stop it. What finds no place in the queue is left out and counted, and the count is said where the lines would stand.
Must not know what is written.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from refold_server.rpc.descriptors import write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ROOM_BYTES: Final = 1024 * 1024
"""So much may wait for the reader."""

LEFT_OUT: Final = b"refold: %d lines were left out here: nobody read standard error in time\n"

END_S: Final = 1.0
"""How long the end waits for the reader, in seconds."""


@contextmanager
def stderr_never_waits() -> Generator[None]:
    """Have `sys.stderr` and `sys.stdout` write to standard error without ever waiting, while the block runs. What is still
    unread END_S after its end is thrown away, like all that would be written then."""
    before, queue = (sys.stdout, sys.stderr), ErrorQueue(2)
    text = io.TextIOWrapper(queue, "utf-8", "backslashreplace", write_through=True)
    sys.stdout = sys.stderr = text
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        if not queue.end(END_S):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 2)  # else the interpreter's own last words would wait
            os.close(nothing)


class ErrorQueue(io.RawIOBase):
    """Bytes on their way to a descriptor."""

    name = "<stderr>"

    def __init__(self, descriptor: int, room: int = ROOM_BYTES) -> None:
        self._descriptor = descriptor
        self._room = room
        self._news = threading.Condition()  # its lock may be taken again by whoever has it: a finaliser may print anywhere
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._left_out = 0
        self._over = False
        self._thread = threading.Thread(target=self._run, name="refold stderr", daemon=True)
        self._thread.start()

    def writable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """Give the descriptor, for a child that inherits it."""
        return self._descriptor

    def write(self, data: ReadableBuffer, /) -> int:
        """Put bytes into the queue, all of them or none; never waits."""
        piece = bytes(data)
        with self._news:
            if self._over:
                pass  # nobody reads any more
            elif self._bytes + len(piece) > self._room:
                self._left_out += piece.count(b"\n")
            else:
                self._waiting.append(piece)
                self._bytes += len(piece)
                self._news.notify()
        return len(piece)

    def end(self, seconds: float) -> bool:
        """Take nothing more; wait at most `seconds` until all is written, and tell whether it is."""
        with self._news:
            self._over = True
            self._news.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while pieces := self._next():
            written = write_all(self._descriptor, b"".join(pieces))
            with self._news:
                self._bytes -= sum(map(len, pieces))
                self._over |= not written

    def _next(self) -> list[bytes]:
        """Wait for bytes and give them; none at the end."""
        with self._news:
            while not (self._waiting or self._left_out or self._over):
                self._news.wait()
            pieces = [*self._waiting]
            self._waiting.clear()
            if self._left_out:
                pieces.append(LEFT_OUT % self._left_out)
                self._bytes += len(pieces[-1])
                self._left_out = 0
            return pieces
