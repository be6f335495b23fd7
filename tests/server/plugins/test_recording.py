"""Events of plugins: how they get into a session's log, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from msgspec import Struct

from refold_protocol.errors import (
    InvalidEventError,
    SessionFormatUnsupportedError,
    SessionHandleClosedError,
    SessionNotFoundError,
)
from refold_protocol.ids import SessionId
from refold_protocol.session.events import ForeignData, readable
from refold_protocol.session.messages import text_content
from refold_server.plugins import FLUSH, OBSERVE, PROMPT_SUBMIT, Flushed, PluginRegistry, Prompt, Recorded
from refold_server.plugins.plugin_registry import Plugins, registered
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions
from tests.support.language import Tasks
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


class Noted(Struct, frozen=True, omit_defaults=True):
    """A note."""

    text: str
    weight: float | None = None
    words: tuple[str, ...] = ()


class Lost(Struct, frozen=True):
    """Of a type that is not registered."""


class Bench:
    """One plugin and the sessions of a process."""

    def __init__(self, root: Path, sessions: Sessions, registry: PluginRegistry) -> None:
        self.root = root
        self.sessions = sessions
        self.record = registry.record

    async def session(self) -> Session:
        return await self.sessions.create(str(self.root))


Register = Callable[[PluginRegistry], None]


def plugin(register: Register | None = None, *, ignorable: bool = False) -> tuple[Plugins, PluginRegistry]:
    kept: list[PluginRegistry] = []

    def both(registry: PluginRegistry) -> None:
        registry.event_type("notes/taken", Noted, ignorable=ignorable)
        kept.append(registry)
        if register is not None:
            register(registry)

    return registered("notes", both), kept[0]


@asynccontextmanager
async def benched(root: Path, register: Register | None = None) -> AsyncGenerator[Bench]:
    plugins, registry = plugin(register)
    host = ScriptedHost(ScriptedProvider(says("ok"), says("ok")))
    tasks = Tasks()
    with readable(["notes/taken"]):
        sessions = Sessions(MemoryStore(clock=lambda: 1_000), lambda folder: host, tasks.spawn, plugins=plugins)
        yield Bench(root, sessions, registry)
        for session in sessions:
            await session.close(cancel=True)
    await tasks.done()


async def test_an_event_is_recorded_behind_what_the_instance_must_record_first_and_keeps_its_type(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        session = await bench.session()
        event = bench.record(session.id, Noted("milk"))
        assert (event.type, event.seq, event.ignorable) == ("notes/taken", 1, False)
        assert types(session) == ["instance/start", "notes/taken"]
        (again,) = session.session_log.handle.read(1)
        assert isinstance(again.data, ForeignData)
        assert json.loads(again.data.json) == {"text": "milk"}
        assert await session.session_log.flush() == 1


async def test_an_event_can_be_recorded_while_a_turn_runs(tmp_path: Path) -> None:
    def register(registry: PluginRegistry) -> None:
        async def submit(prompt: Prompt) -> None:
            registry.record(prompt.place.session, Noted("a prompt"))

        registry.on(PROMPT_SUBMIT, submit)

    async with benched(tmp_path, register) as bench:
        session = await bench.session()
        _, turn, _ = await session.start(text_content("go"), CLIENT)
        await session.turns.wait(turn)
        names = types(session)
        assert names[names.index("turn/start") + 1] == "notes/taken"
        assert names[-1] == "turn/end"


async def test_a_type_is_told_by_the_class_of_its_data(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        session = await bench.session()
        with pytest.raises(InvalidEventError, match="'notes' registered no event type with data Lost"):
            bench.record(session.id, Lost())
        nothing: Any = {"text": "a"}
        with pytest.raises(InvalidEventError, match="with data dict"):
            bench.record(session.id, nothing)
        assert types(session) == []


@pytest.mark.parametrize(
    "data",
    [
        Noted(3),  # pyright: ignore[reportArgumentType]
        Noted("\ud800"),
        Noted("a", float("nan")),
        Noted("a", float("inf")),
        Noted("a", words=["b"]),  # pyright: ignore[reportArgumentType]
        Noted(b"a"),  # pyright: ignore[reportArgumentType]
    ],
)
async def test_data_that_its_json_would_not_give_back_is_refused_before_the_log_changes(tmp_path: Path, data: Noted) -> None:
    async with benched(tmp_path) as bench:
        session = await bench.session()
        with pytest.raises(InvalidEventError, match="notes/taken"):
            bench.record(session.id, data)
        assert types(session) == []


async def test_a_session_that_is_not_open_here_takes_nothing(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        with pytest.raises(SessionNotFoundError):
            bench.record(SessionId("none"), Noted("a"))
        session = await bench.session()
        bench.record(session.id, Noted("a"))
        await bench.sessions.close(session.id)
        with pytest.raises(SessionNotFoundError):
            bench.record(session.id, Noted("a"))
        closing = await bench.session()
        bench.record(closing.id, Noted("a"))
        await closing.close()
        with pytest.raises(SessionHandleClosedError):
            bench.record(closing.id, Noted("a"))


def test_nothing_is_recorded_before_any_session_is_there() -> None:
    _, registry = plugin()
    with pytest.raises(InvalidEventError, match="no session is open yet"):
        registry.record(SessionId("s"), Noted("a"))


async def test_another_thread_records_nothing(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        session = await bench.session()
        with pytest.raises(InvalidEventError, match="another thread"):
            await anyio.to_thread.run_sync(bench.record, session.id, Noted("a"))


async def test_nothing_is_recorded_from_inside_an_observer_in_whatever_session(tmp_path: Path) -> None:
    refused: list[str] = []
    sessions: list[SessionId] = []

    def register(registry: PluginRegistry) -> None:
        def look(seen: Recorded | Flushed) -> None:
            for session in sessions:
                try:
                    registry.record(session, Noted("a"))
                except InvalidEventError as error:
                    refused.append(error.message)

        registry.on(OBSERVE, look)
        registry.on(FLUSH, look)

    async with benched(tmp_path, register) as bench:
        one, other = await bench.session(), await bench.session()
        sessions.extend([one.id, other.id])
        await one.rename("x", CLIENT)
        assert types(one) == ["instance/start", "session/title"]
        assert types(other) == []
        assert len(refused) == 2 * 3  # two events and one flush, for each session
        assert set(refused) == {"notes/taken: an append from inside an observer"}
        bench.record(one.id, Noted("b"))  # and outside again


async def test_a_session_with_such_an_event_is_opened_where_the_plugin_is_and_refused_elsewhere(tmp_path: Path) -> None:
    store = MemoryStore(clock=lambda: 1_000)
    plugins, registry = plugin()
    host = ScriptedHost(ScriptedProvider())
    with readable(["notes/taken"]):
        sessions = Sessions(store, lambda folder: host, lambda work: None, plugins=plugins)
        session = await sessions.create(str(tmp_path))
        registry.record(session.id, Noted("a"))
        await sessions.close(session.id)
        await sessions.open(session.id)
        await sessions.close(session.id)
    bare = Sessions(store, lambda folder: host, lambda work: None)
    with pytest.raises(SessionFormatUnsupportedError, match="The plugin 'notes' is missing"):
        await bare.open(session.id)


async def test_a_session_whose_such_events_may_be_skipped_is_opened_everywhere(tmp_path: Path) -> None:
    store = MemoryStore(clock=lambda: 1_000)
    plugins, registry = plugin(ignorable=True)
    host = ScriptedHost(ScriptedProvider())
    sessions = Sessions(store, lambda folder: host, lambda work: None, plugins=plugins)
    session = await sessions.create(str(tmp_path))
    assert registry.record(session.id, Noted("a")).ignorable
    await sessions.close(session.id)
    bare = Sessions(store, lambda folder: host, lambda work: None)
    again = await bare.open(session.id)
    assert types(again) == ["instance/start", "notes/taken"]
    await bare.close(session.id)
