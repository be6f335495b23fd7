"""Owns the subscriptions of one connection: `event/subscribe`, `event/unsubscribe`, and the sending of `session/events`.

A subscription is a cursor over a log and a task that moves it when there is news and the client has room. It never holds
events: a client that does not read has an old cursor, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Final, Protocol

from msgspec import Raw

from refold_protocol.errors import CursorAheadError, CursorDivergedError, RefoldError, SessionHandleClosedError
from refold_protocol.ids import SessionId, WriterId, writer_tail
from refold_protocol.rpc.errors import WireError, bad_param
from refold_protocol.rpc.notices import SessionEventsNotice
from refold_protocol.rpc.params import EventSubscribeParams, EventUnsubscribeParams
from refold_protocol.rpc.results import EventSubscribeResult, EventUnsubscribeResult
from refold_server.rpc.dispatch import Followed
from refold_server.sessions.reading import reading
from refold_server.sessions.registry import Sessions
from refold_server.sessions.tail import Batch, Tail
from refold_storage.interface import Handle, SessionRecord

LIVELY_S: Final = 0.025
"""Seconds between two looks at a log that another process writes, while it changes."""

QUIET_S: Final = 0.5
"""The same after QUIET_AFTER_S seconds without a change."""

QUIET_AFTER_S: Final = 5.0

logger = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where notifications of events go: the endpoint."""

    async def events_room(self) -> bool:
        """Wait until one may be sent; False when the connection is over."""
        ...

    def send_events(self, notice: SessionEventsNotice) -> None:
        """Send one."""
        ...


class _Subscription:
    """A cursor, and the handle that it reads through; `stack` gives the handle back."""

    def __init__(self, session: SessionId, handle: Handle, after: int, stack: AsyncExitStack) -> None:
        self.session = session
        self.handle = handle
        self.tail = Tail(handle, after)
        self.task: asyncio.Task[None] | None = None
        self._stack = stack
        self._moved = asyncio.Event()

    @property
    def writer(self) -> WriterId | None:
        """Whoever writes the session now, as far as the handle knows."""
        return self.handle.writer or _last_writer(self.handle.record)

    async def move(self, handle: Handle, stack: AsyncExitStack) -> None:
        """Go on behind the last event that was taken, through another handle."""
        tail, before = self.tail, self._stack
        self.handle, self.tail, self._stack = handle, Tail(handle, tail.last), stack
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


class EventMethods:
    """The subscriptions of one connection."""

    def __init__(self, sessions: Sessions, outlet: Outlet, group: asyncio.TaskGroup) -> None:
        self._sessions = sessions
        self._outlet = outlet
        self._group = group
        self._open: dict[int, _Subscription] = {}
        self._last_id = 0

    async def subscribe(self, params: EventSubscribeParams) -> Followed:
        """event/subscribe. The first events follow the reply."""
        async with AsyncExitStack() as stack:
            handle, _ = await stack.enter_async_context(reading(self._sessions, params.session))
            after = handle.tail if params.after == "tail" else params.after
            _check_cursor(handle, after, params.writer)
            subscription = _Subscription(params.session, handle, after, stack.pop_all())
        self._last_id += 1
        number = self._last_id
        self._open[number] = subscription

        def begin() -> None:
            subscription.task = self._group.create_task(self._follow(number, subscription))

        return Followed(EventSubscribeResult(number, handle.tail, handle.durable, subscription.writer), begin)

    async def unsubscribe(self, params: EventUnsubscribeParams) -> EventUnsubscribeResult:
        """event/unsubscribe."""
        subscription = self._open.get(params.subscription)
        if subscription is None:
            raise WireError(bad_param("event/unsubscribe", "$.subscription", f"there is no subscription {params.subscription}"))
        await self._end(params.subscription)
        return EventUnsubscribeResult(subscription.tail.last)

    async def settle(self, session: SessionId) -> None:
        """Let the subscriptions of a session that was opened or closed here go on through the handle that it has now: the
        writer's own, else one for reading. They end only where the session left no record."""
        for number, subscription in [row for row in self._open.items() if row[1].session == session]:
            stack = AsyncExitStack()
            try:
                handle, _ = await stack.enter_async_context(reading(self._sessions, session))
            except RefoldError as error:
                logger.info("subscription %d ends: %s", number, error.message)
                await self._end(number)
                continue
            if handle is not subscription.handle:
                await subscription.move(handle, stack)

    async def end_all(self) -> None:
        """End every subscription."""
        for number in list(self._open):
            await self._end(number)

    async def _end(self, number: int) -> None:
        subscription = self._open.pop(number, None)
        if subscription is None:
            return
        if subscription.task is not None and subscription.task is not asyncio.current_task():
            subscription.task.cancel()
            await asyncio.wait({subscription.task})
        await subscription.close()

    async def _follow(self, number: int, subscription: _Subscription) -> None:
        looks = _Looks()
        try:
            while await self._outlet.events_room():
                tail = subscription.tail
                try:
                    batch = tail.take()
                    if batch is None:
                        await looks.wait(subscription.handle, tail)
                        continue
                except SessionHandleClosedError:  # the session is being closed, or was opened here; `settle` follows
                    await subscription.moved_from(tail)
                    continue
                self._outlet.send_events(notice_of(number, subscription.writer, batch))
                await asyncio.sleep(0)  # a long replay lets others run between two batches
        except RefoldError as error:  # a damaged record: this subscription ends, the connection lives on
            logger.error("subscription %d ends: %s", number, error.message)
            await self._end(number)


class _Looks:
    """When to look at a log again: at once where this process writes it, now and then where another does."""

    def __init__(self) -> None:
        self._changed = asyncio.get_running_loop().time()

    async def wait(self, handle: Handle, tail: Tail) -> None:
        """Wait until there may be news. Raises SessionHandleClosedError."""
        if handle.access == "write":
            await tail.wait()
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(QUIET_S if now - self._changed > QUIET_AFTER_S else LIVELY_S)
        before = handle.tail
        if handle.refresh() != before:
            self._changed = asyncio.get_running_loop().time()


def _check_cursor(handle: Handle, after: int, writer: WriterId | None) -> None:
    """Raise CursorDivergedError or CursorAheadError for a cursor from which this log cannot be told on."""
    present = handle.writer or _last_writer(handle.record)
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


def _last_writer(record: SessionRecord) -> WriterId | None:
    return record.writers[-1][0] if record.writers else None


def notice_of(number: int, writer: WriterId | None, batch: Batch) -> SessionEventsNotice:
    """Give the notification that tells a batch to a subscription."""
    events = tuple(Raw(line) for line in batch.lines)
    return SessionEventsNotice(number, events, batch.prev, batch.tail, batch.durable, writer, batch.caught_up)
