"""Client's side of a transport under test: in memory, over pipes and over a pair of sockets.

What the client of a real transport reads is read by a thread, so that the event loop under test stays free.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from refold_protocol.rpc.framing import Frame, FrameReader
from refold_server.rpc.descriptors import Descriptors
from refold_server.rpc.stdio import Hooks, StdioTransport, Transport
from tests.support.memory_transport import MemoryTransport


class Carrier(Protocol):
    """A transport with its client, who reads nothing until `read_on`."""

    @property
    def transport(self) -> Transport:
        """The side under test."""
        ...

    def put(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def end(self) -> None:
        """Send the end of the stream."""
        ...

    def read_on(self) -> None:
        """Take everything from now on."""
        ...

    def hang_up(self) -> None:
        """Close the reading end."""
        ...

    async def bodies(self, count: int) -> list[bytes]:
        """Give the next `count` bodies."""
        ...


class MemoryCarrier:
    """The double, with its own client."""

    def __init__(self) -> None:
        self.transport = MemoryTransport(reads=False)
        self.put = self.transport.put
        self.end = self.transport.end
        self.read_on = self.transport.read_on
        self.hang_up = self.transport.hang_up

    async def bodies(self, count: int) -> list[bytes]:
        """Give the next `count` bodies."""
        found: list[bytes] = []
        while len(found) < count:
            found += self.transport.bodies()
            await asyncio.sleep(0)
        return found


class DescriptorCarrier:
    """The real transport over four descriptors: what it reads and writes, and the client's two ends."""

    def __init__(self, theirs: Descriptors, writing: int, reading: int) -> None:
        self.transport = StdioTransport(theirs)
        self._writing = writing
        self._reading = reading
        self._loop = asyncio.get_running_loop()
        self._found: asyncio.Queue[bytes] = asyncio.Queue()

    def put(self, data: bytes) -> None:
        """Send bytes; the test sends no more than the kernel holds."""
        os.write(self._writing, data)

    def end(self) -> None:
        """Send the end of the stream."""
        if self._writing >= 0:
            os.close(self._writing)
        self._writing = -1

    def read_on(self) -> None:
        """Let a thread take everything."""
        threading.Thread(target=self._read, args=(self._reading,), daemon=True).start()
        self._reading = -1

    def hang_up(self) -> None:
        """Close the reading end."""
        if self._reading >= 0:
            os.close(self._reading)
        self._reading = -1

    async def bodies(self, count: int) -> list[bytes]:
        """Give the next `count` bodies."""
        return [await self._found.get() for _ in range(count)]

    def _read(self, descriptor: int) -> None:
        frames = FrameReader()
        while data := os.read(descriptor, 1 << 20):
            for event in frames.feed(data):
                assert isinstance(event, Frame)
                with suppress(RuntimeError):  # the test is over, and its loop closed
                    self._loop.call_soon_threadsafe(self._found.put_nowait, event.body)
        os.close(descriptor)


def over_pipes() -> DescriptorCarrier:
    """Give a real transport over two pipes."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    return DescriptorCarrier(Descriptors(theirs_in, theirs_out), ours_out, ours_in)


def over_sockets() -> DescriptorCarrier:
    """Give a real transport over two pairs of sockets that the client made non-blocking, as node does."""
    theirs_in, ours_out = socket.socketpair()
    ours_in, theirs_out = socket.socketpair()
    theirs_in.setblocking(False)
    theirs_out.setblocking(False)
    return DescriptorCarrier(Descriptors(theirs_in.detach(), theirs_out.detach()), ours_out.detach(), ours_in.detach())


CARRIERS: dict[str, Callable[[], Carrier]] = {
    "memory": MemoryCarrier,
    "pipes": over_pipes,
    "sockets": over_sockets,
}


class Recorder:
    """Hooks that remember, and let a test wait for what it expects."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = False
        self.progressed = 0
        self.closed = 0
        self._changed = asyncio.Event()

    def hooks(self) -> Hooks:
        """Give the hooks."""
        return Hooks(self._receive, self._progress, self._close)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached`; looks again after each call of a hook."""
        while not reached():
            await self._changed.wait()
            self._changed.clear()

    def _receive(self, data: bytes) -> None:
        assert not self.ended
        self.received += data
        self.ended = not data
        self._changed.set()

    def _progress(self) -> None:
        self.progressed += 1
        self._changed.set()

    def _close(self) -> None:
        self.closed += 1
        self._changed.set()
