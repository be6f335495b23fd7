"""Owns the choice of a handle for a read: the live session's where this process writes it, else one for this read alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from refold_protocol.errors import SessionHandleClosedError
from refold_protocol.ids import SessionId
from refold_server.sessions.registry import Sessions
from refold_storage.interface import Handle

Read = TypeVar("Read")


@asynccontextmanager
async def examining(sessions: Sessions, session: SessionId) -> AsyncGenerator[Handle, None]:
    """Give a handle for checking the session's log, also a log that cannot be opened otherwise. Raises SessionError."""
    live = sessions.live(session)
    if live is not None and not live.closed:
        yield live.ledger.handle
        return
    handle = await sessions.store.examine(session)
    try:
        yield handle
    finally:
        await handle.close()


@asynccontextmanager
async def reading(sessions: Sessions, session: SessionId) -> AsyncGenerator[tuple[Handle, bool], None]:
    """Give a handle on the session's log, and whether somebody writes it right now. Raises SessionError."""
    live = sessions.live(session)
    if live is not None and not live.closed:  # what is being closed is flushed, and can be read as anybody else's
        yield live.ledger.handle, True
        return
    handle = await sessions.store.open(session, "read")
    try:
        yield handle, sessions.store.is_owned(session)
    finally:
        await handle.close()


async def read_whole(read: Callable[[], Awaitable[Read]]) -> Read:
    """Give what a read gives that lets others run meanwhile. It is made once more where the session was closed here before
    it was over: that handle is gone then, and the log is not. Raises what `read` raises."""
    try:
        return await read()
    except SessionHandleClosedError:  # the next one opens a handle of its own
        return await read()
