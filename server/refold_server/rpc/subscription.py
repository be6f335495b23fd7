"""Owns one subscription: its cursor, the handle that it reads through, when it looks again, and what a cursor may be.

Must not know connections; whoever sends asks it for what comes next.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from msgspec import Raw

from refold_protocol.errors import CursorAheadError, CursorDivergedError
from refold_protocol.ids import SessionId, WriterId, writer_tail
from refold_protocol.rpc.errors import WireError, bad_param
from refold_protocol.rpc.notices import SessionEventsNotice
from refold_server.sessions.tail import Batch, Chunks, Tail
from refold_storage.interface import Handle, SessionRecord

LIVELY_S: Final = 0.025
"""Seconds between two looks at a log that another process writes, while it changes."""

QUIET_S: Final = 0.5
"""The same after QUIET_AFTER_S seconds without a change."""

QUIET_AFTER_S: Final = 5.0


class Subscription:
    """A cursor, and the handle that it reads through; `stack` gives the handle back."""

    def __init__(self, session: SessionId, handle: Handle, after: int, chunks: Chunks, stack: AsyncExitStack) -> None:
        self.session = session
        self.handle = handle
        self.tail = Tail(handle, after, chunks)
        self._chunks: Chunks = chunks
        self.task: asyncio.Task[None] | None = None
        self._stack = stack
        self._moved = asyncio.Event()

    @property
    def writer(self) -> WriterId | None:
        """Whoever writes the session now, as far as the handle knows."""
        return self.handle.writer or last_writer(self.handle.record)

    async def move(self, handle: Handle, stack: AsyncExitStack) -> None:
        """Go on behind the last event that was taken, through another handle."""
        tail, before = self.tail, self._stack
        self.handle, self.tail, self._stack = handle, Tail(handle, tail.last, self._chunks), stack
        self._moved.set()
        self._moved = asyncio.Event()
        tail.close()
        await before.aclose()

    async def moved_from(self, tail: Tail) -> None:
        """Wait until the cursor is another one than `tail`."""
        while self.tail is tail:
            await self._moved.wait()

    async def close(self) -> None:
        """Stop looking and give the handle back."""
        self.tail.close()
        await self._stack.aclose()


class Looks:
    """When to look at a log again: at once where this process writes it, now and then where another does."""

    def __init__(self) -> None:
        self._changed = asyncio.get_running_loop().time()

    async def wait(self, handle: Handle, tail: Tail, seconds: float | None) -> None:
        """Wait until there may be news, at most `seconds` where this process writes. Raises SessionHandleClosedError."""
        if handle.access == "write":
            try:
                async with asyncio.timeout(seconds):
                    await tail.wait()
            except TimeoutError:  # no news is to be told then
                pass
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(QUIET_S if now - self._changed > QUIET_AFTER_S else LIVELY_S)
        before = handle.tail
        if handle.refresh() != before:
            self._changed = asyncio.get_running_loop().time()


def check_cursor(handle: Handle, after: int, writer: WriterId | None) -> None:
    """Raise CursorDivergedError or CursorAheadError for a cursor from which this log cannot be told on."""
    present = handle.writer or last_writer(handle.record)
    if writer is not None and writer != present:
        durable = durable_end(handle.record, writer)
        if after > durable:
            raise CursorDivergedError(
                f"writer {writer} did not live to keep events behind {durable}; drop them and subscribe after {durable}",
                durable=durable,
            )
    if after > handle.tail:
        raise CursorAheadError(f"the log ends at {handle.tail}, before {after}", tail=handle.tail)


def durable_end(record: SessionRecord, writer: WriterId) -> int:
    """Give the last seq that `writer` made durable. Raises WireError for a text that is no writer id."""
    rows = record.writers
    for place, (name, _) in enumerate(rows):
        if name == writer:
            return rows[place + 1][1] - 1 if place + 1 < len(rows) else record.tail
    try:
        return writer_tail(writer)
    except ValueError:
        raise WireError(bad_param("event/subscribe", "$.writer", f"{writer!r} is not a writer id")) from None


def last_writer(record: SessionRecord) -> WriterId | None:
    """Give who wrote the last events, None for a log without any."""
    return record.writers[-1][0] if record.writers else None


def notice_of(number: int, writer: WriterId | None, batch: Batch, phase: str | None = None) -> SessionEventsNotice:
    """Give the notification that tells a batch to a subscription."""
    events = tuple(Raw(line) for line in batch.lines)
    return SessionEventsNotice(number, events, batch.prev, batch.tail, batch.durable, writer, batch.caught_up, phase)
