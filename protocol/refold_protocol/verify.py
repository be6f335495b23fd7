"""The offline check: whether a log agrees with itself, and whether each request that it says was sent follows from it.

Pure: it is fed the exact lines, oldest first, and keeps what the folds keep. It shares no cache with the process that wrote
the log. Three verdicts on a body: equal, different, and not shipped, when this release lacks the encoder's version.
"""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.chain_check import ChainCheck
from refold_protocol.dialects.dialect import BodyEncoder
from refold_protocol.dialects.registry import dialect_named, ships_encoder
from refold_protocol.errors import RefoldError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import EncoderId, Event, Replace, RequestHeaderDelta, RequestSent
from refold_protocol.session.pairing import PairingCheck, pairing_faults
from refold_protocol.session.rebuild import sent_request_of
from refold_protocol.session.request import Request, RequestDigest, request_sha256
from refold_protocol.session.session_state import NO_EVENTS, SessionState, fold


class Difference(Struct, frozen=True, gc=False, omit_defaults=True):
    """Something that is not as it must be, at the event `seq`, or somewhere in the events `seq` to `last`.

    `check` is `record` (events that cannot be read), `chain` (a record's lines and its digest), `head` (the log's end and
    the session's record), `line`, `grammar`, `surface`, `header`, `pairing`, `request` or `body`."""

    seq: int
    check: str
    message: str
    turn: int | None = None
    step: int | None = None
    last: int | None = None


class Report(Struct, frozen=True, gc=False, rename="camel"):
    """What was checked: `events` that could be read, `requests` that could be rebuilt, `equal` ones whose bodies are the same
    to the byte, `not_shipped` ones whose canonical form is right but whose encoder this release does not have.

    `head_digest` is in hex, empty where damage hides it; `differences` are sorted by place."""

    events: int
    requests: int
    equal: int
    not_shipped: int
    head_digest: str
    differences: tuple[Difference, ...]

    @property
    def holds(self) -> bool:
        """Tell whether nothing differs."""
        return not self.differences


