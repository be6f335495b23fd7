"""Owns the thread that writes, and the two lanes that lead to it: messages, and behind them events.

The first lane takes everything at once and counts what is unsent; whoever fills it looks at that. The second lane is for
`session/events` and is asked before it is filled (`has_room`): events wait in the log, not here. What the kernel takes
without waiting is written in the call itself; the thread sleeps until there is something to wait for, and never waits for
the reader. Must not know messages.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from refold_server.rpc.descriptors import write_all
from refold_server.rpc.shortcut import Shortcut

BATCH_BYTES: Final = 65_536
"""Small frames are written together up to this size: a system call costs more than a copy."""

EVENTS_BELOW_BYTES: Final = 256 * 1024
"""Events may be added only while less than this is unwritten."""


class WriterThread:
    """Writes frames in order of lane and arrival. `closed` is called once on the loop, when nobody reads any
    more or when all is written after `close`."""

    def __init__(
        self,
        descriptor: int,
        loop: asyncio.AbstractEventLoop,
        progressed: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self.unsent = 0
        """Frames of the first lane that are not written yet."""
        self.unsent_bytes = 0
        """The same, in bytes."""
        self.unwritten = 0
        """Bytes of both lanes that are not written yet."""
        self._descriptor = descriptor
        self._loop = loop
        self._progressed = progressed
        self._closed = closed
        self._lock = threading.Lock()  # guards all that follows, and the counters
        self._messages: deque[bytes] = deque()
        self._events: deque[bytes] = deque()
        self._asleep = False
        self._watched = False
        self._ending = False
        self._broken = False
        self._shortcut = Shortcut(descriptor)
        self._wake = threading.Lock()  # held but for the moment in which the sleeping thread is woken
        self._wake.acquire()

    def start(self) -> None:
        """Begin to write."""
        threading.Thread(target=self._run, name="refold writer", daemon=True).start()

    def send(self, frame: bytes) -> None:
        """Put a frame into the first lane. Nothing happens once nobody reads."""
        with self._lock:
            rest = self._left_over(frame)
            if rest:
                self._messages.append(rest)
                self.unsent += 1
                self.unsent_bytes += len(rest)
                self._added(len(rest))

    def send_event(self, frame: bytes) -> None:
        """Put a frame into the second lane."""
        with self._lock:
            rest = self._left_over(frame)
            if rest:
                self._events.append(rest)
                self._added(len(rest))

    @property
    def has_room(self) -> bool:
        """Whether events may be added now."""
        return self.unwritten < EVENTS_BELOW_BYTES

    def watch(self) -> None:
        """Call `progressed` on the loop, once, when something has been written; soon, where nothing is unwritten."""
        with self._lock:
            self._watched = self.unwritten > 0
            if not self._watched:
                self._loop.call_soon(self._progressed)

    def close(self) -> None:
        """End when all is written. A write that waits for the client right now ends with the process."""
        with self._lock:
            self._ending = True
            self._wake_up()

    def _left_over(self, frame: bytes) -> bytes:
        """Write what can be written at once, while the thread has nothing to do; give what it must write."""
        if self._broken:
            return b""
        return frame[self._shortcut.write(frame) :] if self._asleep else frame

    def _added(self, size: int) -> None:
        self.unwritten += size
        self._wake_up()

    def _wake_up(self) -> None:
        if self._asleep:
            self._asleep = False
            self._wake.release()

    def _run(self) -> None:
        while True:
            with self._lock:
                batch, messages, message_bytes = self._take()
                self._asleep = sleeps = not batch and not self._ending
            if sleeps:
                self._wake.acquire()
            elif not batch or not write_all(self._descriptor, batch):
                break
            else:
                self._written(len(batch), messages, message_bytes)
        self._end()

    def _take(self) -> tuple[bytes, int, int]:
        """Give the next bytes to write, and how many frames and bytes of the first lane are among them."""
        frames: list[bytes] = []
        size = messages = message_bytes = 0
        for lane in (self._messages, self._events):
            while lane and (not frames or size + len(lane[0]) <= BATCH_BYTES):
                frames.append(lane.popleft())
                size += len(frames[-1])
            if lane is self._messages:
                messages, message_bytes = len(frames), size
            if lane:
                break
        return frames[0] if len(frames) == 1 else b"".join(frames), messages, message_bytes

    def _written(self, size: int, messages: int, message_bytes: int) -> None:
        with self._lock:
            self.unwritten -= size
            self.unsent -= messages
            self.unsent_bytes -= message_bytes
            watched, self._watched = self._watched, False
        if watched:
            self._tell(self._progressed)

    def _end(self) -> None:
        with self._lock:
            self._broken = True
            self._shortcut.close()
            self._messages.clear()
            self._events.clear()
            self.unsent = self.unsent_bytes = self.unwritten = 0
        os.close(self._descriptor)
        self._tell(self._closed)

    def _tell(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            self._loop.call_soon_threadsafe(callback)
