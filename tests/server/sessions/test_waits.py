"""Whoever waits for what can no longer come is told so, and what an earlier instance left behind is not begun unasked."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from refold_protocol.errors import InputPendingError, InputUnknownError, RefoldError, SessionReadOnlyError
from refold_protocol.ids import InputId
from refold_protocol.session.events import AbortCause, Draft, Event, InputAccepted, Trigger, TurnStart
from refold_protocol.session.messages import text_content, text_of
from refold_protocol.session.transcript import transcript
from refold_server.clock import new_input_id
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


async def queued_behind(session: Session, pause: Pause) -> InputId:
    """An input that waits behind a turn that has reached `pause`."""
    await session.start(text_content("first"), CLIENT)
    await pause.reached.wait()
    return (await session.start_or_wait(text_content("second"), CLIENT, "queue")).input


async def waiting_for(session: Session, given: InputId) -> asyncio.Future[Event]:
    """Somebody who waits for the turn of an input."""
    waiter = asyncio.ensure_future(session.turns.wait_input(given))
    await anyio.lowlevel.checkpoint()
    assert not waiter.done()
    return waiter


async def test_whoever_waits_for_a_queued_input_is_told_when_its_session_is_closed() -> None:
    pause = Pause()
    async with scripted_session(ScriptedHost(ScriptedProvider([pause, *says("one")]))) as session:
        waiter = await waiting_for(session, await queued_behind(session, pause))
        await session.close(cancel=True)
        with pytest.raises(SessionReadOnlyError, match="closed here before input"):
            await waiter


async def test_whoever_waits_for_an_input_is_told_at_once_when_it_is_withdrawn() -> None:
    pause = Pause()
    async with scripted_session(ScriptedHost(ScriptedProvider([pause, *says("one")]))) as session:
        given = await queued_behind(session, pause)
        waiter = await waiting_for(session, given)
        await session.withdraw(given)
        with pytest.raises(InputUnknownError):
            await waiter
        assert session.turns.running == 1, "the turn in front of it goes on"


async def test_whoever_waits_for_steering_is_told_when_it_has_joined_a_turn() -> None:
    pauses = Pause(), Pause()
    provider = ScriptedProvider([pauses[0], *says("one")], [pauses[1], *says("two")])
    async with scripted_session(ScriptedHost(provider)) as session:
        await session.start(text_content("first"), CLIENT)
        await pauses[0].reached.wait()
        steered = await session.start_or_wait(text_content("left"), CLIENT, "steer")
        waiter = await waiting_for(session, steered.input)
        pauses[0].go_on.set()
        await pauses[1].reached.wait()
        with pytest.raises(InputUnknownError):
            await waiter
        pauses[1].go_on.set()


async def left_behind(store: MemoryStore) -> InputId:
    """An input that waits since an instance that is gone."""
    pause = Pause()
    async with scripted_session(ScriptedHost(ScriptedProvider(says("zero"), [pause])), store=store) as session:
        await turn(session, "zeroth")
        given = await queued_behind(session, pause)
        await session.close(cancel=True)
    return given


async def test_a_refused_compaction_begins_nothing_that_an_earlier_instance_left_behind() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    given = await left_behind(store)
    host = ScriptedHost(ScriptedProvider(says("two")))
    async with scripted_session(host, store=store) as session:
        with pytest.raises(RefoldError):
            await compact_session(session)
        assert (session.turns.running, host.scripted.requests) == (None, [])
        await session.rename("A title", CLIENT)
        assert types(session)[-2:] == ["instance/start", "session/title"]
        _, number, _ = await session.start_pending(given)
        await session.turns.wait(number)


async def test_interrupting_takes_back_nothing_that_an_earlier_instance_left_behind() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    given = await left_behind(store)
    async with scripted_session(ScriptedHost(ScriptedProvider()), store=store) as session:
        await session.interrupt(2, AbortCause("user"), withdraw_queued=True)
        assert [one.input for one in session.session_log.folds.pending] == [given]


async def test_whoever_waits_for_what_an_earlier_instance_left_learns_how_to_run_it() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    given = await left_behind(store)
    async with scripted_session(ScriptedHost(ScriptedProvider(says("two"))), store=store) as session:
        with anyio.fail_after(5), pytest.raises(InputPendingError, match="turn/start with this input runs it"):
            await session.turns.wait_input(given)
        _, number, _ = await session.start_pending(given)
        assert (await session.turns.wait_input(given)).data == (await session.turns.wait(number)).data


async def test_a_prompt_whose_turn_was_cut_off_before_it_joined_waits() -> None:
    """The process died after `turn/start` was durable and before the prompt joined the history."""
    store = MemoryStore(clock=lambda: 1_000)
    words = text_content("do it")
    async with scripted_session(ScriptedHost(ScriptedProvider()), store=store) as session:
        given = new_input_id()
        session.append(Draft(InputAccepted(given, "prompt", words, CLIENT, "k")))
        session.append(Draft(TurnStart(1, Trigger("message", CLIENT, given))))
        await session.session_log.flush()
    async with scripted_session(ScriptedHost(ScriptedProvider(says("done"))), store=store) as session:
        with anyio.fail_after(5), pytest.raises(InputPendingError):
            await session.turns.wait_input(given)
        again = await session.accepted_before("k", words)
        assert again is not None
        assert (again.input, again.turn) == (given, None), "it is queued, not the input of the turn that was cut off"
        kept = transcript(session.session_log.handle.read())
        assert [(one.kind, text_of(one.content)) for one in kept] == [("pending", "do it"), ("end", "")]
        _, number, _ = await session.start_pending(given)
        await session.turns.wait(number)
        again = await session.accepted_before("k", words)
        assert again is not None
        assert again.turn is None
