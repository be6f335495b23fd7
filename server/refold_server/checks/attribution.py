"""Owns the reading of a stored log for attribution: what its requests share, and which events broke what they share.

Reads through a handle in slices, so that an event loop stays alive beside it. The fold is pure and lives in
`refold_protocol`; nothing here looks into a body.
"""

from __future__ import annotations

from collections.abc import Callable

from refold_protocol.session.codec import decode_event, line_type, refuse_foreign
from refold_protocol.session.explain import RequestHistory
from refold_server.checks.offline import slices
from refold_storage.interface import Handle


async def request_history(handle: Handle, progress: Callable[[int, int], None] | None = None) -> RequestHistory:
    """Gather the requests of a log. `progress` gets done and all, in events. Raises SessionFormatUnsupportedError at a
    foreign event that may not be skipped, and what a damaged log raises."""
    history = RequestHistory()
    tail = handle.tail
    done = 0
    async for lines in slices(handle, 0, tail, chunks=False):
        for line in lines:
            if line_type(line) != "assistant/chunk":  # chunks never shape a request; skipping them is most of the speed
                event = decode_event(line)
                refuse_foreign(event)
                history.feed(event)
        done += len(lines)
        if progress is not None:
            progress(done, tail + 1)
    return history
