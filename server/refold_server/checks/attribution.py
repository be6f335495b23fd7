"""The reading of a stored log for attribution: what its requests share, and which events broke what they share.

Reads through a handle in slices, so that an event loop stays alive beside it. The fold is pure and lives in
`refold_protocol`; nothing here looks into a body.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio.lowlevel

from refold_protocol.session.explain import RequestHistory
from refold_storage.interface import Handle
from refold_storage.slices import read_events


async def request_history(handle: Handle, progress: Callable[[int, int], None] | None = None) -> RequestHistory:
    """Gather the requests of a log. `progress` gets done and all, in events. Raises SessionFormatUnsupportedError at a
    foreign event that may not be skipped, and what a damaged log raises."""
    history = RequestHistory()
    tail = handle.tail
    for events in read_events(handle, tail):
        for event in events:
            history.feed(event)
        if progress is not None and events:
            progress(events[-1].seq + 1, tail + 1)
        await anyio.lowlevel.checkpoint()
    return history
