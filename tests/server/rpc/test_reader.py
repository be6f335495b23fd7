"""The reading thread stops so far ahead of a loop that does not come to take what was read."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, cast

from refold_server.rpc.stdio import READ_AHEAD_BYTES, ReaderThread


class LateLoop:
    """A loop that runs what it was given when the test says so."""

    def __init__(self) -> None:
        self.given: queue.Queue[tuple[Callable[[bytes], None], bytes]] = queue.Queue()

    def call_soon_threadsafe(self, callback: Callable[[bytes], None], data: bytes) -> None:
        self.given.put((callback, data))


def test_a_flood_stays_in_the_pipe_while_the_loop_is_busy() -> None:
    reading, writing = os.pipe()
    loop: Any = LateLoop()
    received: list[bytes] = []
    sent = b"y" * (4 * READ_AHEAD_BYTES)
    client = threading.Thread(target=_write, args=(writing, sent))
    reader = ReaderThread(reading, cast("asyncio.AbstractEventLoop", loop), received.append)
    reader.start()
    client.start()
    while client.is_alive() and not reader.is_held:
        pass  # either the reader stops, or it goes on until the client has nothing left
    assert reader.is_held
    assert received == []
    while not received or received[-1]:
        callback, data = loop.given.get()
        callback(data)
    assert b"".join(received) == sent


def _write(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)
    os.close(descriptor)
