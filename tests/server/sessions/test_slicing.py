"""Reading what is long lets others run meanwhile, and gives what reading it at once gives.

Invariant: Reading a long log lets others run.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest

from refold_protocol.ids import InputId, SessionId
from refold_protocol.session.events import Draft, SessionTitle
from refold_protocol.session.messages import Source
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_reports import compose_session
from refold_server.sessions.session_views import SLICE_ITEMS, folded, listed
from refold_storage.interface import NewSession
from refold_storage.reader import SLICE_BYTES
from tests.support.language import Tasks
from tests.support.logs import Log, spoken
from tests.support.loop_host import ScriptedHost, ScriptedProvider
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

T = TypeVar("T")


async def beside(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """Give what `work` gives, and how often another task had its turn meanwhile."""
    turns = 0
    given: list[T] = []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        given.append(await work())
        tasks.cancel_scope.cancel()
    return given[0], turns


async def test_a_long_fold_gives_the_loop_a_turn_after_each_slice() -> None:
    total, turns = await beside(lambda: folded(range(10 * SLICE_ITEMS), operator.add, 0))
    assert total == sum(range(10 * SLICE_ITEMS))
    assert turns >= 10


async def test_a_long_list_gives_the_loop_a_turn_after_each_slice() -> None:
    given, turns = await beside(lambda: listed(range(10 * SLICE_ITEMS)))
    assert given == list(range(10 * SLICE_ITEMS))
    assert turns >= 10


async def test_the_prefix_of_a_long_log_is_compared_in_slices() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    handle = await store.create(NewSession(SessionId("s"), "/", 1_000))
    handle.append([Draft(SessionTitle(str(number), Source("client", "test"))) for number in range(10 * SLICE_ITEMS)])
    await handle.close()
    host, tasks = ScriptedHost(ScriptedProvider()), Tasks()
    told, turns = await beside(lambda: compose_session(Sessions(store, lambda _: host, tasks.spawn), SessionId("s")))
    assert (told.composed, told.recorded) == (False, None)
    assert turns >= 10
    await tasks.done()


async def test_a_long_log_is_opened_in_slices_and_known_as_if_it_were_read_at_once() -> None:
    log = Log()
    log.instance()
    for number in range(3):
        log.turn("Why?", log.accept(f"input-{number}"))
        log.tool_step(f"call-{number}")
        log.step()
        log.stream(*spoken("x" * SLICE_BYTES), *spoken("y"))
        log.reply("Because.")
        log.end_step()
        log.end_turn()
    log.turn("And?")
    log.step()
    log.stream(*spoken("half"))
    handle = await MemoryStore(clock=lambda: 1_000).create(NewSession(SessionId("s"), "/", 1_000))
    handle.append([Draft(event.data, event.surface_op, event.sources, event.ignorable) for event in log.events])
    session_log, turns = await beside(lambda: SessionLog.opened(handle))
    at_once = SessionLog(handle)
    assert turns >= 3
    assert session_log.folds == at_once.folds
    assert session_log.folds.work == log.work
    assert [session_log.turn_of_input(InputId(f"input-{number}")) for number in range(3)] == [1, 2, 3]
    assert [session_log.turn_end(turn) for turn in (1, 2, 3, 4)] == [at_once.turn_end(turn) for turn in (1, 2, 3, 4)]
    assert [session_log.is_used(f"call-{number}") for number in range(4)] == [True, True, True, False]
