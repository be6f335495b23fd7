"""A reader's place in a log that grows: what may be sent now, in order, once, from any seq on.

Events wait in the log, not in memory: a slow reader just has an old cursor. An event with an outside effect is sent only
after it is durable, and what follows it waits too. Serves connections and the command line alike; knows neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import anyio
from msgspec import Struct

from refold_protocol.session.codec import line_type
from refold_protocol.session.events import Event
from refold_storage.interface import Handle

TOLD_WHEN_DURABLE: Final = frozenset(
    {"input/accepted", "input/settled", "tool/call", "approval/asked", "approval/decided", "turn/end"}
)
"""Event types with an effect outside the log: sent after their flush."""

MAX_EVENTS: Final = 512
"""Most events of one batch."""

MAX_BYTES: Final = 256 * 1024
"""Most bytes of lines in one batch; a single longer line goes alone."""


Chunks: TypeAlias = Literal["all", "live", "none"]
"""Which chunks are sent: all; while the reader keeps up, until their message is there; none."""


class EventBatch(Struct, frozen=True, gc=False):
    """What to send: exact lines after the event `prev` that was sent last, up to `last` (equal to `prev` when only `durable`
    moved)."""

    lines: list[bytes]
    prev: int
    last: int
    tail: int
    durable: int
    caught_up: bool


class Tail:
    """A cursor over a handle's log, starting after seq `after`; `chunks` says which `assistant/chunk` events it gives."""

    def __init__(self, handle: Handle, after: int, chunks: Chunks = "all") -> None:
        self._handle = handle
        self._chunks: Chunks = chunks
        self._looked = after
        self._told = after
        self._replied = -1
        self._searched = after
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
        """The seq of the last event that was taken, or the cursor that it began with."""
        return self._told

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def take(self) -> EventBatch | None:
        """Give the next batch, or None when there is nothing to send now."""
        handle = self._handle
        durable = handle.durable
        limit = self._limit(durable)
        prev = self._told
        lines = self._next_lines(limit)
        news = min(durable, self._told) > self._durable_told
        if not lines and not news and not self._first:
            return None
        self._first = False
        self._durable_told = max(self._durable_told, min(durable, self._told))
        return EventBatch(lines, prev, self._told, handle.tail, durable, self._looked >= limit)

    def repeat(self) -> EventBatch:
        """Give a batch without events: where this reader is, said once more."""
        handle = self._handle
        return EventBatch([], self._told, self._told, handle.tail, handle.durable, self._looked >= self._limit(handle.durable))

    async def wait(self) -> None:
        """Wait until something may have changed. Returns at once after `close`."""
        if not self._closed:
            await self._wake.wait()
        if not self._closed:
            self._wake = anyio.Event()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._wake.set()

    def close(self) -> None:
        """Stop watching and wake whoever waits. Idempotent."""
        self._closed = True
        for stop in self._stops:
            stop()
        self._stops = []
        self._wake.set()

    def _next_lines(self, limit: int) -> list[bytes]:
        """Look on from where was looked last, until there is something to send or nothing more to see."""
        while self._looked < limit:
            first = self._looked + 1
            lines = self._handle.lines(first, min(limit, first + MAX_EVENTS - 1), max_bytes=MAX_BYTES)
            self._looked = first + len(lines) - 1
            if self._chunks == "all":
                self._told = self._looked
                return lines
            kept = self._wanted(lines, first)
            if kept:
                self._told = first + kept[-1][0]
                return [line for _, line in kept]
        return []

    def _wanted(self, lines: list[bytes], first: int) -> list[tuple[int, bytes]]:
        """Leave out chunks: all of them, or those whose message is in the log already: it says the same, and more."""
        settled = self._looked + 1 if self._chunks == "none" else self._last_reply()
        return [
            (place, line) for place, line in enumerate(lines) if first + place > settled or not line.startswith(_CHUNK_LINE)
        ]

    def _last_reply(self) -> int:
        """Give the seq of the last assistant message of the log. Looks at each event once, from the end backwards."""
        tail = self._handle.tail
        last = tail
        while last > self._searched:
            first = max(self._searched + 1, last - MAX_EVENTS + 1)
            lines = self._handle.lines(first, last)
            for place in range(len(lines) - 1, -1, -1):
                if lines[place].startswith(_REPLY_LINE):
                    self._replied, last = first + place, self._searched
                    break
            else:
                last = first - 1
        self._searched = tail
        return self._replied

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


_CHUNK_LINE: Final = b'{"type":"assistant/chunk"'
_REPLY_LINE: Final = b'{"type":"assistant/message"'
