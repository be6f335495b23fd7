"""Owns the offline checks over a stored log: verify it whole, and rebuild one request of it.

Reads through a handle in slices, so that an event loop stays alive beside it. The checks themselves are pure and live in
`refold_protocol`; nothing here shares a cache with the process that wrote the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import anyio.lowlevel
from msgspec import Struct

from refold_protocol.dialects.registry import dialect_named, ships_encoder
from refold_protocol.errors import TurnMismatchError
from refold_protocol.session.codec import decode_event, line_type, refuse_foreign
from refold_protocol.session.events import Event, RequestSent
from refold_protocol.session.rebuild import rebuild
from refold_protocol.session.request import request_sha256
from refold_protocol.verify import Report, Verifier
from refold_storage.interface import Handle

SLICE_BYTES: Final = 256 * 1024
"""Bytes of lines that are read and checked before the event loop gets a turn."""

Verdict: TypeAlias = Literal["equal", "different", "unshipped"]


class Rebuilt(Struct, frozen=True):
    """A request, rebuilt. `body` is what an encoder makes of it; digests are in hex; `recorded` is what the log says was
    sent. `unshipped`: this release lacks the recorded encoder's version, `body` is made by the version it has."""

    body: bytes
    sha256: str
    request_sha256: str
    recorded: RequestSent
    verdict: Verdict


async def check_log(handle: Handle, progress: Callable[[int, int], None] | None = None) -> Report:
    """Check all events of a log against each other and against its record. `progress` gets done and all, in events."""
    verifier = Verifier()
    tail = handle.tail
    done = 0
    async for lines in slices(handle, 0, tail):
        for line in lines:
            verifier.feed(line)
        done += len(lines)
        if progress is not None:
            progress(done, tail + 1)
    record = handle.record
    return verifier.report(handle.head_digest.hex(), tail) if record.tail == tail else verifier.report()


async def rebuilt_request(handle: Handle, turn: int, step: int) -> Rebuilt:
    """Rebuild the request of step `turn`.`step`. Raises TurnMismatchError when the log holds none."""
    events: list[Event] = []
    sent: RequestSent | None = None
    async for lines in slices(handle, 0, handle.tail):
        for line in lines:
            if line_type(line) == "assistant/chunk":  # chunks never shape a request; skipping them is most of the speed
                continue
            event = decode_event(line)
            refuse_foreign(event)
            events.append(event)
            data = event.data
            if isinstance(data, RequestSent) and (data.turn, data.step, data.purpose) == (turn, step, "step"):
                sent = data
        if sent is not None:
            break
    if sent is None:
        raise TurnMismatchError(f"no request of step {turn}.{step} is in this log", turn=turn)
    request = rebuild(events, turn, step)
    body = dialect_named(request.header.config.dialect).encode(request, {})
    digest, canonical = sha256(body).hexdigest(), request_sha256(request)
    shipped = ships_encoder(sent.encoder)
    same = canonical == sent.request_sha256 and (not shipped or (digest, len(body)) == (sent.sha256, sent.bytes))
    verdict: Verdict = "different" if not same else "equal" if shipped else "unshipped"
    return Rebuilt(body, digest, canonical, sent, verdict)


async def slices(handle: Handle, first: int, last: int) -> AsyncIterator[list[bytes]]:
    """Iterate over the lines `first`…`last` in slices; the event loop gets a turn between two."""
    while first <= last:
        lines = handle.lines(first, last, max_bytes=SLICE_BYTES)
        first += len(lines)
        yield lines
        await anyio.lowlevel.checkpoint()
