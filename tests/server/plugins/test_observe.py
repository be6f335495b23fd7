"""log/observe and session/flush: who looks on sees everything once, in order, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from refold_protocol.errors import InvalidEventError
from refold_protocol.session.events import Draft, SessionTitle
from refold_protocol.session.messages import Source
from refold_server.plugins import FLUSH, OBSERVE, Flushed, Recorded
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, end_of, scripted_session, turn, types
from tests.support.misbehaviour import HardToPrintError
from tests.support.plugging import assert_rebuilt, failures, plugin

pytestmark = pytest.mark.anyio


async def test_each_accepted_event_is_seen_once_and_in_order() -> None:
    seen: list[Recorded] = []
    provider = ScriptedProvider(calls(("a", "look", "{}")), says("ok"), says("again"))
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugin((OBSERVE, seen.append))) as session:
        await turn(session)
        await turn(session)
        assert [one.event for one in seen] == list(session.session_log.handle.read())
        assert {one.session for one in seen} == {session.id}
        assert_rebuilt(session, provider)


async def test_an_append_from_inside_is_refused() -> None:
    refused: list[str] = []
    appends: list[Callable[[], object]] = []

    def record(recorded: Recorded) -> None:
        try:
            appends[0]()
        except InvalidEventError as error:
            refused.append(error.message)

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((OBSERVE, record))) as session:
        appends.append(lambda: session.session_log.append(Draft(SessionTitle("mine", Source("plugin", "p")))))
        assert end_of(await turn(session)) == "completed"
        assert len(refused) == session.session_log.handle.tail + 1
        assert_rebuilt(session, provider)


async def test_whoever_asks_is_told_what_became_durable() -> None:
    durable: list[int] = []

    def told(flushed: Flushed) -> None:
        assert flushed.session == "s1"
        durable.append(flushed.durable)

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((FLUSH, told))) as session:
        await turn(session)
        assert durable[-1] == session.session_log.handle.tail
        assert durable == sorted(set(durable))


async def test_one_that_always_fails_is_told_once_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def fail(recorded: Recorded) -> None:
        raise ValueError("I saw nothing")

    def exits(flushed: Flushed) -> None:
        raise SystemExit(3)

    def see(recorded: Recorded) -> None:
        seen.append(recorded.event.seq)

    provider = ScriptedProvider(says("ok"), says("again"))
    plugins = plugin((OBSERVE, fail), (OBSERVE, see), (FLUSH, exits))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        assert end_of(await turn(session)) == "completed"
        assert end_of(await turn(session)) == "completed"
        assert sorted(failures(session)) == [("p", "log/observe"), ("p", "session/flush")]
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        assert seen == list(range(session.session_log.handle.tail + 1))
        assert_rebuilt(session, provider)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), HardToPrintError()], ids=repr)
async def test_what_ends_tasks_and_processes_ends_none_out_of_an_observer(end: BaseException) -> None:
    def ends(seen: Recorded | Flushed) -> None:
        raise end

    provider = ScriptedProvider(says("ok"), says("again"))
    plugins = plugin((OBSERVE, ends), (FLUSH, ends))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        assert end_of(await turn(session)) == "completed"
        assert end_of(await turn(session)) == "completed"
        assert sorted(failures(session)) == [("p", "log/observe"), ("p", "session/flush")]
        assert_rebuilt(session, provider)


async def test_an_async_observer_is_a_failure_and_not_a_forgotten_coroutine() -> None:
    async def look(recorded: Recorded) -> None:
        raise AssertionError("nobody waits for this")

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((OBSERVE, look))) as session:
        assert end_of(await turn(session)) == "completed"
        assert failures(session) == [("p", "log/observe")]


async def test_one_that_fails_behind_the_last_step_is_told_before_the_turn_ends() -> None:
    def fail(recorded: Recorded) -> None:
        if recorded.event.type == "step/end":
            raise ValueError("that was the last")

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((OBSERVE, fail))) as session:
        await turn(session)
        assert types(session)[-2:] == ["plugin/failed", "turn/end"]
        assert_rebuilt(session, provider)
