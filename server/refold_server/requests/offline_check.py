"""The checks of a stored log: verify it whole, rebuild one request of it, gather what its requests share.

Reads through a handle in slices, so that an event loop stays alive beside it. The checks and folds themselves are pure and
live in `refold_protocol`; nothing here shares a cache with the process that wrote the log.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Literal, TypeAlias

import anyio.lowlevel
from msgspec import Struct

from refold_protocol.dialects.dialect_table import dialect_named, ships_encoder
from refold_protocol.errors import TurnMismatchError
from refold_protocol.session.cache_report import RequestHistory
from refold_protocol.session.events import CompactStart, Event, RequestSent
from refold_protocol.session.request import Request, rebuild, rebuild_summary, request_sha256
from refold_protocol.session.request_rows import RequestRows, SentRow
from refold_protocol.verify import Report, Verifier
from refold_storage.interface import Handle
from refold_storage.reader import SLICE_BYTES, read_events, read_slices
from refold_storage.records import Damage, Record

Verdict: TypeAlias = Literal["equal", "different", "unshipped"]


class RebuiltRequest(Struct, frozen=True):
    """A request, rebuilt. `body` is what an encoder makes of it; digests are in hex; `recorded` is what the log says was
    sent. `unshipped`: this release lacks the recorded encoder's version, `body` is made by the version it has."""

    body: bytes
    sha256: str
    request_sha256: str
    recorded: RequestSent
    verdict: Verdict


async def check_log(handle: Handle, progress: Callable[[int, int], None] | None = None) -> Report:
    """Check all events of a log against each other and against its record; what is damaged is noted, and the rest checked.

    `progress` gets done and all, in events. Raises RefoldError where not even the keys of the store can be read.
    """
    parent = handle.record.parent
    verifier = Verifier(-1 if parent is None else parent.at)
    tail, durable, head_digest = handle.tail, handle.durable, handle.head_digest.hex()
    size = 0
    for piece in handle.inspect():
        size += _check_piece(verifier, piece)
        if size >= SLICE_BYTES:
            size = 0
            if progress is not None:
                progress(verifier.place, tail + 1)
            await anyio.lowlevel.checkpoint()
    if verifier.place > durable:  # else the end is lost
        for lines in read_slices(handle, verifier.place, tail):  # what was accepted and is not committed yet
            for line in lines:
                verifier.feed(line)
            await anyio.lowlevel.checkpoint()
    if progress is not None:
        progress(verifier.place, tail + 1)
    return verifier.report(head_digest, tail)


def _check_piece(verifier: Verifier, piece: Record | Damage) -> int:
    """Check a record, or note that there is none; give how many bytes its lines have."""
    if isinstance(piece, Damage):
        verifier.skip(piece.last, piece.message, piece.digest)
        return 0
    for line in piece.lines:
        verifier.feed(line)
    verifier.end_record(piece.digest)
    return sum(map(len, piece.lines))


async def rebuilt_request(handle: Handle, turn: int, step: int) -> RebuiltRequest:
    """Rebuild the request of step `turn`.`step`. Raises TurnMismatchError when the log holds none."""

    def is_it(sent: RequestSent, _: int) -> bool:
        return (sent.turn, sent.step, sent.purpose) == (turn, step, "step")

    events, sent = await _up_to(handle, is_it)
    if sent is None:
        raise TurnMismatchError(f"no request of step {turn}.{step} is in this log", turn=turn)
    return _rebuilt(rebuild(events, turn, step), sent)


async def rebuilt_summary(handle: Handle, compaction: int) -> RebuiltRequest:
    """Rebuild the request of the compaction that began with the event of that seq. Raises TurnMismatchError when none did, or
    it asked no provider."""
    events, sent = await _up_to(handle, lambda sent, began: sent.purpose == "summary" and began == compaction)
    if sent is None:
        raise TurnMismatchError(f"no compaction that sent a request began with event {compaction} of this log")
    return _rebuilt(rebuild_summary(events, compaction), sent)


async def _up_to(handle: Handle, is_it: Callable[[RequestSent, int], bool]) -> tuple[list[Event], RequestSent | None]:
    """Give the events up to the slice with the last `request/sent` that is wanted, without chunks, and its data. `is_it`
    gets that and the seq of the last `compact/start`."""
    events: list[Event] = []
    sent: RequestSent | None = None
    began = -1
    for batch in read_events(handle, handle.tail):
        for event in batch:
            events.append(event)
            data = event.data
            if isinstance(data, CompactStart):
                began = event.seq
            if isinstance(data, RequestSent) and is_it(data, began):
                sent = data
        if sent is not None:
            break
        await anyio.lowlevel.checkpoint()
    return events, sent


def _rebuilt(request: Request, sent: RequestSent) -> RebuiltRequest:
    body = dialect_named(request.header.config.dialect).encode(request, {})
    digest, canonical = sha256(body).hexdigest(), request_sha256(request)
    shipped = ships_encoder(sent.encoder)
    same = canonical == sent.request_sha256 and (not shipped or (digest, len(body)) == (sent.sha256, sent.bytes))
    verdict: Verdict = "different" if not same else "equal" if shipped else "unshipped"
    return RebuiltRequest(body, digest, canonical, sent, verdict)


async def request_rows(handle: Handle, progress: Callable[[int, int], None] | None = None) -> list[SentRow]:
    """Give a row for each request of a log, oldest first. Raises what `request_history` raises."""
    parent, tail = handle.record.parent, handle.tail
    rows = RequestRows(-1 if parent is None else parent.at)
    for events in read_events(handle, tail):
        for event in events:
            rows.feed(event)
        if progress is not None and events:
            progress(events[-1].seq + 1, tail + 1)
        await anyio.lowlevel.checkpoint()
    return rows.rows


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
