"""The rules of delivery on the client's side: in order, once, nothing missing, and never events of a writer that is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_client import ConnectionEndedError, Cursor, GapError, Subscription, WriterChangedError

pytestmark = pytest.mark.anyio

REPLY: Any = {"subscription": 1, "tail": 9, "durable": 4, "writer": "w.4"}


class Stops:
    """Remembers which subscriptions were stopped."""

    def __init__(self) -> None:
        self.stopped: list[int] = []

    async def __call__(self, subscription: int) -> None:
        self.stopped.append(subscription)


def subscription(after: int = -1) -> Subscription:
    return Subscription("s", after, REPLY, Stops())


def notice(prev: int, *seqs: int, durable: int = 4, **more: Any) -> Any:
    events = [{"type": "toy", "seq": seq} for seq in seqs]
    return {"subscription": 1, "events": events, "prev": prev, "tail": 9, "durable": durable, "writer": "w.4", **more}


async def taken(following: Subscription, count: int) -> list[int]:
    return [(await anext(following))["seq"] for _ in range(count)]


async def test_events_come_in_order_and_what_comes_twice_is_dropped() -> None:
    following = subscription()
    for one in (notice(-1, 0, 1), notice(-1, 0, 1, 2), notice(0, 1, 2, 3), notice(3)):
        following.take(one)
    assert await taken(following, 4) == [0, 1, 2, 3]
    following.fail(ConnectionEndedError("gone"))
    with pytest.raises(ConnectionEndedError):
        await anext(following)


@given(pieces=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
async def test_whatever_is_repeated_no_event_is_missing_or_comes_twice(pieces: list[tuple[int, int]]) -> None:
    following, known = subscription(), -1
    for back, length in pieces:
        prev = max(-1, known - back)
        following.take(notice(prev, *range(prev + 1, prev + 1 + length)))
        known = max(known, prev + length)
    assert await taken(following, known + 1) == list(range(known + 1))


@pytest.mark.parametrize("wrong", [notice(5, 6), notice(5), notice(4, 6), notice(4, 5, 7)])
async def test_a_missing_event_is_an_error_behind_those_that_came(wrong: Any) -> None:
    following = subscription(after=3)
    following.take(notice(3, 4))
    following.take(wrong)
    assert await taken(following, 1) == [4]
    with pytest.raises(GapError):
        await taken(following, 2)


async def test_the_cursor_lies_behind_what_was_given_and_is_durable() -> None:
    following = subscription()
    assert following.cursor == Cursor("s", -1, "w.4")
    following.take(notice(-1, *range(8), durable=5))
    await taken(following, 3)
    assert following.cursor == Cursor("s", 2, "w.4")
    await taken(following, 5)
    assert following.cursor == Cursor("s", 5, "w.4")
    following.take(notice(7, durable=7))
    assert following.cursor == Cursor("s", 7, "w.4")


async def test_another_writer_ends_the_subscription_where_nothing_can_change() -> None:
    following = subscription()
    following.take(notice(-1, *range(8), durable=5))
    following.take(notice(7, 8, writer="other.5"))
    await taken(following, 8)
    with pytest.raises(WriterChangedError) as raised:
        await anext(following)
    assert raised.value.cursor == Cursor("s", 5, "w.4")


async def test_what_the_daemon_tells_of_the_log_is_remembered() -> None:
    following = subscription()
    following.take(notice(-1, 0, durable=0, caughtUp=True, phase="waiting for provider"))
    assert (following.durable, following.caught_up, following.phase) == (0, True, "waiting for provider")
    following.take(notice(0, 1))
    assert (following.durable, following.caught_up, following.phase) == (4, False, None)


async def test_waiting_for_durability_ends_when_it_is_told_or_the_subscription_fails() -> None:
    following = subscription()
    waiting = asyncio.create_task(following.wait_durable(7))
    await asyncio.sleep(0)
    assert not waiting.done()
    following.take(notice(-1, durable=7))
    await waiting
    following.fail(ConnectionEndedError("gone"))
    await following.wait_durable(7)
    with pytest.raises(ConnectionEndedError):
        await following.wait_durable(8)


async def test_an_iteration_that_waits_gets_the_next_event() -> None:
    following = subscription()
    waiting = asyncio.create_task(taken(following, 1))
    await asyncio.sleep(0)
    following.take(notice(-1, 0))
    assert await waiting == [0]


async def test_a_stopped_subscription_ends_its_iteration_and_ignores_what_still_comes() -> None:
    stops = Stops()
    following = Subscription("s", -1, REPLY, stops)
    following.take(notice(-1, 0))
    await following.stop()
    await following.stop()
    following.take(notice(0, 1))
    assert [event async for event in following] == []
    assert stops.stopped == [1]
