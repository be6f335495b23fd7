"""The live check: what an adapter is about to send is what a fresh reading of the log says it must send.

It vouches for the loop's caches, so it shares none with them: it reads lines back from the log, decodes them itself, folds
them itself and has an encoder of its own. `always` starts from nothing at each request. `sampled` checks an instance's
first request, the first one after each header event and each replace, every EVERY-th one, and any that is not the very
object that was recorded; after the first it goes on from what it read itself before, so a check costs what is new.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import anyio.lowlevel
from msgspec import Struct

from refold_protocol.dialects.dialect import BodyEncoder
from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.dialects.growing_body import first_difference
from refold_protocol.errors import InvariantError
from refold_protocol.session.codec import CHUNK, decode_event, line_type
from refold_protocol.session.events import (
    TYPE_OF_DATA,
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    InputAccepted,
    InputSettled,
    RequestSent,
    ToolCall,
    TurnEnd,
    TurnStart,
)
from refold_protocol.session.messages import EpochHeader
from refold_protocol.session.request import (
    NO_REQUESTS,
    Request,
    RequestDigest,
    RequestState,
    horizon_step,
    request_sha256,
    sent_request_of,
)
from refold_storage.interface import Handle
from refold_storage.reader import read_slices

EVERY: Final = 64
"""In `sampled` mode at least each request of this number is checked."""

_SENT: Final = TYPE_OF_DATA[RequestSent]

SHAPELESS: Final = frozenset(
    TYPE_OF_DATA[data]
    for data in (TurnStart, TurnEnd, InputAccepted, InputSettled, ToolCall, ApprovalAsked, ApprovalDecided, AssistantChunk)
)
"""Types that never shape a request, and of which logs are full."""

CheckMode: TypeAlias = Literal["always", "sampled"]


class _CheckedLog(Struct):
    """What the check read of the log so far, and its own caches of that."""

    next: int = 0
    request_state: RequestState = NO_REQUESTS
    sent: RequestSent | None = None
    digest: RequestDigest | None = None
    encoder: BodyEncoder | None = None
    dialect: str = ""


class LiveCheck:
    """Checks the requests of one instance."""

    def __init__(self, handle: Handle, mode: CheckMode = "always") -> None:
        self._handle = handle
        self._mode: CheckMode = mode
        self._read = _CheckedLog()
        self._passed = 0
        self._header: EpochHeader | None = None
        self._generation = 0

    def is_due(self, loop: RequestState) -> bool:
        """Tell whether the next request is to be checked, where nobody touched it. `loop` is the loop's own fold, which says
        only when to look, never what is right. To be called once for each request."""
        first = self._header is None
        changed = loop.header is not self._header or loop.surface.replace_generation != self._generation
        self._header, self._generation = loop.header, loop.surface.replace_generation
        self._passed += 1
        return self._mode == "always" or first or changed or self._passed % EVERY == 0

    async def check(self, request: Request, body: bytes) -> None:
        """Compare a request that is about to leave with the log. Raises InvariantError that names the first byte and segment
        that differ; then nothing may be sent."""
        if self._mode == "always":
            self._read = _CheckedLog()
        await self._catch_up()
        sent = self._read.sent
        if sent is None:
            raise _refusal("there is no `request/sent` in the log")
        rebuilt = sent_request_of(self._read.request_state, sent)
        expected = self._encoder(rebuilt.header.config.dialect, sent).encode(rebuilt, {})
        if body != expected.data:
            segments = dialect_named(rebuilt.header.config.dialect).segments(rebuilt, {})
            found = first_difference(body, expected.data, segments)
            raise _refusal("" if found is None else found.sentence)
        if request.header != rebuilt.header:
            raise _refusal("the bytes agree, but the header that came with them is another one")
        if request.history is not rebuilt.history and request.history != rebuilt.history:
            raise _refusal("the bytes agree, but the history that came with them is another one")
        canonical = self._canonical(rebuilt, sent)
        if (sent.bytes, sent.sha256, sent.request_sha256) != (len(body), expected.sha256, canonical):
            raise _refusal("`request/sent` in the log names other bytes")

    async def _catch_up(self) -> None:
        """Read what was added to the log; what never shapes a request is not decoded, which is most of the speed."""
        read, sent = self._read, None
        for lines in read_slices(self._handle, read.next, self._handle.tail, chunks=False):
            for line in lines:
                if line.startswith(CHUNK) or (name := line_type(line)) in SHAPELESS:
                    continue
                if name == _SENT:
                    sent = line
                else:
                    read.request_state = horizon_step(read.request_state, decode_event(line))
            read.next += len(lines)
            await anyio.lowlevel.checkpoint()
        if sent is not None:
            data = decode_event(sent).data
            read.sent = data if isinstance(data, RequestSent) else None

    def _canonical(self, rebuilt: Request, sent: RequestSent) -> str:
        if sent.purpose != "step":
            return request_sha256(rebuilt)
        digest = self._read.digest = self._read.digest or RequestDigest()
        return digest.of(rebuilt)

    def _encoder(self, dialect: str, sent: RequestSent) -> BodyEncoder:
        read = self._read
        if sent.purpose != "step":  # once in a while, and of another history: what is kept is for steps
            return dialect_named(dialect).make_encoder()
        if read.encoder is None or read.dialect != dialect:
            read.encoder, read.dialect = dialect_named(dialect).make_encoder(), dialect
        return read.encoder


def _refusal(what: str) -> InvariantError:
    return InvariantError(f"The request was not sent, because it is not the one that the log explains: {what}")
