"""Thread that reads: it waits for bytes and hands them to the event loop, and does nothing else.

It never waits for the writer. It does wait for the loop: so many bytes are read ahead of it and no more, so that a flood
stays in the client's pipe. Works on pipes, sockets and files alike. Must not know frames.

Seam between the endpoint and whatever carries its bytes, and the form that runs over descriptors.

A transport takes frames into two lanes and gives bytes as they come. It never blocks and never refuses: whoever sends
looks at `unsent`, and events are sent only after `events_room`. `memory_transport.py` has the double. All calls and
callbacks belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from refold_server.rpc.descriptors import READ_BYTES, Descriptors, read_some
from refold_server.rpc.lanes import WriterThread

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


class Hooks(Struct, frozen=True):
    """What a transport calls: `receive` with each piece of the stream and with `b""` at its end, `progressed` once after
    each `watch`, `closed` when nobody reads any more."""

    receive: Callable[[bytes], None]
    progressed: Callable[[], None]
    closed: Callable[[], None]


class Transport(Protocol):
    """One connection's bytes, both ways."""

    @property
    def unsent(self) -> int:
        """Messages that the client has not been given yet; events do not count."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The same, in bytes."""
        ...

    def start(self, hooks: Hooks) -> None:
        """Begin to carry."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a message: it goes before all events that wait, but never into the middle of one."""
        ...

    def send_event(self, frame: bytes) -> None:
        """Send a frame with events, after everything else; ask `events_room` first. Also what must come after the events that
        wait, which asks for no room."""
        ...

    async def events_room(self) -> bool:
        """Wait until events may be sent; False when the connection is over."""
        ...

    def watch(self) -> None:
        """Call `progressed` once when something has been sent; soon, where nothing waits."""
        ...

    def pause(self) -> None:
        """Take no more bytes from the client; some may still be on their way."""
        ...

    def resume(self) -> None:
        """Take bytes again."""
        ...

    async def drained(self) -> None:
        """Wait until everything is sent or nobody reads any more."""
        ...

    def close(self) -> None:
        """Take nothing any more; what was sent is still written where somebody reads it."""
        ...


class StdioTransport:
    """A transport over two descriptors: pipes, sockets, files or terminals."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._over = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def unsent(self) -> int:
        """Messages that are not written yet."""
        return self._writer.lanes.unsent

    @property
    def unsent_bytes(self) -> int:
        """The same, in bytes."""
        return self._writer.lanes.unsent_bytes

    def start(self, hooks: Hooks) -> None:
        """Start both threads. Call it on the event loop."""
        loop = asyncio.get_running_loop()
        self._hooks = hooks
        self._writer = WriterThread(self._descriptors.writing, loop, self._progressed, self._closed)
        self._reader = ReaderThread(self._descriptors.reading, loop, hooks.receive)
        self._writer.start()
        self._reader.start()

    def send(self, frame: bytes) -> None:
        """Send a message."""
        self._writer.send(frame)

    def send_event(self, frame: bytes) -> None:
        """Send a frame with events."""
        self._writer.send_event(frame)

    async def events_room(self) -> bool:
        """Wait until less than 256 KiB is unwritten."""
        while not self._writer.has_room:
            await self._progress()
        return not self._over

    def watch(self) -> None:
        """Have `progressed` called."""
        self._writer.watch()

    def pause(self) -> None:
        """Stop reading."""
        self._reader.pause()

    def resume(self) -> None:
        """Read on."""
        self._reader.resume()

    async def drained(self) -> None:
        """Wait until all is written."""
        while self._writer.lanes.unwritten:
            await self._progress()

    def close(self) -> None:
        """End both threads as far as they can be ended."""
        self._reader.close()
        self._writer.close()

    async def _progress(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._writer.watch()
        await waiter

    def _progressed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._hooks.progressed()

    def _closed(self) -> None:
        self._over = True
        self._progressed()
        self._hooks.closed()
