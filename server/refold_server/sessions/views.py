"""Owns the views of a log: what `session/read` and `refold log` show, as of any seq.

The views surface, transcript and status of a log that nobody writes balance an open turn in memory, as the next writer
would on disk; the events view shows recorded events only. Reads through a handle and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from msgspec.structs import replace

from refold_protocol.errors import SeqRangeError
from refold_protocol.rpc.results import SurfaceNode
from refold_protocol.session.closers import closers_of, drafts_as_events, open_at_end
from refold_protocol.session.codec import line_type, refuse_foreign
from refold_protocol.session.endings import FORKED, INTERRUPTED
from refold_protocol.session.events import Event
from refold_protocol.session.header import header_step
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.pending import Pending
from refold_protocol.session.projection import derive_message
from refold_protocol.session.status import Status, status_of
from refold_protocol.session.surface import Surface, fold_surface
from refold_protocol.session.transcript import Transcript, TranscriptEntry
from refold_protocol.session.work import NO_WORK, Work, fold_work, work_step
from refold_server.loop.folds import NOTHING_KNOWN, Folds, fold_all, folds_over, folds_step
from refold_server.loop.ledger import is_seed
from refold_server.loop.reading import skimmed, turns_skimmed_in_slices
from refold_storage.interface import Handle


def seq_at(handle: Handle, at: int | None) -> int:
    """Give the last seq of a view as of `at` (None: the tail). Raises SeqRangeError past the tail or below −1."""
    if at is None:
        return handle.tail
    if not -1 <= at <= handle.tail:
        raise SeqRangeError(f"seq {at} is not in this log, which ends at {handle.tail}", tail=handle.tail)
    return at


def recorded(handle: Handle, at: int) -> Iterator[Event]:
    """Iterate over the events 0…`at` but those chunks that no view shows. Raises SessionFormatUnsupportedError at a foreign
    event that may not be skipped."""
    for event in skimmed(handle, at):
        refuse_foreign(event)
        yield event


def balanced(handle: Handle, at: int, *, owned: bool) -> Iterator[Event]:
    """Iterate over the events 0…`at` and, for a log that nobody writes, over the closers that it still needs: those of a
    fork where it was not opened for writing yet."""
    work, time = NO_WORK, 0
    for event in recorded(handle, at):
        work, time = work_step(work, event), event.time
        yield event
    if not owned and open_at_end(work):
        yield from drafts_as_events(closers_of(work, time, FORKED if _is_seed(handle, work, at) else INTERRUPTED), at)


def surface_view(handle: Handle, at: int, *, owned: bool) -> list[SurfaceNode]:
    """Give the surface's nodes, in their order."""
    return nodes_of(fold_surface(balanced(handle, at, owned=owned)))


def nodes_of(surface: Surface) -> list[SurfaceNode]:
    """Give a surface's nodes as the view shows them."""
    return [SurfaceNode(node.seq, node.type, derive_message(node)) for node in surface.nodes]


def transcript_view(handle: Handle, at: int, *, owned: bool) -> Iterator[TranscriptEntry]:
    """Iterate over the transcript's entries, oldest first."""
    reader = Transcript()
    return chain.from_iterable(reader.entries(event) for event in balanced(handle, at, owned=owned))


def header_view(handle: Handle, at: int) -> EpochHeader | None:
    """Give the header in force, None before the first request."""
    header: EpochHeader | None = None
    for event in recorded(handle, at):
        header = header_step(header, event)
    return header


def status_view(handle: Handle, at: int, *, owned: bool) -> Status:
    """Give the status."""
    return _status(handle, at, fold_work(balanced(handle, at, owned=owned)))


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


async def folds_at(handle: Handle, at: int) -> Folds:
    """Fold the events 0…`at`, in slices. Raises SessionFormatUnsupportedError at a foreign event that may not be skipped."""
    state = NOTHING_KNOWN
    async for items in turns_skimmed_in_slices(handle, at):
        for item in items:
            state = folds_step(state, item) if isinstance(item, Event) else folds_over(state, item)
    return state


def surface_of(handle: Handle, at: int, folds: Folds, *, owned: bool) -> Surface:
    """Give the surface of a log with these folds as of `at`, with the closers that nobody wrote yet."""
    if owned or not open_at_end(folds.work):
        return folds.horizon.surface
    time = next(iter(handle.read(at, at))).time
    closers = closers_of(folds.work, time, FORKED if _is_seed(handle, folds.work, at) else INTERRUPTED)
    return fold_surface(drafts_as_events(closers, at), folds.horizon.surface)


def outlook_of(handle: Handle, at: int, folds: Folds, *, owned: bool) -> tuple[Status, Pending]:
    """Give the status and the inputs that wait, of a log with these folds as of `at`. As of the tail the status is `broken`
    while the log cannot be written."""
    closed = not owned and open_at_end(folds.work)  # the closers leave nothing open
    return (
        _status(handle, at, NO_WORK if closed else folds.work),
        () if _is_seed(handle, folds.work, at) else folds.pending,
    )


def _status(handle: Handle, at: int, work: Work) -> Status:
    status = status_of(work)
    return replace(status, status="broken") if handle.trouble is not None and at == handle.tail else status


def pending_view(handle: Handle, at: int) -> Pending:
    """Give the inputs that wait. A fork inherits none, also before it is opened for writing."""
    return outlook_of(handle, at, fold_all(recorded(handle, at)), owned=True)[1]


def _is_seed(handle: Handle, work: Work, at: int) -> bool:
    """Tell whether a view as of `at` shows a fork in which no instance began yet. As of less, it shows the parent."""
    parent = handle.record.parent
    return parent is not None and parent.at <= at and is_seed(parent, work)


_PAGE: Final = 512
