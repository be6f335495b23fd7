"""Owns the subscriptions of one connection: `event/subscribe`, `event/unsubscribe`, and the sending of `session/events`.

A subscription is a cursor over a log and a task that moves it when there is news and the client has room. It never holds
events: a client that does not read has an old cursor, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Protocol

from refold_protocol.errors import InvariantError, RefoldError, SessionHandleClosedError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_protocol.rpc.notices import SessionEventsNotice, SessionsChangedNotice, SessionTroubleNotice
from refold_protocol.rpc.params import EventSubscribeParams, EventUnsubscribeParams
from refold_protocol.rpc.results import EventSubscribeResult, EventUnsubscribeResult
from refold_protocol.rpc.wire_errors import WireError, bad_param
from refold_protocol.session.session_state import phase_of
from refold_server.rpc.dispatch import AfterEvents, Followed
from refold_server.rpc.subscription import Subscription, check_cursor, notice_of, wait_for_news
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_views import reading, stands_open

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

    def __init__(self, sessions: Sessions, outlet: Outlet, group: asyncio.TaskGroup) -> None:
        self._sessions = sessions
        self._outlet = outlet
        self._group = group
        self._open: dict[int, Subscription] = {}
        self._last_id = 0

    async def subscribe(self, params: EventSubscribeParams) -> Followed:
        """event/subscribe. The first events follow the reply."""
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
