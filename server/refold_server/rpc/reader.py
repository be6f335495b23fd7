"""Owns the thread that reads: it waits for bytes and hands them to the event loop, and does nothing else.

It never waits for the writer. It does wait for the loop: so many bytes are read ahead of it and no more, so that a flood
stays in the client's pipe. Works on pipes, sockets and files alike. Must not know frames.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final

from refold_server.rpc.descriptors import READ_BYTES, read_some

READ_AHEAD_BYTES: Final = 1024 * 1024
"""How much may be read that the loop has not taken yet."""


class ReaderThread:
    """Calls `receive` on the loop with each piece of the stream, and with `b""` at its end."""

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop, receive: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._receive = receive
        self._lock = threading.Lock()
        self._gate = threading.Event()
        self._gate.set()
        self._ahead = 0  # bytes read that the loop has not taken, guarded by the lock like what follows
        self._paused = False
        self._closing = False

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._run, name="refold reader", daemon=True).start()

    def pause(self) -> None:
        """Read no further. What was read already still arrives."""
        with self._lock:
            self._paused = True
            self._gate.clear()

    def resume(self) -> None:
        """Read on."""
        with self._lock:
            self._paused = False
            self._open_gate()

    @property
    def is_held(self) -> bool:
        """Whether it reads no further now: paused, or too far ahead of the loop."""
        return not self._gate.is_set()

    def close(self) -> None:
        """Stop. A read that waits right now ends with the stream, or with the process: the thread is a daemon."""
        with self._lock:
            self._closing = True
            self._gate.set()

    def _run(self) -> None:
        while self._gate.wait() and not self._closing:
            data = read_some(self._descriptor, READ_BYTES)
            with self._lock:
                self._ahead += len(data)
                if self._ahead >= READ_AHEAD_BYTES:
                    self._gate.clear()
            try:
                self._loop.call_soon_threadsafe(self._arrive, data)
            except RuntimeError:  # the loop is closed: nobody wants more
                break
            if not data:
                break
        os.close(self._descriptor)

    def _arrive(self, data: bytes) -> None:
        with self._lock:
            self._ahead -= len(data)
            self._open_gate()
        if not self._closing:
            self._receive(data)

    def _open_gate(self) -> None:
        if not self._paused and self._ahead < READ_AHEAD_BYTES:
            self._gate.set()
