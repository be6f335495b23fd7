"""Puts a session on an in-memory store together with a scripted host, for tests of the loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio

from refold_protocol.errors import SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_protocol.session.events import Event, TurnEnd
from refold_protocol.session.messages import Source, UsageChunk, text_content
from refold_protocol.verify import Verifier
from refold_server.loop.instance import Instance
from refold_server.plugins.plugin_registry import NO_PLUGINS, Plugins
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.session import Session
from refold_storage.interface import NewSession, Store
from tests.support.loop_host import ScriptedHost, says
from tests.support.memory_store import MemoryStore

CLIENT = Source("client", "test")
NAME = SessionId("s1")


@asynccontextmanager
async def scripted_session(
    host: ScriptedHost, *, store: Store | None = None, plugins: Plugins = NO_PLUGINS
) -> AsyncGenerator[Session, None]:
    """A session over `store` (default: a new in-memory one), opened if it exists there, else created."""
    kept = store or MemoryStore(clock=lambda: 1_000)
    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(work)

        try:
            handle = await kept.open(NAME, "write")
        except SessionNotFoundError:
            handle = await kept.create(NewSession(NAME, "/work", 1_000))
        session_log = SessionLog(handle)
        await session_log.repair()
        session = Session(
            session_log, Instance(session_log, host, SessionHooks(plugins, handle.id, handle.record.cwd), "Be brief."), spawn
        )
        yield session
        await session.close(cancel=True)
    assert not tasks.cancel_scope.cancel_called, "a task of the session was cancelled, and cut the test short with it"


async def turn(session: Session, text: str = "go") -> Event:
    """Run one prompt to its end and give the `turn/end`."""
    _, number, _ = await session.start(text_content(text), CLIENT)
    return await session.turns.wait(number)


def types(session: Session, first: int = 0) -> list[str]:
    """The types of the session's events, chunks of one run as one."""
    names: list[str] = []
    for event in session.session_log.handle.read(first):
        if not (event.type == "assistant/chunk" and names and names[-1] == event.type):
            names.append(event.type)
    return names


def end_of(event: object) -> str:
    """The kind of a turn's end."""
    data = getattr(event, "data", None)
    assert isinstance(data, TurnEnd)
    return data.reason.kind


def last(session: Session, kind: type) -> object:
    """The data of the last event of a kind."""
    return [event.data for event in session.session_log.handle.read() if isinstance(event.data, kind)][-1]


def assert_proven(session: Session) -> None:
    """Everything the log says was sent follows from it."""
    verifier = Verifier()
    for line in session.session_log.handle.lines(0):
        verifier.feed(line)
    report = verifier.report()
    assert report.holds, report.differences
    assert report.requests == report.equal


async def echo(arguments: str) -> str:
    """A tool that says what it was given."""
    return f"got {arguments}"


async def fill(session: Session, host: ScriptedHost) -> None:
    """Let the history grow so far that the next turn begins by having it summed up, which takes one reply more."""
    host.window = 4_000
    rest, story = host.scripted.scripts[:], "It is a long story. " * 85
    uncounted = [chunk for chunk in says(story) if not isinstance(chunk, UsageChunk)]
    host.scripted.scripts[:] = [uncounted, uncounted]
    await turn(session, "one")
    await turn(session, "two")
    host.scripted.scripts[:] = [says("Two stories."), *rest]
