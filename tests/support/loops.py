"""Puts a session on an in-memory store together with a scripted host, for tests of the loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from refold_protocol.ids import SessionId
from refold_protocol.session.events import Event
from refold_protocol.session.messages import Source, text_content
from refold_server.loop.instance import Instance
from refold_server.loop.seams import Seams
from refold_server.loop.ledger import Ledger
from refold_server.sessions.session import Session
from refold_storage.interface import NewSession, Store
from refold_storage.memory import MemoryStore
from tests.support.loop_host import ScriptedHost

CLIENT = Source("client", "test")
NAME = SessionId("s1")


@asynccontextmanager
async def scripted_session(
    host: ScriptedHost, *, store: Store | None = None, seams: Seams | None = None
) -> AsyncGenerator[Session, None]:
    """A session over `store` (default: a new in-memory one), opened if it exists there, else created."""
    kept = store or MemoryStore(clock=lambda: 1_000)
    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Awaitable[Any]]) -> None:
            tasks.start_soon(work)

        try:
            handle = await kept.open(NAME, "write")
        except Exception:
            handle = await kept.create(NewSession(NAME, "/work", 1_000))
        ledger = Ledger(handle)
        await ledger.repair()
        session = Session(ledger, Instance(ledger, host, seams or Seams(), "Be brief."), spawn)
        yield session
        await session.close(cancel=True)


async def turn(session: Session, text: str = "go") -> Event:
    """Run one prompt to its end and give the `turn/end`."""
    _, number, _ = await session.start(text_content(text), CLIENT)
    return await session.wait_turn(number)


def types(session: Session, first: int = 0) -> list[str]:
    """The types of the session's events, chunks of one run as one."""
    names: list[str] = []
    for event in session.ledger.handle.read(first):
        if not (event.type == "assistant/chunk" and names and names[-1] == event.type):
            names.append(event.type)
    return names
