"""Comparison of a log's lines with the digests that its records carry, so that a change is found where it is.

A record's digest is the only one known between its ends. After a record that does not fit there are two ways to go on,
from what it says and from what its lines give; the next digest that is met shows which of them was right, and with that
what was changed. Pure: lines and digests come in, breaks go out.

Pairing check: in a request, every call has exactly one result, and every result its call just before.

Pairing goes by position within the step: ids may repeat across turns. Providers refuse a history that breaks this, for
ever; so it is checked wherever a request is vouched for.

The offline check: whether a log agrees with itself, and whether each request that it says was sent follows from it.

Pure: it is fed the exact lines, oldest first, and keeps what the folds keep. It shares no cache with the process that wrote
the log. Three verdicts on a body: equal, different, and not shipped, when this release lacks the encoder's version.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.dialects.dialect import BodyEncoder
from refold_protocol.dialects.dialect_table import dialect_named, ships_encoder
from refold_protocol.errors import RefoldError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.codec import CHAIN_START, chain_step, decode_event
from refold_protocol.session.events import EncoderId, Event, Replace, RequestHeaderDelta, RequestSent
from refold_protocol.session.messages import Message, ToolCallBlock, ToolResultBlock
from refold_protocol.session.request import Request, RequestDigest, request_sha256, sent_request_of
from refold_protocol.session.session_state import NO_EVENTS, SessionState, fold


class Break(Struct, frozen=True, gc=False):
    """A record whose lines do not give the digest that it carries: the seqs of its first and last event."""

    first: int
    last: int
    message: str


class ChainCheck:
    """Checks the chain of one log. Feed every line, and tell where a record ends or is lost."""

    def __init__(self) -> None:
        self._digest: bytes | None = CHAIN_START
        self._other: bytes | None = None
        self._doubtful = False
        self._breaks: list[Break] = []

    @property
    def digest(self) -> bytes | None:
        """The digest after the lines so far, going on from what records say; None when that is not known."""
        return self._digest

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The records that do not fit, in order."""
        return tuple(self._breaks)

    def feed(self, line: bytes) -> None:
        """Go on by one line."""
        if self._digest is not None:
            self._digest = chain_step(self._digest, line)
        if self._other is not None:
            self._other = chain_step(self._other, line)

    def end_record(self, first: int, last: int, digest: bytes, *, misplaced: bool = False) -> None:
        """The record of the events `first` to `last` ends here and carries `digest`. `misplaced`: its lines say that they
        belong elsewhere, and then so may its digest; the record behind it is not blamed for that."""
        given = self._digest
        if given is None or self.agrees(digest):
            self._other = None
        else:
            self._breaks.append(Break(first, last, f"its lines give {given.hex()}, the record says {digest.hex()}"))
            self._other = given
        self._digest, self._doubtful = digest, misplaced

    def agrees(self, digest: bytes) -> bool:
        """Tell whether `digest` can be the one after the lines so far; if so, the last break is explained by it."""
        if self._digest is None:
            return True
        if digest not in (self._digest, self._other):
            return self._doubtful
        if self._other is not None:
            reason = "a line of it was changed" if digest == self._digest else "its lines are right, its digest was changed"
            last = self._breaks[-1]
            self._breaks[-1] = replace(last, message=f"{reason}: {last.message}")
            self._other = None
        return True

    def lose(self, digest: bytes | None) -> None:
        """Lines are missing here; `digest` is what a record says of the last of them, None where no record does."""
        self._digest, self._other, self._doubtful = digest, None, False


class PairingCheck:
    """Checks requests of one log; of a request that extends the one before, only what is new."""

    def __init__(self) -> None:
        self._prefix: tuple[Message, ...] | None = None
        self._history: AppendOnlyList[Message] = AppendOnlyList()
        self._faults: list[str] = []
        self._waiting: list[tuple[str, str]] = []
        self._place = 0

    def faults(self, request: Request) -> list[str]:
        """Give a sentence for each call without a result and each result without a call; nothing when all pair."""
        if request.header.message_prefix != self._prefix or not request.history.extends(self._history):
            self._faults, self._waiting, self._place = [], [], 0
            self._prefix, self._history = request.header.message_prefix, AppendOnlyList()
            for message in self._prefix or ():
                self._look(message)
        for message in request.history.since(len(self._history)):
            self._look(message)
        self._history = request.history
        return [*self._faults, *(f"call {call} ({name}) has no result" for call, name in self._waiting)]

    def _look(self, message: Message) -> None:
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        if self._waiting and not results:
            before = f"before message {self._place}"
            self._faults.extend(f"call {call} ({name}) has no result {before}" for call, name in self._waiting)
            self._waiting = []
        for result in results:
            call = next((call for call in self._waiting if call[0] == result.tool_call_id), None)
            if call is None:
                asked = "which no call before it asks for"
                self._faults.append(f"message {self._place} answers {result.tool_call_id}, {asked}")
            else:
                self._waiting.remove(call)
        self._waiting.extend((block.id, block.name) for block in message.content if isinstance(block, ToolCallBlock))
        self._place += 1


def pairing_faults(request: Request) -> list[str]:
    """Check one request from nothing."""
    return PairingCheck().faults(request)


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

    `head_digest` is in hex, empty where damage hides it; `differences` are sorted by place. `inherited` of the requests are the
    parent's of this fork."""

    events: int
    requests: int
    equal: int
    not_shipped: int
    head_digest: str
    differences: tuple[Difference, ...]
    inherited: int = 0

    @property
    def holds(self) -> bool:
        """Tell whether nothing differs."""
        return not self.differences


class Verifier:
    """Checks one log, whose events up to `inherited` (−1: none) are its parent's. Feed every line, tell where records end and
    what cannot be read, then ask for the report."""

    def __init__(self, inherited: int = -1) -> None:
        self._inherited_to = inherited
        self._inherited = 0
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
        return Report(events, self._requests, self._equal, self._not_shipped, head, tuple(found), self._inherited)

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
                self._check_request(seq, event.data, sent_request_of(self._state.request_state, event.data))
        except RefoldError as error:
            self._differ(seq, _check_of(event), error.message)
            self._readable = False

    def _check_request(self, seq: int, sent: RequestSent, request: Request) -> None:
        self._requests += 1
        self._inherited += seq <= self._inherited_to
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
