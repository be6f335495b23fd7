"""The views of a session's log as of a seq: surface, header, transcript, status, what waits; and the handles they read through.

Views of a log that nobody writes and that ends in an open turn balance it in memory, as the next writer would on disk. A view
as of an earlier seq shows what was then; the events view shows recorded events only. Keeps nothing. Long iterations let the
event loop run in between.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio.lowlevel
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import SeqRangeError, SessionHandleClosedError
from refold_protocol.ids import SessionId
from refold_protocol.session.closers import closers_of, drafts_as_events, open_at_end
from refold_protocol.session.codec import line_type
from refold_protocol.session.event_data import FORKED, INTERRUPTED
from refold_protocol.session.events import Event
from refold_protocol.session.grammar import NO_TURN, TurnState
from refold_protocol.session.header import header_step
from refold_protocol.session.messages import EpochHeader, Message
from refold_protocol.session.projection import derive_message
from refold_protocol.session.session_state import Pending, SessionState, Status, status_of
from refold_protocol.session.surface import Surface, fold_surface
from refold_protocol.session.transcript import Transcript, TranscriptEntry
from refold_server.requests.session_log import is_seed, load_now
from refold_server.sessions.session_registry import Sessions
from refold_storage.interface import Handle
from refold_storage.reader import read_events


class SurfaceNode(Struct, frozen=True, gc=False, omit_defaults=True):
    """A node of the surface: its event's seq and type, and the message that it becomes for the model, if any."""

    seq: int
    type: str
    message: Message | None = None


def seq_at(handle: Handle, at: int | None) -> int:
    """Give the last seq of a view as of `at` (None: the tail). Raises SeqRangeError past the tail or below −1."""
    if at is None:
        return handle.tail
    if not -1 <= at <= handle.tail:
        raise SeqRangeError(f"seq {at} is not in this log, which ends at {handle.tail}", tail=handle.tail)
    return at


def recorded(handle: Handle, at: int) -> Iterator[Event]:
    """Iterate over the events 0…`at` but chunks, which no view shows. Raises SessionFormatUnsupportedError at a foreign event
    that may not be skipped, SessionCorruptionError at a line that is no event."""
    for events in read_events(handle, at):
        yield from events


def balancing(handle: Handle, at: int, folds: SessionState, *, owned: bool) -> tuple[Event, ...]:
    """Give the closers that a log with these folds as of `at` still needs, where it ends there and nobody writes it: those of
    a fork where that was not opened for writing yet. What was in the middle of a log is shown as it was."""
    if owned or at != handle.tail or not open_at_end(folds.work):
        return ()
    time = next(iter(handle.read(at, at))).time
    return drafts_as_events(closers_of(folds.work, time, FORKED if _is_seed(handle, folds.work, at) else INTERRUPTED), at)


def surface_view(handle: Handle, at: int, *, owned: bool) -> list[SurfaceNode]:
    """Give the surface's nodes, in their order."""
    return nodes_of(surface_of(handle, at, load_now(handle, at), owned=owned))


def nodes_of(surface: Surface) -> list[SurfaceNode]:
    """Give a surface's nodes as the view shows them."""
    return [SurfaceNode(node.seq, node.type, derive_message(node)) for node in surface.nodes]


def transcript_view(handle: Handle, at: int, *, owned: bool) -> Iterator[TranscriptEntry]:
    """Iterate over the transcript's entries, oldest first."""
    reader = Transcript()
    for event in recorded(handle, at):
        yield from reader.entries(event)
    if not owned and at == handle.tail and stands_open(handle):
        for event in balancing(handle, at, load_now(handle, at), owned=owned):
            yield from reader.entries(event)


def header_view(handle: Handle, at: int) -> EpochHeader | None:
    """Give the header in force, None before the first request."""
    header: EpochHeader | None = None
    for event in recorded(handle, at):
        header = header_step(header, event)
    return header


def status_view(handle: Handle, at: int, *, owned: bool) -> Status:
    """Give the status."""
    return outlook_of(handle, at, load_now(handle, at), owned=owned)[0]


