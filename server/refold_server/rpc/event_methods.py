"""Subscription: its cursor, the handle that it reads through, and what a cursor may be.

Must not know connections; whoever sends asks it for what comes next.

Subscriptions of one connection: `event/subscribe`, `event/unsubscribe`, and the sending of `session/events`.

A subscription is a cursor over a log and a task that moves it when there is news and the client has room. It never holds
events: a client that does not read has an old cursor, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Raw, Struct

from refold_protocol.errors import (
    CursorAheadError,
    CursorDivergedError,
    InvariantError,
    RefoldError,
    SessionHandleClosedError,
    SessionNotFoundError,
)
from refold_protocol.ids import SessionId, WriterId, writer_tail
from refold_protocol.rpc.wire_errors import WireError, bad_param
from refold_protocol.session.session_state import phase_of
from refold_server.rpc.dispatch import AfterEvents, Followed, Handler
from refold_server.rpc.method import Cursor, request_row
from refold_server.rpc.notices import SessionEventsNotice, SessionsChangedNotice, SessionTroubleNotice
from refold_server.sessions.event_tail import Chunks, EventBatch, Tail
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_views import reading, stands_open
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


class EventSubscribeResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`event/subscribe`. `writer` is absent for a session that nobody ever wrote."""

    subscription: int
    tail: int
    durable: int
    writer: WriterId | None = None


class EventUnsubscribeResult(Struct, frozen=True, gc=False):
    """`event/unsubscribe`: the seq of the last event that was sent. None of the subscription follows this reply."""

    last: int


class EventSubscribeParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`event/subscribe`: what comes after the event `after` (−1: from the start; `tail`: from now on). `writer` is the
    one under which the client learnt of `after`. `chunks`: all of them; while the client keeps up (`live`: those whose
    message is there already are left out); none."""

    session: SessionId
    after: Cursor | Literal["tail"]
    writer: WriterId | None = None
    chunks: Literal["all", "live", "none"] = "all"


class EventUnsubscribeParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`event/unsubscribe`."""

    subscription: int


PHASE_SECONDS: Final = 15.0
"""While a turn runs, a notification names its phase at least that often."""

