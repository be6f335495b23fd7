"""Owns the choice of a handle for a read: the live session's where this process writes it, else one for this read alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from refold_protocol.ids import SessionId
from refold_server.sessions.registry import Sessions
from refold_storage.interface import Handle


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
