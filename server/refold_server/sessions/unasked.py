"""Owns finding out what a log lets run without a question: what somebody allowed for its session, and the mode it was set to.

It holds for whoever goes on with the session, also where the log came from another machine, so it is told there.
"""

from __future__ import annotations

from typing import Final

import anyio.lowlevel
from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event, line_type
from refold_protocol.session.events import Event, SessionSettings
from refold_protocol.session.session_state import NOTHING_GRANTED, Granted, granted_step
from refold_storage.interface import Store

BATCH_BYTES: Final = 256 * 1024
"""Bytes of lines that are read before others get a turn."""


class Unasked(Struct, frozen=True, gc=False):
    """What runs without a question: `tools`, in the order in which they were allowed, and every tool where `mode`, the
    permission mode of the session's own, is `allow`. `mode` is None where it has none."""

    mode: str | None
    tools: tuple[str, ...]


async def unasked(store: Store, session: SessionId) -> Unasked:
    """Read what a stored session lets run. Raises SessionError."""
    mode: str | None = None
    granted = NOTHING_GRANTED
    handle = await store.open(session, "read")
    try:
        first = 0
        while first <= handle.tail:
            lines = handle.lines(first, max_bytes=BATCH_BYTES, chunks=False)
            for event in (decode_event(line) for line in lines if line_type(line) in _TELLING):
                mode, granted = _step(mode, granted, event)
            first += len(lines)
            await anyio.lowlevel.checkpoint()
    finally:
        await handle.close()
    return Unasked(mode, granted.tools)


def _step(mode: str | None, granted: Granted, event: Event) -> tuple[str | None, Granted]:
    match event.data:
        case SessionSettings(permissions=permissions):
            return None if permissions is None else permissions.mode, granted
        case _:
            return mode, granted_step(granted, event)


_TELLING: Final = frozenset(("session/settings", "approval/asked", "approval/decided", "instance/start"))