logger = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where notifications of events go: the endpoint."""

    async def events_room(self) -> bool:
        """Wait until one may be sent; False when the connection is over."""
        ...

    def send_events(self, notice: SessionEventsNotice) -> None:
        """Send one."""
        ...

    def notify(self, method: str, params: object = None) -> None:
        """Send any other notification."""
        ...

    def notify_after_events(self, method: str, params: object = None) -> None:
        """Send one after all events that wait to be sent."""
        ...


class EventMethods:
    """The subscriptions of one connection."""

    def __init__(
        self, sessions: Sessions, outlet: Outlet, group: asyncio.TaskGroup, ask_again: Callable[[SessionId], None]
    ) -> None:
        self._sessions = sessions
        self._outlet = outlet
        self._group = group
        self._ask_again = ask_again
        self._open: dict[int, Subscription] = {}
        self._last_id = 0

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers by method name."""
        return {
            "event/subscribe": self.subscribe,
            "event/unsubscribe": self.unsubscribe,
        }

    async def subscribe(self, params: EventSubscribeParams) -> Followed:
        """event/subscribe. The first events follow the reply, then what is open is asked once more."""
        async with AsyncExitStack() as stack:
            handle, _ = await stack.enter_async_context(reading(self._sessions, params.session))
            after = handle.tail if params.after == "tail" else params.after
            check_cursor(handle, after, params.writer)
            subscription = Subscription(params.session, handle, after, params.chunks, stack.pop_all(), self._attach)
        self._last_id += 1
        number = self._last_id
        self._open[number] = subscription

        def begin() -> None:
            subscription.task = self._group.create_task(self._follow(number, subscription))
            self._ask_again(params.session)

        return Followed(EventSubscribeResult(number, handle.tail, handle.durable, subscription.writer), begin)

    async def unsubscribe(self, params: EventUnsubscribeParams) -> AfterEvents:
        """event/unsubscribe. No event of the subscription follows the reply."""
        subscription = self._open.get(params.subscription)
        if subscription is None:
            raise WireError(bad_param("event/unsubscribe", "$.subscription", f"there is no subscription {params.subscription}"))
        await self._end(params.subscription)
        return AfterEvents(EventUnsubscribeResult(subscription.tail.last))

    async def settle(self, session: SessionId) -> None:
        """Let the subscriptions of a session that was opened or closed here go on through the handle that it has now: the
        writer's own, else one for reading. They end only where the session left no record."""
        for number, subscription in [row for row in self._open.items() if row[1].session == session]:
            stack = AsyncExitStack()
            try:
                handle, _ = await stack.enter_async_context(reading(self._sessions, session))
            except RefoldError as error:
                await self._fail(number, subscription, error)
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
        try:
            if subscription.task is not None and subscription.task is not asyncio.current_task():
                subscription.task.cancel()
                await asyncio.wait({subscription.task})
        finally:  # also when whoever asked for the end is cancelled
            await subscription.close()

    async def _follow(self, number: int, subscription: Subscription) -> None:
        phases = _Phases(self._sessions, subscription.session)
        try:
            while await self._outlet.events_room():
                tail = subscription.tail
                try:
                    batch = subscription.take() or (tail.repeat() if phases.due else None)
                    if batch is None:
                        await wait_for_news(tail, phases.seconds)
                        continue
                except SessionHandleClosedError:  # the session is being closed, or was opened here; `settle` follows
                    await subscription.moved_from(tail)
                    continue
                self._outlet.send_events(notice_of(number, subscription.writer, batch, phases.take()))
                await asyncio.sleep(0)  # a long replay lets others run between two batches
        except RefoldError as error:  # deleted, or damaged: this subscription ends, the connection lives on
            await self._fail(number, subscription, error)
        except Exception as error:  # a bug: told likewise, for a task that fails would take all sessions with it
            logger.exception("subscription %d", number)
            bug = InvariantError(f"A bug in refold ended this subscription: {error!r}")
            await self._fail(number, subscription, bug)

    async def _fail(self, number: int, subscription: Subscription, error: RefoldError) -> None:
        """End a subscription that cannot go on, and say why; once, whoever found out first."""
        if number not in self._open:
            return
        logger.info("subscription %d ends: %s", number, error.message)
        gone = isinstance(error, SessionNotFoundError)
        durable = -1 if gone else subscription.handle.durable
        notice = SessionTroubleNotice(subscription.session, error.error_kind, durable, error.message, number)
        self._outlet.notify_after_events("session/trouble", notice)
        await self._end(number)

    def _attach(self, subscription: Subscription) -> Callable[[], None]:
        def wake() -> None:
            subscription.tail.wake()

        def freed() -> None:
            first = next((one for one in self._open.values() if one.session == subscription.session), None)
            if first is subscription:
                self._writer_left(subscription)

        if not self._sessions.store.is_owned(subscription.session):
            subscription.left_at = subscription.handle.tail  # that nobody writes it, views say already
        return self._sessions.following.follow(subscription.session, wake, freed)

    def _writer_left(self, subscription: Subscription) -> None:
        """Say that nobody writes a followed session any more that has something open: it is idle, whatever its log says."""
        handle = subscription.handle
        try:
            if subscription.left_at != handle.refresh() and stands_open(handle):
                subscription.left_at = handle.tail
                notice = SessionsChangedNotice(subscription.session, "idle", handle.durable)
                self._outlet.notify("sessions/changed", notice)
        except RefoldError:  # the subscription itself meets it too, and says so
            return


class _Phases:
    """When a subscription says what a running turn waits for, so that silence is explained: every PHASE_SECONDS."""

    def __init__(self, sessions: Sessions, session: SessionId) -> None:
        self._sessions = sessions
        self._session = session
        self._told = asyncio.get_running_loop().time()

    @property
    def seconds(self) -> float | None:
        """How long the next saying may wait; None while no turn runs here, so that an idle daemon never wakes up."""
        return None if self._phase() is None else max(0.0, self._told + PHASE_SECONDS - asyncio.get_running_loop().time())

    @property
    def due(self) -> bool:
        """Whether it is time to say it, with or without events."""
        return self._phase() is not None and asyncio.get_running_loop().time() >= self._told + PHASE_SECONDS

    def take(self) -> str | None:
        """Give the phase for a notification when it is due."""
        phase = self._phase() if self.due else None
        if phase is not None or self._phase() is None:
            self._told = asyncio.get_running_loop().time()
        return phase

    def _phase(self) -> str | None:
        live = self._sessions.live(self._session)
        return None if live is None else phase_of(live.session_log.folds.work)


METHODS: Final = (
    request_row("event/subscribe", EventSubscribeParams, EventSubscribeResult, "Follow a session's log."),
    request_row("event/unsubscribe", EventUnsubscribeParams, EventUnsubscribeResult, "Stop following."),
)
"""The methods of this family."""
