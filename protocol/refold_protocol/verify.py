"""Owns the offline check: whether a log agrees with itself, and whether each request that it says was sent follows from it.

Pure: it is fed the exact lines, oldest first, and keeps what the folds keep. It shares no cache with the process that wrote
the log. Three verdicts on a body: equal, different, and not shipped, when this release lacks the encoder's version.
"""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.dialects.dialect import BodyEncoder
from refold_protocol.dialects.registry import dialect_named, ships_encoder
from refold_protocol.errors import RefoldError, SessionCorruptionError
from refold_protocol.session.chain import CHAIN_START, chain_step
from refold_protocol.session.codec import decode_event, refuse_foreign
from refold_protocol.session.events import EncoderId, Event, RequestSent
from refold_protocol.session.pairing import PairingCheck
from refold_protocol.session.rebuild import NOTHING_SEEN, Horizon, horizon_step, request_of
from refold_protocol.session.request import Request, RequestDigest
from refold_protocol.session.work import NO_WORK, Work, work_step


class Difference(Struct, frozen=True, gc=False, omit_defaults=True):
    """Something that is not as it must be. `check` is `line`, `head`, `grammar`, `pairing`, `request` or `body`."""

    seq: int
    check: str
    message: str
    turn: int | None = None
    step: int | None = None


class Report(Struct, frozen=True, gc=False, rename="camel"):
    """What was checked: `equal` requests whose bodies are the same to the byte, `not_shipped` ones whose canonical form is
    right but whose encoder this release does not have; `differences` in the order of the log; `head_digest` in hex."""

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
    """Checks one log. Feed every line, then ask for the report."""

    def __init__(self) -> None:
        self._digest = CHAIN_START
        self._events = 0
        self._shift = 0
        self._time = 0
        self._requests = 0
        self._equal = 0
        self._not_shipped = 0
        self._differences: list[Difference] = []
        self._work: Work = NO_WORK
        self._horizon: Horizon = NOTHING_SEEN
        self._readable = True
        self._pairing = PairingCheck()
        self._request_digest = RequestDigest()
        self._encoders: dict[tuple[str, int], BodyEncoder | None] = {}

    def feed(self, line: bytes) -> None:
        """Check the next line (without its line break)."""
        seq = self._events
        self._events += 1
        self._digest = chain_step(self._digest, line)
        try:
            event = decode_event(line)
        except SessionCorruptionError as error:
            self._differ(seq, "line", error.message)
            self._readable = False
            return
        shift = event.seq - seq
        if shift not in (0, self._shift):  # one missing line moves all that follow; it is one difference
            self._differ(seq, "line", f"the event at place {seq} calls itself {event.seq}")
        self._shift = shift
        if event.time < self._time:
            self._differ(seq, "line", f"its time goes back from {self._time} to {event.time}")
        self._time = max(self._time, event.time)
        if self._readable:
            self._fold(event)

    def report(self, head_digest: str | None = None, tail: int | None = None) -> Report:
        """Give the findings. `head_digest` (hex) and `tail` are the catalogue's, which shows a log that was cut off."""
        differences = list(self._differences)
        if tail is not None and tail != self._events - 1:
            differences.append(Difference(self._events - 1, "head", f"the log ends here, the record says it ends at {tail}"))
        if head_digest is not None and head_digest != self._digest.hex():
            differences.append(
                Difference(self._events - 1, "head", f"the chain ends in {self._digest.hex()}, the record says {head_digest}")
            )
        return Report(self._events, self._requests, self._equal, self._not_shipped, self._digest.hex(), tuple(differences))

    def _fold(self, event: Event) -> None:
        try:
            refuse_foreign(event)
            self._work = work_step(self._work, event)
            self._horizon = horizon_step(self._horizon, event)
            if isinstance(event.data, RequestSent) and event.data.purpose == "step":
                self._check_request(event, event.data, request_of(self._horizon))
        except RefoldError as error:
            self._differ(event.seq, "grammar", error.message)
            self._readable = False

    def _check_request(self, event: Event, sent: RequestSent, request: Request) -> None:
        self._requests += 1
        before = len(self._differences)
        for fault in self._pairing.faults(request):
            self._differ(event.seq, "pairing", fault, sent)
        digest = self._request_digest.of(request)
        if digest != sent.request_sha256:
            self._differ(event.seq, "request", f"the rebuilt request has {digest}, recorded is {sent.request_sha256}", sent)
        encoder = self._encoder(sent.encoder)
        if encoder is None:
            self._not_shipped += len(self._differences) == before
            return
        body = encoder.encode(request, {})
        if len(body.data) != sent.bytes or body.sha256 != sent.sha256:
            self._differ(
                event.seq,
                "body",
                f"the rebuilt body has {len(body.data)} bytes and {body.sha256}, recorded are {sent.bytes} and {sent.sha256}",
                sent,
            )
        if len(self._differences) == before:
            self._equal += 1

    def _encoder(self, wanted: EncoderId) -> BodyEncoder | None:
        key = (wanted.name, wanted.version)
        if key not in self._encoders:
            self._encoders[key] = dialect_named(wanted.name).make_encoder() if ships_encoder(wanted) else None
        return self._encoders[key]

    def _differ(self, seq: int, check: str, message: str, sent: RequestSent | None = None) -> None:
        turn, step = (None, None) if sent is None else (sent.turn, sent.step)
        self._differences.append(Difference(seq, check, message, turn, step))
