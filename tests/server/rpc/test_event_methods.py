"""Subscriptions of one connection, where something goes wrong that no client does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from refold_protocol.ids import SessionId
from refold_server.rpc.dispatch import AfterEvents
from refold_server.rpc.event_methods import (
    EventMethods,
    EventSubscribeParams,
    EventSubscribeResult,
    EventUnsubscribeParams,
    EventUnsubscribeResult,
    Subscription,
)
from refold_server.rpc.notices import SessionEventsNotice, SessionTroubleNotice
from refold_server.sessions.session_registry import Sessions
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import turn
from tests.support.memory_store import MemoryStore
from tests.support.stores import until

pytestmark = pytest.mark.anyio


class Heard:
    """An outlet that has room; keeps what it was given."""

    def __init__(self) -> None:
        self.events: list[SessionEventsNotice] = []
        self.troubles: list[SessionTroubleNotice] = []

    async def events_room(self) -> bool:
        await asyncio.sleep(0)
        return True

    def send_events(self, notice: SessionEventsNotice) -> None:
        self.events.append(notice)

    def notify(self, method: str, params: object = None) -> None:
        raise AssertionError(method)

    def notify_after_events(self, method: str, params: object = None) -> None:
        assert isinstance(params, SessionTroubleNotice)
        self.troubles.append(params)


async def subscribed(events: EventMethods, session: str) -> int:
    followed = await events.subscribe(EventSubscribeParams(SessionId(session), -1))
    followed.then()
    assert isinstance(followed.result, EventSubscribeResult)
    return followed.result.subscription


async def test_a_bug_in_one_subscription_ends_it_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outlet = Heard()
    async with asyncio.TaskGroup() as group:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            group.create_task(work())

        sessions = Sessions(MemoryStore(clock=lambda: 1_000), lambda cwd: ScriptedHost(ScriptedProvider(says("ok"))), spawn)
        events = EventMethods(sessions, outlet, group, lambda _: None)
        session = await sessions.create(str(tmp_path))
        await turn(session)
        take, bent = Subscription.take, list[Subscription]()

        def bend(subscription: Subscription) -> object:
            bent[:] = bent or [subscription]
            if subscription is bent[0]:
                raise ZeroDivisionError("says the test")
            return take(subscription)

        monkeypatch.setattr(Subscription, "take", bend)
        first, second = await subscribed(events, session.id), await subscribed(events, session.id)
        await until(lambda: bool(outlet.troubles and outlet.events))
        (trouble,) = outlet.troubles
        assert (trouble.subscription, trouble.kind) == (first, "invariant")
        assert {notice.subscription for notice in outlet.events} == {second}
        ended = await events.unsubscribe(EventUnsubscribeParams(second))
        assert ended == AfterEvents(EventUnsubscribeResult(session.session_log.handle.tail)), "nothing of it follows the reply"
        await session.close()