def stands_open(handle: Handle) -> bool:
    """Tell whether a turn or a compaction stands open where the log ends. Looks back to the border of the
    last turn only, across which no writer leaves a compaction open."""
    last, compacted = handle.tail, False
    while last >= 0:
        first = max(0, last - _PAGE + 1)
        for line in reversed(handle.lines(first, last)):
            match line_type(line):
                case "turn/start":
                    return True
                case "compact/start" if not compacted:
                    return True
                case "compact/end":
                    compacted = True
                case "turn/end":
                    return False
                case _:
                    continue
        last = first - 1
    return False


def surface_of(handle: Handle, at: int, folds: SessionState, *, owned: bool) -> Surface:
    """Give the surface of a log with these folds as of `at`, with the closers that nobody wrote yet."""
    return fold_surface(balancing(handle, at, folds, owned=owned), folds.request_state.surface)


def outlook_of(handle: Handle, at: int, folds: SessionState, *, owned: bool) -> tuple[Status, Pending]:
    """Give the status and the inputs that wait, of a log with these folds as of `at`. As of the tail the status is `broken`
    while the log cannot be written."""
    closed = bool(balancing(handle, at, folds, owned=owned))  # the closers leave nothing open
    return (
        _status(handle, at, NO_TURN if closed else folds.work),
        () if _is_seed(handle, folds.work, at) else folds.pending,
    )


def _status(handle: Handle, at: int, work: TurnState) -> Status:
    status = status_of(work)
    return replace(status, status="broken") if handle.trouble is not None and at == handle.tail else status


def pending_view(handle: Handle, at: int) -> Pending:
    """Give the inputs that wait. A fork inherits none, also before it is opened for writing."""
    return outlook_of(handle, at, load_now(handle, at), owned=True)[1]


def _is_seed(handle: Handle, work: TurnState, at: int) -> bool:
    """Tell whether a view as of `at` shows a fork in which no instance began yet. As of less, it shows the parent."""
    parent = handle.record.parent
    return parent is not None and parent.at <= at and is_seed(parent, work)


_PAGE: Final = 512


Read = TypeVar("Read")


@asynccontextmanager
async def examining(sessions: Sessions, session: SessionId) -> AsyncGenerator[Handle, None]:
    """Give a handle for checking the session's log, also a log that cannot be opened otherwise. Raises SessionError."""
    live = sessions.live(session)
    if live is not None and not live.closed:
        yield live.session_log.handle
        return
    handle = await sessions.store.open_damaged(session)
    try:
        yield handle
    finally:
        await handle.close()


@asynccontextmanager
async def reading(sessions: Sessions, session: SessionId) -> AsyncGenerator[tuple[Handle, bool], None]:
    """Give a handle on the session's log, and whether somebody writes it right now. Raises SessionError."""
    live = sessions.live(session)
    if live is not None and not live.closed:  # what is being closed is flushed, and can be read as anybody else's
        yield live.session_log.handle, True
        return
    handle = await sessions.store.open(session, "read")
    try:
        yield handle, sessions.store.is_owned(session)
    finally:
        await handle.close()


async def read_whole(read: Callable[[], Awaitable[Read]]) -> Read:
    """Give what a read gives that lets others run meanwhile. It is made once more where the session was closed here before
    it was over: that handle is gone then, and the log is not. Raises what `read` raises."""
    try:
        return await read()
    except SessionHandleClosedError:  # the next one opens a handle of its own
        return await read()


SLICE_ITEMS: Final = 512
"""Items between two turns of the event loop: a few milliseconds."""

Item = TypeVar("Item")
State = TypeVar("State")


async def folded(items: Iterable[Item], step: Callable[[State, Item], State], state: State) -> State:
    """Fold `items`, going on from `state`. Raises what iterating and `step` raise."""
    for number, item in enumerate(items, 1):
        state = step(state, item)
        if number % SLICE_ITEMS == 0:
            await anyio.lowlevel.checkpoint()
    return state


async def listed(items: Iterable[Item]) -> list[Item]:
    """Give `items` in a list. Raises what iterating raises."""
    found: list[Item] = []
    for item in items:
        found.append(item)
        if len(found) % SLICE_ITEMS == 0:
            await anyio.lowlevel.checkpoint()
    return found
