"""Owns one subscription: its cursor, the handle that it reads through, and what a cursor may be.

Must not know connections; whoever sends asks it for what comes next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

from msgspec import Raw

from refold_protocol.errors import CursorAheadError, CursorDivergedError
from refold_protocol.ids import SessionId, WriterId, writer_tail
from refold_protocol.rpc.notices import SessionEventsNotice
from refold_protocol.rpc.wire_errors import WireError, bad_param
from refold_server.sessions.event_tail import Chunks, EventBatch, Tail
from refold_storage.interface import Handle, SessionRecord

Attach: TypeAlias = Callable[["Subscription"], Callable[[], None]]
"""Has a subscription woken when another process writes its session; gives the function that ends that."""


class Subscription:
    """A cursor, and the handle that it reads through; `stack` gives the handle back. Where the handle is for reading,
    another process may write, and `attach` is asked to watch that."""

    def __init__(
        self, session: SessionId, handle: Handle, after: int, chunks: Chunks, stack: AsyncExitStack, attach: Attach
    ) -> None:
        self.session = session
        self.handle = handle
        self.tail = Tail(handle, after, chunks)
        self._chunks: Chunks = chunks
        self.task: asyncio.Task[None] | None = None
        self.left_at: int | None = None
        """The tail at which it was told, or known before, that nobody writes the session."""
        self._stack = stack
        self._attach = attach
        self._moved = asyncio.Event()
        self._watch()

    @property
    def writer(self) -> WriterId | None:
        """Whoever writes the session now, as far as the handle knows."""
        return self.handle.writer or last_writer(self.handle.record)

    async def move(self, handle: Handle, stack: AsyncExitStack) -> None:
        """Go on behind the last event that was taken, through another handle."""
        tail, before = self.tail, self._stack
        self.handle, self.tail, self._stack = handle, Tail(handle, tail.last, self._chunks), stack
        self._watch()
        self._moved.set()
        self._moved = asyncio.Event()
        tail.close()
        await before.aclose()

    async def moved_from(self, tail: Tail) -> None:
        """Wait until the cursor is another one than `tail`."""
        while self.tail is tail:
            await self._moved.wait()

    def take(self) -> EventBatch | None:
        """Give what is to be told next, or None when there is nothing now. Raises SessionHandleClosedError, and
        SessionNotFoundError when the session was deleted."""
        self.handle.refresh()
        return self.tail.take()

    async def close(self) -> None:
        """Stop looking and give the handle back."""
        self.tail.close()
        await self._stack.aclose()

    def _watch(self) -> None:
        if self.handle.access == "read":
            self._stack.callback(self._attach(self))


async def wait_for_news(tail: Tail, seconds: float | None) -> None:
    """Wait until there may be news, at most `seconds`: something else is to be told then."""
    try:
        async with asyncio.timeout(seconds):
            await tail.wait()
    except TimeoutError:  # that is what was asked for
        return


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


def notice_of(number: int, writer: WriterId | None, batch: EventBatch, phase: str | None = None) -> SessionEventsNotice:
    """Give the notification that tells a batch to a subscription."""
    events = tuple(Raw(line) for line in batch.lines)
    return SessionEventsNotice(number, events, batch.prev, batch.tail, batch.durable, writer, batch.caught_up, phase)
