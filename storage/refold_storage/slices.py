"""Slices of a log: its lines or events in portions, each read in one short transaction, so that others run in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from refold_protocol.session.codec import CHUNK, decode_at, refuse_foreign
from refold_protocol.session.events import Event
from refold_storage.interface import Handle

SLICE_BYTES: Final = 512 * 1024
"""Bytes of lines in a slice: a few milliseconds."""


def read_slices(handle: Handle, first: int, last: int, *, chunks: bool = True) -> Iterator[list[bytes]]:
    """Iterate over the lines `first` to `last` in slices. Without `chunks` lines of those may be bare; see `Handle.lines`."""
    while first <= last:
        lines = handle.lines(first, last, max_bytes=SLICE_BYTES, chunks=chunks)
        first += len(lines)
        yield lines


def read_events(handle: Handle, last: int) -> Iterator[list[Event]]:
    """Iterate over the events 0 to `last` but chunks, in slices. Raises SessionCorruptionError at a line that is no event,
    SessionFormatUnsupportedError at a foreign event that may not be skipped."""
    seq = 0
    for lines in read_slices(handle, 0, last, chunks=False):
        events = [decode_at(line, place) for place, line in enumerate(lines, seq) if not line.startswith(CHUNK)]
        for event in events:
            refuse_foreign(event)
        yield events
        seq += len(lines)
