"""A prompt that is sent twice under one key is accepted once: what a client does whose reply was lost."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from refold_protocol.errors import InputUnknownError, StorageFullError
from refold_protocol.session.events import Draft, InstanceStart
from refold_protocol.session.messages import text_content
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, NAME, scripted_session, types
from tests.support.memory_store import MemoryStore
from tests.support.stores import until

pytestmark = pytest.mark.anyio

WORDS = text_content("do it once")


async def test_a_key_that_was_seen_gives_the_first_answer_and_starts_nothing() -> None:
    provider = ScriptedProvider(says("done"))
    async with scripted_session(ScriptedHost(provider)) as session:
        assert await session.accepted_before("k", WORDS) is None
        first, number, seq = await session.start(WORDS, CLIENT, "k")
        again = await session.accepted_before("k", WORDS)
        assert again is not None
        assert (again.input, again.turn, again.seq) == (first.input, number, seq)
        await session.turns.wait(number)
        assert await session.accepted_before("k", WORDS) == again
        assert types(session).count("turn/start") == 1


async def test_a_key_holds_over_a_crash_and_in_the_next_instance() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(ScriptedHost(ScriptedProvider(says("done"))), store=store) as session:
        first, number, seq = await session.start(WORDS, CLIENT, "k")
        await session.turns.wait(number)
    async with scripted_session(ScriptedHost(ScriptedProvider()), store=store) as session:
        again = await session.accepted_before("k", WORDS)
        assert again is not None
        assert (again.input, again.turn, again.seq) == (first.input, 1, seq)


async def test_a_key_that_was_queued_gives_its_first_answer_also_when_the_prompt_has_run() -> None:
    pause, store = Pause(), MemoryStore(clock=lambda: 1_000)
    provider = ScriptedProvider([pause, *says("one")], says("two"))
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        await session.start(text_content("first"), CLIENT)
        await pause.reached.wait()
        queued = await session.start_or_wait(WORDS, CLIENT, "queue", "k")
        assert await session.accepted_before("k", WORDS) == queued
        assert queued.turn is None
        pause.go_on.set()
        await session.turns.wait_input(queued.input)
        assert await session.accepted_before("k", WORDS) == queued
    async with scripted_session(ScriptedHost(ScriptedProvider()), store=store) as session:
        assert await session.accepted_before("k", WORDS) == queued


async def test_a_key_that_waited_for_a_compaction_gives_its_first_answer_too() -> None:
    pause = Pause()
    host = ScriptedHost(ScriptedProvider(says("It is a long story. " * 60), [pause, *says("A story.")], says("two")))
    host.window = 100_000
    async with scripted_session(host) as session:
        await _turn(session, "first")
        compaction = asyncio.ensure_future(compact_session(session))
        await pause.reached.wait()
        queued = await session.start_or_wait(WORDS, CLIENT, "queue", "k")
        assert queued.turn is None
        pause.go_on.set()
        await compaction
        await session.turns.wait_input(queued.input)
        assert await session.accepted_before("k", WORDS) == queued


async def test_a_key_that_steered_gives_the_turn_that_it_steered_whenever_it_is_sent_again() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    pause = Pause()
    provider = ScriptedProvider(says("one"), [pause, *says("two")], says("three"), says("four"))
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        await _turn(session, "first")
        await session.start(text_content("second"), CLIENT)
        await pause.reached.wait()
        steered = await session.start_or_wait(WORDS, CLIENT, "steer", "k")
        assert steered.turn == 2
        assert await session.accepted_before("k", WORDS) == steered
        pause.go_on.set()
        await session.turns.wait(2)
        assert await session.accepted_before("k", WORDS) == steered
        await _turn(session, "third")
        assert await session.accepted_before("k", WORDS) == steered
    async with scripted_session(ScriptedHost(ScriptedProvider()), store=store) as session:
        assert await session.accepted_before("k", WORDS) == steered


async def test_a_key_of_another_prompt_is_refused() -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider(says("done")))) as session:
        await session.start(WORDS, CLIENT, "k")
        with pytest.raises(InputUnknownError, match="another prompt"):
            await session.accepted_before("k", text_content("something else"))


async def test_a_prompt_that_could_not_be_made_durable_leaves_its_key_free(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider(says("done")))) as session:

        async def full(*_: object, **__: object) -> int:
            raise StorageFullError("no space")

        with monkeypatch.context() as patch:
            patch.setattr(SessionLog, "flush", full)
            with pytest.raises(StorageFullError):
                await session.start(WORDS, CLIENT, "k")
        assert await session.accepted_before("k", WORDS) is None
        _, number, _ = await session.start(WORDS, CLIENT, "k")
        await session.turns.wait(number)


async def test_a_key_whose_first_prompt_is_given_up_while_the_second_one_waits_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the second one would be told of an input that was withdrawn, and nothing would ever run."""
    async with scripted_session(ScriptedHost(ScriptedProvider(says("done")))) as session:
        disk, waiting = anyio.Event(), list[str]()
        flush = SessionLog.flush

        async def late(session_log: SessionLog) -> int:
            waiting.append("flush")
            await disk.wait()
            return await flush(session_log)

        monkeypatch.setattr(SessionLog, "flush", late)
        first = asyncio.ensure_future(session.start(WORDS, CLIENT, "k"))
        second = asyncio.ensure_future(session.accepted_before("k", WORDS))
        await until(lambda: len(waiting) == 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        disk.set()
        assert await second is None
        _, number, _ = await session.start(WORDS, CLIENT, "k")
        await session.turns.wait(number)


async def test_a_fork_has_not_seen_the_keys_of_its_parent() -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider(says("done")))) as session:
        await _whole(session)
        session.session_log.append(Draft(InstanceStart(2, "fork")))
        assert await session.accepted_before("k", WORDS) is None
        assert session.id == NAME


async def _turn(session: Session, text: str) -> None:
    _, number, _ = await session.start(text_content(text), CLIENT)
    await session.turns.wait(number)


async def _whole(session: Session) -> None:
    _, number, _ = await session.start(WORDS, CLIENT, "k")
    await session.turns.wait(number)
