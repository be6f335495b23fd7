"""The loading of a session's state from its stored log, through a handle and in slices. Keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator

import anyio.lowlevel

from refold_protocol.session.events import Event
from refold_protocol.session.loading import Loading
from refold_protocol.session.session_state import NO_EVENTS, SessionState
from refold_storage.interface import Handle
from refold_storage.slices import read_slices


def load_slices(handle: Handle, last: int) -> Iterator[tuple[SessionState, list[Event]]]:
    """Load the state as of the event `last` in slices: after each the state so far, and the events that were folded since.
    Raises what `Loading` raises."""
    loading = Loading()
    for lines in read_slices(handle, 0, last, chunks=False):
        events = loading.take(lines)
        yield loading.state, events
    for lines in read_slices(handle, loading.revision, last):
        events = loading.finish(lines)
        yield loading.state, events


async def load(handle: Handle, last: int) -> SessionState:
    """Load the state as of the event `last`; the event loop gets a turn between two slices. Raises what `Loading` raises."""
    state = NO_EVENTS
    for now, _ in load_slices(handle, last):
        state = now
        await anyio.lowlevel.checkpoint()
    return state


def load_now(handle: Handle, last: int) -> SessionState:
    """Load the state as of the event `last` at once. Raises what `Loading` raises."""
    state = NO_EVENTS
    for now, _ in load_slices(handle, last):
        state = now
    return state
