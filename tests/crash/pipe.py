"""Pipe from a child that will be killed to its parent: what went over the wire, line by line, as it went.

A line is a mark, a space and a text: `>` a message of the client, `<` one of the daemon, `b` the digest of a body that left
to the provider, `+` an accepted batch (session, tail, epoch ms), `*` the fail point at which the child ends itself (name,
epoch ms). A line whose end did not come through was told to nobody.
"""

from __future__ import annotations

import os
import threading
import time


class Pipe:
    """The child's end. Any thread may write; a whole line or, at a kill, a torn one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def say(self, mark: str, text: bytes) -> None:
        """Write one line."""
        rest = memoryview(f"{mark} ".encode() + text + b"\n")
        with self._lock:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]


def now_ms() -> int:
    """Give Unix epoch milliseconds."""
    return time.time_ns() // 1_000_000


def whole_lines(data: bytes) -> list[tuple[str, bytes]]:
    """Give mark and text of each line that came through whole."""
    lines = data.split(b"\n")[:-1]
    return [(line[:1].decode(), line[2:]) for line in lines]
