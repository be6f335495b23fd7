"""Owns the attempt to write at once: bytes that the kernel takes without waiting need no thread.

Waking the writing thread for a lone message costs some fifty microseconds, twenty times the message itself. On a pipe or a
socket the kernel can be told not to wait; elsewhere, and whenever it would have to wait, nothing is written here. Never
changes the client's own view of its descriptors: the flag that says "do not wait" is set on a description of our own.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from typing import Final

LARGEST_BYTES: Final = 65_536
"""Larger frames are left to the thread: the kernel would take a part of them only."""


class Shortcut:
    """Writes to a descriptor's pipe or socket without ever waiting."""

    def __init__(self, descriptor: int) -> None:
        self._write: Callable[[bytes], int] | None = None
        self._close: Callable[[], None] | None = None
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(kind):
            endpoint = socket.socket(fileno=os.dup(descriptor))
            self._write = lambda data: endpoint.send(data, socket.MSG_DONTWAIT)
            self._close = endpoint.close
        elif stat.S_ISFIFO(kind):
            self._open_again(descriptor)

    def write(self, data: bytes) -> int:
        """Write as much of `data` as can be written now; give how many bytes that was. 0 also for a broken stream: the
        thread finds out what is wrong with it."""
        if self._write is None or len(data) > LARGEST_BYTES:
            return 0
        try:
            return self._write(data)
        except OSError:
            return 0

    def close(self) -> None:
        """Give the descriptor back."""
        if self._close is not None:
            self._close()
        self._write = self._close = None

    def _open_again(self, descriptor: int) -> None:
        try:
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # no /proc, or nobody reads any more: the thread serves alone
            return
        self._write = lambda data: os.write(again, data)
        self._close = lambda: os.close(again)
