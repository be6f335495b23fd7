"""Step from drafts to events: order, time, digest and summary of a batch, whole or not at all.

Pure: the clock's reading comes in, nothing is kept. Both stores accept through this one function, so the double cannot
drift from the real one. Knows nothing of where events go afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from refold_protocol.errors import InvalidEventError
from refold_protocol.session.codec import CHAIN_START, chain_step, seal
from refold_protocol.session.events import AssistantChunk, Draft, Event
from refold_protocol.session.session_totals import EMPTY_SUMMARY, SessionTotals, summary_step
from refold_storage.records import MAX_LINE_BYTES


class Head(Struct, frozen=True, gc=False):
    """Where a log ends: seq, time (epoch ms) and chain digest of its last event, and the summary of all of them."""

    tail: int
    time: int
    digest: bytes
    summary: SessionTotals


EMPTY_HEAD: Final = Head(-1, 0, CHAIN_START, EMPTY_SUMMARY)
"""The head of a log without events."""


class Batch(Struct, frozen=True, gc=False):
    """Accepted events in order, the chain's digest after each, the bytes of their lines together, and the new head."""

    events: tuple[Event, ...]
    digests: tuple[bytes, ...]
    size: int
    head: Head


def batch_of(head: Head, drafts: Sequence[Draft], now: int) -> Batch:
    """Give the batch that `drafts` become behind `head`, at `now` (epoch ms).

    Each event gets the next seq and a time that is not before the one of the event before it. Raises InvalidEventError
    for the first draft that cannot be; no other has happened then.
    """
    seq, time, digest, summary = head.tail, head.time, head.digest, head.summary
    events: list[Event] = []
    digests: list[bytes] = []
    size = 0
    for draft in drafts:
        seq += 1
        event = seal(draft, seq, now if now > time else time)
        if event.time < time:
            raise InvalidEventError(f"{event.type}: its time {event.time} lies before the event before it", seq=seq)
        time, line = event.time, event.line
        if len(line) > MAX_LINE_BYTES:
            raise InvalidEventError(f"{event.type}: {len(line)} bytes are more than a log can hold", seq=seq)
        size += len(line)
        digest = chain_step(digest, line)
        if type(event.data) is not AssistantChunk:  # a chunk leaves the summary as it is, and most events are chunks
            summary = summary_step(summary, event)
        events.append(event)
        digests.append(digest)
    return Batch(tuple(events), tuple(digests), size, Head(seq, time, digest, summary))


def check_next(head: Head, batch: Batch) -> None:
    """Raise InvalidEventError for a batch that was made behind another event than the last one of `head`."""
    if batch.head.tail - len(batch.events) != head.tail:
        raise InvalidEventError("a batch was accepted late: other events came after it was sealed")
