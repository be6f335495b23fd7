"""The reading thread stops so far ahead of a loop that does not come to take what was read."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import queue
import termios
import threading
from collections.abc import Callable
from typing import Any, cast

from refold_server.rpc.reader import READ_AHEAD_BYTES, ReaderThread

PIPE_BYTES = 65_536


class LateLoop:
    """A loop that runs what it was given when the test says so."""

    def __init__(self) -> None:
        self.given: queue.Queue[tuple[Callable[[bytes], None], bytes]] = queue.Queue()

    def call_soon_threadsafe(self, callback: Callable[[bytes], None], data: bytes) -> None:
        self.given.put((callback, data))


def waiting_bytes(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def test_a_flood_stays_in_the_pipe_while_the_loop_is_busy() -> None:
    reading, writing = os.pipe()
    loop: Any = LateLoop()
    received: list[bytes] = []
    sent = b"y" * (4 * READ_AHEAD_BYTES)
    client = threading.Thread(target=_write, args=(writing, sent))
    ReaderThread(reading, cast("asyncio.AbstractEventLoop", loop), received.append).start()
    client.start()
    late = [loop.given.get()]
    while sum(len(data) for _, data in late) < READ_AHEAD_BYTES:
        late.append(loop.given.get())
    while client.is_alive() and waiting_bytes(reading) < PIPE_BYTES:
        pass  # either the pipe fills up, or the reader goes on until the client has nothing left
    assert client.is_alive()
    for callback, data in late:
        callback(data)
    while not received or received[-1]:
        callback, data = loop.given.get()
        callback(data)
    assert b"".join(received) == sent


def _write(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)
    os.close(descriptor)
