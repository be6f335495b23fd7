"""One poll looks for news of all followed sessions: quickly while there is some, seldom else, never while nobody follows.

Invariant: One timer looks for all followed sessions of a process, none while nobody follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from refold_protocol.errors import LogUnwritableError
from refold_protocol.ids import SessionId
from refold_server.sessions.follow_poll import LIVELY_S, QUIET_AFTER_S, QUIET_S, Following
from refold_storage.interface import Store
from tests.support.virtual_time import VirtualTimeLoop, run_in_virtual_time

ONE, OTHER = SessionId("one"), SessionId("other")


class Far:
    """What a poll sees of a store that other processes write; `looks` are the times at which it looked."""

    def __init__(self) -> None:
        self.number = 7
        self.owned = {ONE, OTHER}
        self.followed: list[SessionId] = []
        self.looks: list[float] = []
        self.trouble: Exception | None = None

    def last_transaction(self) -> int:
        self.looks.append(asyncio.get_running_loop().time())
        if isinstance(self.trouble, LogUnwritableError):
            raise self.trouble
        return self.number

    def is_owned(self, session: SessionId) -> bool:
        if self.trouble is not None:
            raise self.trouble
        return session in self.owned

    def follow(self, session: SessionId) -> Callable[[], None]:
        self.followed.append(session)
        return lambda: self.followed.remove(session)


class Told:
    """Counts what a follower is told."""

    def __init__(self) -> None:
        self.woken = 0
        self.freed = 0

    def wake(self) -> None:
        self.woken += 1

    def free(self) -> None:
        self.freed += 1


def following(far: Far) -> Following:
    return Following(cast("Store", far))


def timers() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop.timers()


def test_no_timer_runs_while_nobody_follows() -> None:
    async def main() -> None:
        far, told = Far(), Told()
        poll = following(far)
        assert timers() == 0
        stops = [poll.follow(session, told.wake, told.free) for session in (ONE, OTHER, ONE)]
        assert (timers(), far.followed) == (1, [ONE, OTHER, ONE])
        for stop in stops:
            assert timers() == 1
            stop()
            stop()
        assert (timers(), far.followed) == (0, [])
        poll.follow(ONE, told.wake, told.free)
        assert timers() == 1

    run_in_virtual_time(main())


def test_one_look_serves_all_and_only_news_wakes_them() -> None:
    async def main() -> None:
        far, one, other = Far(), Told(), Told()
        poll = following(far)
        poll.follow(ONE, one.wake, one.free)
        poll.follow(OTHER, other.wake, other.free)
        woken = (one.woken, other.woken)
        await asyncio.sleep(LIVELY_S * 10.5)
        assert (len(far.looks), one.woken, other.woken) == (11, *woken)
        far.number += 1
        await asyncio.sleep(LIVELY_S)
        assert (len(far.looks), one.woken, other.woken) == (12, woken[0] + 1, woken[1] + 1)

    run_in_virtual_time(main())


def test_looks_are_seldom_in_silence_and_frequent_from_the_first_news_on() -> None:
    async def main() -> None:
        far, told = Far(), Told()
        following(far).follow(ONE, told.wake, told.free)
        await asyncio.sleep(QUIET_AFTER_S + 3 * QUIET_S)
        before = len(far.looks)
        await asyncio.sleep(20 * QUIET_S)
        assert len(far.looks) == before + 20
        far.number += 1
        await asyncio.sleep(QUIET_S)
        assert told.woken == 2
        before = len(far.looks)
        await asyncio.sleep(4 * LIVELY_S)
        assert len(far.looks) - before in (3, 4, 5)
        assert max(late - soon for soon, late in zip(far.looks, far.looks[1:], strict=False)) <= QUIET_S + 1e-9

    run_in_virtual_time(main())


def test_a_writer_that_left_is_told_once_to_its_own_followers() -> None:
    async def main() -> None:
        far, one, other = Far(), Told(), Told()
        poll = following(far)
        poll.follow(ONE, one.wake, one.free)
        poll.follow(OTHER, other.wake, other.free)
        await asyncio.sleep(3 * QUIET_S)
        assert (one.freed, other.freed) == (0, 0)
        far.owned.discard(ONE)
        await asyncio.sleep(QUIET_S + LIVELY_S)
        assert (one.freed, other.freed) == (1, 0)
        await asyncio.sleep(3 * QUIET_S)
        assert (one.freed, other.freed) == (1, 0)
        far.owned.add(ONE)
        await asyncio.sleep(2 * QUIET_S)
        far.owned.discard(ONE)
        await asyncio.sleep(2 * QUIET_S)
        assert one.freed == 2

    run_in_virtual_time(main())


def test_a_session_that_nobody_writes_is_not_left_by_anybody() -> None:
    async def main() -> None:
        far, told = Far(), Told()
        far.owned.clear()
        following(far).follow(ONE, told.wake, told.free)
        await asyncio.sleep(3 * QUIET_S)
        assert told.freed == 0

    run_in_virtual_time(main())


def test_a_writer_that_came_and_went_between_two_looks_may_have_left_something() -> None:
    async def main() -> None:
        far, told = Far(), Told()
        far.owned.clear()
        following(far).follow(ONE, told.wake, told.free)
        await asyncio.sleep(3 * QUIET_S)
        far.number += 1
        await asyncio.sleep(3 * QUIET_S)
        assert told.freed == 1

    run_in_virtual_time(main())


def test_a_store_that_is_gone_wakes_everybody_so_that_they_find_out() -> None:
    async def main() -> None:
        far, told = Far(), Told()
        following(far).follow(ONE, told.wake, told.free)
        await asyncio.sleep(1)
        woken = told.woken
        far.trouble = LogUnwritableError("gone")
        await asyncio.sleep(LIVELY_S)
        assert told.woken > woken
        await asyncio.sleep(3)
        assert told.freed == 0

    run_in_virtual_time(main())


def test_a_lease_that_cannot_be_looked_at_now_changes_nothing() -> None:
    async def main() -> None:
        far, told = Far(), Told()
        following(far).follow(ONE, told.wake, told.free)
        await asyncio.sleep(1)
        far.trouble = OSError(24, "too many open files")
        await asyncio.sleep(1)
        far.trouble = None
        far.number += 1
        woken = told.woken
        await asyncio.sleep(1)
        assert (told.freed, told.woken) == (0, woken + 1)

    run_in_virtual_time(main())
