"""Double of a transport: bytes that a test puts in, frames that it takes out, and a client that may stop reading.

Keeps every promise of `transport.py`; the conformance suite runs against both.
"""

from __future__ import annotations

import asyncio
from collections import deque

from refold_protocol.rpc.framing import Frame, FrameReader
from refold_server.rpc.lanes import EVENTS_BELOW_BYTES
from refold_server.rpc.stdio import Hooks


class MemoryTransport:
    """The endpoint's side keeps the promises of `Transport`; the client's side is `put`, `end`, `stop_reading`, `read_on`,
    `hang_up` and `bodies`."""

    def __init__(self, *, reads: bool = True) -> None:
        self.paused = False
        self._reads = reads
        self._over = False
        self._watched = False
        self._frames = FrameReader()
        self._bodies: list[bytes] = []
        self._messages: deque[bytes] = deque()
        self._events: deque[bytes] = deque()
        self._inbox: deque[tuple[bytes, ...]] = deque()
        self._changed = asyncio.Event()

    @property
    def unsent(self) -> int:
        """Messages that the client has not taken."""
        return len(self._messages)

    @property
    def unsent_bytes(self) -> int:
        """The same, in bytes."""
        return sum(map(len, self._messages))

    def start(self, hooks: Hooks) -> None:
        """Begin to carry."""
        self._hooks = hooks
        self._deliver()

    def send(self, frame: bytes) -> None:
        """Send a message."""
        if not self._over:
            self._messages.append(frame)
            self._take()

    def send_event(self, frame: bytes) -> None:
        """Send a frame with events."""
        if not self._over:
            self._events.append(frame)
            self._take()

    async def events_room(self) -> bool:
        """Wait until less than 256 KiB waits."""
        while not self._over and self._unwritten() >= EVENTS_BELOW_BYTES:
            await self._change()
        return not self._over

    def watch(self) -> None:
        """Have `progressed` called."""
        self._watched = True
        if not self._unwritten():
            self._progress()

    def pause(self) -> None:
        """Take no more bytes."""
        self.paused = True

    def resume(self) -> None:
        """Take bytes again."""
        self.paused = False
        self._deliver()

    async def drained(self) -> None:
        """Wait until the client has taken everything."""
        while not self._over and self._unwritten():
            await self._change()

    def close(self) -> None:
        """Take nothing any more."""
        self._inbox.clear()
        self.pause()

    def put(self, data: bytes, *more: bytes) -> None:
        """As the client: send bytes; several pieces are received in one turn of the loop."""
        self._inbox.append((data, *more))
        self._deliver()

    def end(self) -> None:
        """As the client: end the stream."""
        self.put(b"")

    def stop_reading(self) -> None:
        """As the client: take nothing from now on."""
        self._reads = False

    def read_on(self) -> None:
        """As the client: take what waits, and from now on everything."""
        self._reads = True
        self._take()

    def hang_up(self) -> None:
        """As the client: close the reading end."""
        self._over = True
        self._messages.clear()
        self._events.clear()
        self._progress()
        asyncio.get_running_loop().call_soon(self._hooks.closed)

    def bodies(self) -> list[bytes]:
        """As the client: give the bodies read since the last call, in order."""
        bodies, self._bodies = self._bodies, []
        return bodies

    def _take(self) -> None:
        for lane in (self._messages, self._events):
            while self._reads and lane:
                self._bodies += [event.body for event in self._frames.feed(lane.popleft()) if isinstance(event, Frame)]
        if self._reads:
            self._progress()

    def _deliver(self) -> None:
        if self._inbox and not self.paused and hasattr(self, "_hooks"):
            asyncio.get_running_loop().call_soon(self._deliver_one)

    def _deliver_one(self) -> None:
        if self._inbox and not self.paused:
            for piece in self._inbox.popleft():
                self._hooks.receive(piece)
            self._deliver()

    def _progress(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self._watched:
            self._watched = False
            asyncio.get_running_loop().call_soon(self._hooks.progressed)

    def _unwritten(self) -> int:
        return sum(map(len, self._messages)) + sum(map(len, self._events))

    async def _change(self) -> None:
        await self._changed.wait()
