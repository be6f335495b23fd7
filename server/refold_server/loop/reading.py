"""Owns the reading of a whole log for its folds: in slices, each in one short transaction. Keeps nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio.lowlevel

from refold_protocol.session.events import Event
from refold_protocol.session.skim import Skim
from refold_protocol.session.turn_skim import Skimmed, TurnSkim
from refold_storage.interface import Handle

SLICE_BYTES = 512 * 1024
"""Lines of a slice: a few milliseconds, which is how long the event loop waits."""


def slices_of(handle: Handle, last: int, first: int = 0) -> Iterator[list[bytes]]:
    """Iterate over the lines `first` to `last`, those of chunks bare where that is less to read."""
    while first <= last:
        lines = handle.lines(first, last, max_bytes=SLICE_BYTES, chunks=False)
        first += len(lines)
        yield lines


def skimmed(handle: Handle, last: int) -> Iterator[Event]:
    """Iterate over all events up to `last` but chunks of replies that are there; see `session/skim.py`."""
    skim = Skim()
    for lines in slices_of(handle, last):
        yield from skim.events(lines)
    yield from skim.rest(handle.lines)


def turns_skimmed(handle: Handle, last: int) -> Iterator[Skimmed]:
    """Iterate over what the folds of a session as of `last` need; see `session/turn_skim.py`."""
    skim = TurnSkim()
    for lines in slices_of(handle, last):
        yield from skim.items(lines)
    yield from skim.rest(handle.lines)


async def turns_skimmed_in_slices(handle: Handle, last: int) -> AsyncIterator[list[Skimmed]]:
    """The same in lists; the event loop gets a turn between two."""
    skim = TurnSkim()
    for lines in slices_of(handle, last):
        yield list(skim.items(lines))
        await anyio.lowlevel.checkpoint()
    yield list(skim.rest(handle.lines))
