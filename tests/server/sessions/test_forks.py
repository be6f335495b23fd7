"""Forks at every event of a session, and of random logs: closed when opened, nothing of the parent's waits, the turn runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import SeqRangeError, StorageFullError
from refold_protocol.ids import SessionId
from refold_protocol.session.closers import open_at_end
from refold_protocol.session.events import AbortCause, InstanceStart, TurnEnd
from refold_protocol.session.messages import Source, text_content
from refold_protocol.session.session_state import NOTHING_GRANTED, fold_all
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions, fork_session
from refold_server.sessions.session_views import pending_view, status_view, transcript_view
from refold_storage.interface import Store
from tests.support.exports import store_of
from tests.support.log_strategies import logs
from tests.support.logs import Log
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, turn
from tests.support.memory_store import MemoryStore
from tests.support.stores import SESSION, lines_of, run

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def scripted(store: Store, host: ScriptedHost) -> AsyncGenerator[Sessions]:
    """Sessions over a store, all with the same host."""
    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(work)

        sessions = Sessions(store, lambda cwd: host, spawn)
        yield sessions
        assert await sessions.close_all(AbortCause("disposed")) == []


async def busy_session(sessions: Sessions, pause: Pause, cwd: str) -> SessionId:
    """A session with a tool's turn that was steered, an injection, and a turn that runs with a prompt behind it."""
    session = await sessions.create(cwd)
    assert end_of(await turn(session, "one")) == "completed"
    await session.inject(text_content("It rains."), Source("client"))
    await session.start(text_content("two"), CLIENT, "key")
    await pause.reached.wait()
    await session.start_or_wait(text_content("three"), CLIENT, "queue")
    return session.id


async def opened_as_it_was_shown(sessions: Sessions, fork: SessionId, at: int) -> Session:
    """Look at a fork that nobody opened, then open it: both show the same, and nothing of the parent's counts any more."""
    cold = await sessions.store.open(fork, "read")
    before = list(transcript_view(cold, at, owned=False))
    assert (pending_view(cold, at), status_view(cold, at, owned=False).status) == ((), "idle")
    await cold.close()
    child = await sessions.open(fork)
    folds, handle = child.session_log.folds, child.session_log.handle
    assert (folds.pending, folds.granted, open_at_end(folds.work)) == ((), NOTHING_GRANTED, False)
    assert child.session_log.accepted_by_key("key") is None
    start = next(iter(handle.read(handle.tail))).data
    assert isinstance(start, InstanceStart)
    assert start.reason == "fork"
    assert list(transcript_view(handle, handle.tail, owned=True)) == before
    return child


async def opened_again(sessions: Sessions, child: Session) -> Session:
    """Close a session and open it again, which writes nothing."""
    tail = child.session_log.handle.tail
    await sessions.close(child.id)
    again = await sessions.open(child.id)
    assert again.session_log.handle.tail == tail
    return again


async def test_a_session_can_be_forked_at_each_of_its_events_and_each_fork_goes_on(tmp_path: Path) -> None:
    """Also while the parent's turn runs; the first request of each fork begins with the bytes of the parent's last one."""
    pause = Pause()
    asked = calls(("a", "look", "{}"), ("b", "ask", "{}"))
    running = [*says("Half")[:2], pause, *says("Half")[2:]]
    provider = ScriptedProvider(asked, says("Two ", "words."), running, *[says("Gone on.")] * 200)
    host = ScriptedHost(provider, {"look": echo, "ask": echo})
    host.asking, host.mode = {"ask"}, "allow"
    async with scripted(MemoryStore(clock=lambda: 1_000), host) as sessions:
        parent = await busy_session(sessions, pause, str(tmp_path))
        live = sessions.writable(parent)
        events, sent = list(live.session_log.handle.read()), list(provider.bodies)
        assert len(events) > 40
        for at in range(len(events)):
            made = await fork_session(sessions, parent, at)
            assert made.tail == at
            child = await opened_again(sessions, await opened_as_it_was_shown(sessions, made.session, at))
            inherited = events[: at + 1]
            ends = [
                event.data.reason.kind for event in child.session_log.handle.read(at + 1) if isinstance(event.data, TurnEnd)
            ]
            assert ends == (["forked"] if open_at_end(fold_all(inherited).work) else [])
            assert end_of(await turn(child, "on")) == "completed"
            assert lines_of(child.session_log.handle)[: at + 1] == [event.line for event in inherited]
            assert_proven(child)
            requests = sum(event.type == "request/sent" for event in inherited)
            kept = sent[requests - 1] if requests else b'"}'
            assert provider.bodies[-1].startswith(kept[: kept.rindex(b'"}')]), (
                at
            )  # a prompt without a reply goes on in its text
            await sessions.close(made.session)
        with pytest.raises(SeqRangeError):
            await fork_session(sessions, parent, live.session_log.handle.tail + 1)
        pause.go_on.set()
        assert end_of(await live.turns.wait(live.session_log.folds.work.last_turn)) == "completed"


async def test_a_fork_that_cannot_be_given_its_title_is_there_without_and_nobody_has_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted(store, ScriptedHost(ScriptedProvider(says("ok")))) as sessions:
        parent = await sessions.create(str(tmp_path))
        await turn(parent, "one")

        async def full(*_: object) -> int:
            raise StorageFullError("no space")

        with monkeypatch.context() as patch:
            patch.setattr(Session, "rename", full)
            with pytest.raises(StorageFullError):
                await fork_session(sessions, parent.id, None, "a title")
        (made,) = (record.id for _, record in store.recent(limit=9) if record.parent is not None)
        assert sessions.live(made) is None
        assert not store.is_owned(made)
        assert not store.get(made).summary.titled


@given(logs().filter(lambda log: bool(log.events)), st.data())
def test_a_random_log_that_is_forked_anywhere_is_closed_by_its_first_opening(log: Log, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(log.events) - 1))

    async def work() -> None:
        store = await store_of(log)
        async with scripted(store, ScriptedHost(ScriptedProvider())) as sessions:
            made = await fork_session(sessions, SESSION, at)
            child = await sessions.open(made.session)
            folds = child.session_log.folds
            assert (folds.pending, folds.granted, open_at_end(folds.work)) == ((), NOTHING_GRANTED, False)
            assert lines_of(child.session_log.handle)[: at + 1] == log.lines[: at + 1]
            again = await fork_session(sessions, made.session, title="Once more")
            assert sessions.store.get(again.session).summary.title == "Once more"

    run(work)
