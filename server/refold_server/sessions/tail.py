"""Owns a reader's place in a log that grows: what may be told now, in order, once, from any seq on.

Events wait in the log, not in memory: a slow reader just has an old cursor. An event with an outside effect is told only
after it is durable, and what follows it waits too. Serves connections and the command line alike; knows neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from msgspec import Struct

from refold_protocol.session.codec import line_type
from refold_protocol.session.events import Event
from refold_storage.interface import Handle

TOLD_WHEN_DURABLE: Final = frozenset(
    {"input/accepted", "input/settled", "tool/call", "approval/asked", "approval/decided", "turn/end"}
)
"""Event types with an effect outside the log: told after their flush."""

MAX_EVENTS: Final = 512
"""Most events of one batch."""

MAX_BYTES: Final = 256 * 1024
"""Most bytes of lines in one batch; a single longer line goes alone."""


class Batch(Struct, frozen=True, gc=False):
    """What to tell: the exact lines behind `prev`, up to `last` (equal to `prev` when only `durable` moved)."""

    lines: list[bytes]
    prev: int
    last: int
    tail: int
    durable: int
    caught_up: bool


class Tail:
    """A cursor over a handle's log, starting behind seq `after`."""

    def __init__(self, handle: Handle, after: int) -> None:
        self._handle = handle
        self._sent = after
        self._durable_told = -1
        self._first = True
        self._held: deque[int] = deque()
        self._wake = anyio.Event()
        self._closed = False
        if handle.access == "write":
            undurable = handle.lines(handle.durable + 1) if handle.durable < handle.tail else []
            for place, line in enumerate(undurable):
                if line_type(line) in TOLD_WHEN_DURABLE:
                    self._held.append(handle.durable + 1 + place)
        self._stops: list[Callable[[], None]] = [handle.observe(self._accepted), handle.watch_durable(self._made_durable)]

    @property
    def last(self) -> int:
        """The last seq that was taken, or the cursor that it began with."""
        return self._sent

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def take(self) -> Batch | None:
        """Give the next batch, or None when there is nothing to tell now."""
        handle = self._handle
        durable = handle.durable
        limit = self._limit(durable)
        lines: list[bytes] = []
        prev = self._sent
        if prev < limit:
            lines = handle.lines(prev + 1, min(limit, prev + MAX_EVENTS), max_bytes=MAX_BYTES)
        last = prev + len(lines)
        news = min(durable, last) > self._durable_told
        if not lines and not news and not self._first:
            return None
        self._first = False
        self._sent = last
        self._durable_told = max(self._durable_told, min(durable, last))
        return Batch(lines, prev, last, handle.tail, durable, last >= limit)

    async def wait(self) -> None:
        """Wait until something may have changed. Returns at once after `close`."""
        if not self._closed:
            await self._wake.wait()
        if not self._closed:
            self._wake = anyio.Event()

    def close(self) -> None:
        """Stop watching and wake whoever waits. Idempotent."""
        self._closed = True
        for stop in self._stops:
            stop()
        self._stops = []
        self._wake.set()

    def _limit(self, durable: int) -> int:
        while self._held and self._held[0] <= durable:
            self._held.popleft()
        return self._held[0] - 1 if self._held else self._handle.tail

    def _accepted(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type in TOLD_WHEN_DURABLE:
                self._held.append(event.seq)
        self._wake.set()

    def _made_durable(self, durable: int) -> None:
        del durable
        self._wake.set()
