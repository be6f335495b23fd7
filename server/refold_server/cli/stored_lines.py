"""Lines of a stored log for a program, from a place on, and, where it follows, those that come, until a signal ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from refold_protocol.errors import SeqRangeError
from refold_server.sessions.session_registry import Sessions
from refold_storage.interface import Handle
from refold_storage.reader import read_slices


async def stored_lines(sessions: Sessions, handle: Handle, after: int, *, follow: bool) -> AsyncGenerator[list[bytes], None]:
    """Give the exact lines of the events behind `after`, in slices; with `follow`, those that other processes commit, too.
    Raises SeqRangeError for a place behind the end, and what reading raises."""
    if after > handle.tail:
        raise SeqRangeError(f"session {handle.id} ends at event {handle.tail}, before {after}", tail=handle.tail)
    news = asyncio.Event()
    stop = sessions.following.follow(handle.id, news.set, news.set) if follow else None
    first = after + 1
    try:
        while True:
            for lines in read_slices(handle, first, handle.tail):
                first += len(lines)
                yield lines
            if stop is None:
                return
            await news.wait()
            news.clear()
            handle.refresh()
    finally:
        if stop is not None:
            stop()