class Verifier:
    """Checks one log. Feed every line, tell where records end and what cannot be read, then ask for the report."""

    def __init__(self) -> None:
        self._chain = ChainCheck()
        self._seq = 0
        self._unread = 0
        self._record = 0
        self._shift = 0
        self._misplaced = False
        self._time = 0
        self._requests = 0
        self._equal = 0
        self._not_shipped = 0
        self._differences: list[Difference] = []
        self._state: SessionState = NO_EVENTS
        self._readable = True
        self._pairing = PairingCheck()
        self._request_digest = RequestDigest()
        self._encoders: dict[tuple[str, int], BodyEncoder | None] = {}

    @property
    def place(self) -> int:
        """The seq of the next line."""
        return self._seq

    def feed(self, line: bytes) -> None:
        """Check the next line (without its line break)."""
        seq = self._seq
        self._seq += 1
        self._chain.feed(line)
        try:
            event = decode_event(line)
        except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
            self._differ(seq, "line", error.message)
            self._readable = False
            return
        self._check_place(event, seq)
        if self._readable:
            self._fold(event, seq)

    def end_record(self, digest: bytes) -> None:
        """Check that the lines since the last end, which were stored together, give the digest that stands with them."""
        self._chain.end_record(self._record, self._seq - 1, digest, misplaced=self._misplaced)
        self._record, self._misplaced = self._seq, False

    def skip(self, last: int, message: str, digest: bytes | None) -> None:
        """The events from here to `last` cannot be read; `digest` is the recorded one of the last of them, if any is known.
        What follows is checked by itself: no request behind a gap can be rebuilt."""
        self._differences.append(Difference(self._seq, "record", message, last=last))
        self._unread += last + 1 - self._seq
        self._seq = self._record = last + 1
        self._shift, self._misplaced, self._readable = 0, False, False
        self._chain.lose(digest)

    def report(self, head_digest: str | None = None, tail: int | None = None) -> Report:
        """Give the findings. `head_digest` (hex) and `tail` are the catalogue's, which shows a log that was cut off."""
        ends = self._end(head_digest, tail)
        breaks = [Difference(one.first, "chain", one.message, last=one.last) for one in self._chain.breaks]
        found = sorted([*breaks, *self._differences, *ends], key=lambda one: one.seq)
        events, digest = self._seq - self._unread, self._chain.digest
        head = "" if digest is None else digest.hex()
        return Report(events, self._requests, self._equal, self._not_shipped, head, tuple(found))

    def _end(self, head_digest: str | None, tail: int | None) -> list[Difference]:
        last = self._seq - 1
        if tail is not None and tail > last:
            message = f"missing at the end of the log: the session's record says that it ends at {tail}"
            return [Difference(last + 1, "head", message, last=tail)]
        if tail is not None and tail < last:
            message = f"behind the end of the log: the session's record says that it ends at {tail}"
            return [Difference(tail + 1, "head", message, last=last)]
        if head_digest is None or self._chain.agrees(bytes.fromhex(head_digest)):
            return []
        given = (self._chain.digest or b"").hex()
        return [Difference(last, "head", f"the chain ends in {given}, the session's record says {head_digest}")]

    def _check_place(self, event: Event, seq: int) -> None:
        shift = event.seq - seq
        if shift not in (0, self._shift):  # one missing line moves all that follow; it is one difference
            self._differ(seq, "line", f"the event at place {seq} calls itself {event.seq}")
        self._shift = shift
        if shift:
            self._misplaced = True
        else:
            if event.time < self._time:
                self._differ(seq, "line", f"its time goes back from {self._time} to {event.time}")
            self._time = event.time

    def _fold(self, event: Event, seq: int) -> None:
        try:
            self._state = fold(self._state, event)
            if isinstance(event.data, RequestSent):
                self._check_request(seq, event.data, sent_request_of(self._state.horizon, event.data))
        except RefoldError as error:
            self._differ(seq, _check_of(event), error.message)
            self._readable = False

    def _check_request(self, seq: int, sent: RequestSent, request: Request) -> None:
        self._requests += 1
        before = len(self._differences)
        step = sent.purpose == "step"  # of a summary nothing is kept: the requests of steps extend each other
        for fault in self._pairing.faults(request) if step else pairing_faults(request):
            self._differ(seq, "pairing", fault, sent)
        digest = self._request_digest.of(request) if step else request_sha256(request)
        if digest != sent.request_sha256:
            self._differ(seq, "request", f"the rebuilt request has {digest}, recorded is {sent.request_sha256}", sent)
        encoder = self._encoder(sent.encoder, kept=step)
        if encoder is None:
            self._not_shipped += len(self._differences) == before
            return
        self._check_body(seq, sent, request, encoder)
        if len(self._differences) == before:
            self._equal += 1

    def _check_body(self, seq: int, sent: RequestSent, request: Request, encoder: BodyEncoder) -> None:
        try:
            body = encoder.encode(request, {})
        except (RefoldError, TypeError, ValueError) as error:  # opaque text of a damaged header: anything may stand there
            self._differ(seq, "body", f"the rebuilt request cannot be encoded: {error}", sent)
            return
        if len(body.data) != sent.bytes or body.sha256 != sent.sha256:
            found = f"the rebuilt body has {len(body.data)} bytes and {body.sha256}"
            self._differ(seq, "body", f"{found}, recorded are {sent.bytes} and {sent.sha256}", sent)

    def _encoder(self, wanted: EncoderId, *, kept: bool) -> BodyEncoder | None:
        if not kept:
            return dialect_named(wanted.name).make_encoder() if ships_encoder(wanted) else None
        key = (wanted.name, wanted.version)
        if key not in self._encoders:
            self._encoders[key] = dialect_named(wanted.name).make_encoder() if ships_encoder(wanted) else None
        return self._encoders[key]

    def _differ(self, seq: int, check: str, message: str, sent: RequestSent | None = None) -> None:
        turn, step = (None, None) if sent is None else (sent.turn, sent.step)
        self._differences.append(Difference(seq, check, message, turn, step))


def _check_of(event: Event) -> str:
    """Name the check that an event fails which cannot be folded."""
    if isinstance(event.surface_op, Replace):
        return "surface"
    return "header" if isinstance(event.data, RequestHeaderDelta) else "grammar"
