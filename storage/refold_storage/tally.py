"""Owns counting a stored log anew: the summary that a list of sessions shows, from the events alone.

Chunks change no summary and are most of a log, so their lines are not decoded. Reads in batches and lets the event loop
run between two.
"""

from __future__ import annotations

import asyncio
from typing import Final

from refold_protocol.session.codec import decode_event
from refold_protocol.session.summary import EMPTY_SUMMARY, Summary, summary_step
from refold_storage.reading import BATCH_BYTES, LinesBatch


async def counted_summary(batch: LinesBatch, tail: int) -> Summary:
    """Give the summary of the events 0 to `tail`. Raises SessionCorruptionError for what cannot be read."""
    summary, first = EMPTY_SUMMARY, 0
    while first <= tail:
        lines = batch(first, tail, BATCH_BYTES)
        for line in lines:
            if not line.startswith(_CHUNK):
                summary = summary_step(summary, decode_event(line))
        first += len(lines)
        await asyncio.sleep(0)
    return summary


_CHUNK: Final = b'{"type":"assistant/chunk",'
