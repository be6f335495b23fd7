"""The way out of a connection: frames that wait in two lanes, and the thread that writes them.

The first lane is for messages. It takes everything at once and counts what is unsent; whoever fills it looks at that. The
second is for `session/events` and for what must come after them; it is asked before it is filled (`has_room`): events wait
in the log, not here. Frames of the first lane go before those of the second, but a frame that was begun is ended before
another begins: whoever writes asks `Lanes` what comes next.

What the kernel takes without waiting is written in the call itself, because waking the thread for a lone message costs some
fifty microseconds, twenty times the message itself. The thread sleeps until there is something to wait for. Nobody but the
thread ever waits for the reader. Must not know messages.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from refold_server.rpc.descriptors import write_all

BATCH_BYTES: Final = 65_536
"""Small frames are written together up to this size: a system call costs more than a copy."""

EVENTS_BELOW_BYTES: Final = 256 * 1024
"""Events may be added only while less than this is unwritten."""

AT_ONCE_BYTES: Final = 65_536
"""Larger pieces are left to the thread: the kernel would take a part of them only."""


class Lanes:
    """Frames that wait in two lanes, and the piece that is being written. The order of bytes is decided here alone.

    `piece` gives what comes next and `written` takes note of how much of it was written. Until a piece is written to its
    end, `piece` gives the rest of it and nothing else.
    """

    def __init__(self) -> None:
        self.unsent = 0
        """Frames of the first lane that are not written to their end."""
        self.unsent_bytes = 0
        """The bytes of these frames."""
        self.unwritten = 0
        """Bytes of both lanes that are not written."""
        self._messages: deque[bytes] = deque()
        self._events: deque[bytes] = deque()
        self._begun = b""
        self._begun_messages = 0  # frames of the first lane in the piece
        self._begun_message_bytes = 0

    def add(self, frame: bytes) -> None:
        """Put a frame into the first lane."""
        self._messages.append(frame)
        self.unsent += 1
        self.unsent_bytes += len(frame)
        self.unwritten += len(frame)

    def add_event(self, frame: bytes) -> None:
        """Put a frame into the second lane."""
        self._events.append(frame)
        self.unwritten += len(frame)

    def piece(self) -> bytes:
        """Give the bytes to write next, none where nothing waits: the rest of what was begun, else as many whole frames as go
        together."""
        if not self._begun:
            frames = self._take(self._messages, [], 0)
            self._begun_messages, self._begun_message_bytes = len(frames), sum(map(len, frames))
            if not self._messages:
                frames = self._take(self._events, frames, self._begun_message_bytes)
            self._begun = frames[0] if len(frames) == 1 else b"".join(frames)
        return self._begun

    def written(self, size: int) -> None:
        """Take note that the first `size` bytes of the piece were written."""
        self.unwritten -= size
        self._begun = self._begun[size:]
        if not self._begun:
            self.unsent -= self._begun_messages
            self.unsent_bytes -= self._begun_message_bytes
            self._begun_messages = self._begun_message_bytes = 0

    @staticmethod
    def _take(lane: deque[bytes], frames: list[bytes], size: int) -> list[bytes]:
        while lane and (not frames or size + len(lane[0]) <= BATCH_BYTES):
            frames.append(lane.popleft())
            size += len(frames[-1])
        return frames


class WriterThread:
    """Writes frames in the order of `Lanes`. `closed` is called once on the loop, when nobody reads any more or when all is
    written after `close`."""

    def __init__(
        self,
        descriptor: int,
        loop: asyncio.AbstractEventLoop,
        progressed: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self.lanes = Lanes()
        self._descriptor = descriptor
        self._loop = loop
        self._progressed = progressed
        self._closed = closed
        self._lock = threading.Lock()  # guards the lanes and all that follows
        self._asleep = False
        self._watched = False
        self._ending = False
        self._broken = False
        self._at_once = WritesAtOnce(descriptor)
        self._wake = threading.Lock()  # held but for the moment in which the sleeping thread is woken
        self._wake.acquire()

    def start(self) -> None:
        """Begin to write."""
        threading.Thread(target=self._run, name="refold writer", daemon=True).start()

    def send(self, frame: bytes) -> None:
        """Put a frame into the first lane. Nothing happens once nobody reads."""
        self._send(frame, self.lanes.add)

    def send_event(self, frame: bytes) -> None:
        """Put a frame into the second lane."""
        self._send(frame, self.lanes.add_event)

    @property
    def has_room(self) -> bool:
        """Whether events may be added now."""
        return self.lanes.unwritten < EVENTS_BELOW_BYTES

    def watch(self) -> None:
        """Call `progressed` on the loop, once, when something has been written; soon, where nothing is unwritten."""
        with self._lock:
            self._watched = self.lanes.unwritten > 0
            if not self._watched:
                self._loop.call_soon(self._progressed)

    def close(self) -> None:
        """End when all is written. A write that waits for the client right now ends with the process."""
        with self._lock:
            self._ending = True
            self._wake_up()

    def _send(self, frame: bytes, add: Callable[[bytes], None]) -> None:
        with self._lock:
            if self._broken:
                return
            add(frame)
            if self._asleep:  # else the thread is in the middle of a piece
                self.lanes.written(self._at_once.write(self.lanes.piece()))
                if self.lanes.unwritten:
                    self._wake_up()

    def _wake_up(self) -> None:
        if self._asleep:
            self._asleep = False
            self._wake.release()

    def _run(self) -> None:
        while True:
            with self._lock:
                piece = self.lanes.piece()
                self._asleep = sleeps = not piece and not self._ending
            if sleeps:
                self._wake.acquire()
            elif not piece or not write_all(self._descriptor, piece):
                break
            else:
                self._written(len(piece))
        self._end()

    def _written(self, size: int) -> None:
        with self._lock:
            self.lanes.written(size)
            watched, self._watched = self._watched, False
        if watched:
            self._tell(self._progressed)

    def _end(self) -> None:
        with self._lock:
            self._broken = True
            self._at_once.close()
            self.lanes = Lanes()
        os.close(self._descriptor)
        self._tell(self._closed)

    def _tell(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            self._loop.call_soon_threadsafe(callback)


class WritesAtOnce:
    """Writes to a descriptor's pipe or socket as much as the kernel takes without waiting; elsewhere nothing.

    Never changes the client's own view of its descriptors: the flag that says "do not wait" is set on a description of our
    own.
    """

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
        """Write as much of `data` as can be written now; give how many bytes that was, which may be a part. 0 also for a
        broken stream: the thread finds out what is wrong with it."""
        if self._write is None or len(data) > AT_ONCE_BYTES:
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
