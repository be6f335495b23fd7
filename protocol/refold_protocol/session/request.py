"""Request: what a model is asked, independent of any provider's wire form, and its canonical digest.

A Request is its header and its history; nothing else can reach an encoder. Messages go to the provider in this order:
system (from the header), the header's message prefix, the history. Built by `rebuild.py`, never by hand outside tests.

Request for a summary: what a compaction asks its model, from what its `compact/start` recorded.

It replays the header in force and the region's messages as they were sent before, and puts its instructions last: so a
provider finds nearly all of it in its cache. Pure; `rebuild.py` says for which compaction of a log it is made.

Reconstruction boundary: which request follows from a log.

The messages of the request of step S are the header's message prefix and the projection of the surface as it was strictly
before S's `step/start`; its header is the fold up to and including S's own header event. The loop, the live check and the
offline check all get requests from here and from nowhere else. A compaction's request follows from its `compact/start`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import InvariantError, TurnMismatchError
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.codec import refuse_foreign
from refold_protocol.session.events import CompactEnd, CompactStart, Event, RequestSent, StepEnd, StepStart
from refold_protocol.session.header import canonical_header, header_step
from refold_protocol.session.messages import EpochHeader, Message, encode_compact, text_content
from refold_protocol.session.projection import derive_message
from refold_protocol.session.surface import EMPTY_SURFACE, Surface, positions_of, surface_step


class Request(Struct, frozen=True):
    """One request, deeply immutable. `header` is canonical; `history` is the surface's projection, oldest first."""

    header: EpochHeader
    history: AppendOnlyList[Message]

    def messages(self) -> Iterator[Message]:
        """Iterate over the messages: the header's prefix, then the history. The system text is not among them."""
        return chain(self.header.message_prefix or (), self.history)


class RequestDigest:
    """Computes `requestSha256`; of a request that extends the one before, only what is new.

    The digest is SHA-256 over the compact JSON of `{header, messages}`: fields in declared order, absent ones omitted,
    images by digest. Fixed for FORMAT_VERSION 0.
    """

    def __init__(self) -> None:
        self._header: EpochHeader | None = None
        self._history: AppendOnlyList[Message] = AppendOnlyList()
        self._state = sha256()
        self._empty = True

    def of(self, request: Request) -> str:
        """Give the digest in lower-case hex."""
        if request.header != self._header or not request.history.extends(self._history):
            self._restart(request.header)
        self._add(request.history.since(len(self._history)))
        self._history = request.history
        whole = self._state.copy()
        whole.update(b"]}")
        return whole.hexdigest()

    def _restart(self, header: EpochHeader) -> None:
        self._header = header
        self._history = AppendOnlyList()
        self._empty = True
        self._state = sha256(b'{"header":' + encode_compact(header) + b',"messages":[')
        self._add(iter(header.message_prefix or ()))

    def _add(self, messages: Iterator[Message]) -> None:
        for message in messages:
            self._state.update(encode_compact(message) if self._empty else b"," + encode_compact(message))
            self._empty = False


def request_sha256(request: Request) -> str:
    """Give `requestSha256` of one request, computed from nothing."""
    return RequestDigest().of(request)


class OpenCompaction(Struct, frozen=True, gc=False):
    """A compaction that began with the event `seq`, and what the model saw then."""

    seq: int
    start: CompactStart
    surface: Surface = EMPTY_SURFACE
    header: EpochHeader | None = None


def region_nodes(asked: OpenCompaction) -> tuple[Event, ...]:
    """Give the nodes that a compaction is about, in the surface's order. Raises InvalidEventError where the surface did not
    have them."""
    first, last = positions_of(asked.surface, asked.start.range, asked.seq)
    return asked.surface.nodes[first : last + 1]


def summary_request(asked: OpenCompaction) -> Request:
    """Give the request of a compaction: with the header in force, or, before any request, with its config alone. Raises
    InvalidEventError for a range that is not on the surface."""
    header = asked.header or EpochHeader(asked.start.config)
    derived = (derive_message(node) for node in region_nodes(asked))
    messages = [message for message in derived if message is not None]
    messages.append(Message("user", text_content(asked.start.instructions)))
    return Request(canonical_header(replace(header, config=asked.start.config)), AppendOnlyList(messages))


class RequestState(Struct, frozen=True, gc=False):
    """State of the fold: what the model sees after the events so far.

    `history` is the surface's projection. `boundary` is the history at the open step's start, None outside steps.
    """

    surface: Surface = EMPTY_SURFACE
    history: AppendOnlyList[Message] = AppendOnlyList()
    header: EpochHeader | None = None
    boundary: AppendOnlyList[Message] | None = None
    compaction: OpenCompaction | None = None


NO_REQUESTS = RequestState()


def horizon_step(state: RequestState, event: Event) -> RequestState:
    """Fold one event; O(1) but for a replace. Raises what the folds of surface and header raise."""
    if event.surface_op is not None:
        surface = surface_step(state.surface, event)
        history = _projected(state, surface, event)
        return RequestState(surface, history, state.header, state.boundary, state.compaction)
    data = event.data
    if isinstance(data, StepStart):
        return RequestState(state.surface, state.history, state.header, state.history, state.compaction)
    if isinstance(data, StepEnd):
        return RequestState(state.surface, state.history, state.header, None, state.compaction)
    if isinstance(data, CompactStart):
        positions_of(state.surface, data.range, event.seq)
        return replace(state, compaction=OpenCompaction(event.seq, data, state.surface, state.header))
    if isinstance(data, CompactEnd):
        return replace(state, compaction=None)
    header = header_step(state.header, event)
    if header is state.header:
        return state
    return replace(state, header=header)


def request_of(state: RequestState) -> Request:
    """Give the request of the open step. Raises InvariantError outside a step or before any header."""
    if state.boundary is None or state.header is None:
        raise InvariantError("a request was asked for where no step is open or no header was recorded")
    return Request(state.header, state.boundary)


def summary_request_of(state: RequestState) -> Request:
    """Give the request of the open compaction. Raises InvariantError where none is open, and what `summary_request` raises."""
    if state.compaction is None:
        raise InvariantError("a summary was asked for, and no compaction is open")
    return summary_request(state.compaction)


def sent_request_of(state: RequestState, sent: RequestSent) -> Request:
    """Give the request that a `request/sent` which stands here speaks of. Raises what the two above raise."""
    return request_of(state) if sent.purpose == "step" else summary_request_of(state)


def rebuild(events: Iterable[Event], turn: int, step: int) -> Request:
    """Give the request of step `turn`.`step` from the events of its log, oldest first; reads no further than needed.

    Raises TurnMismatchError when the log holds no such step, or the step made no request, and SessionFormatUnsupportedError
    at a foreign event that may not be skipped.
    """
    state = NO_REQUESTS
    here = False
    for event in events:
        refuse_foreign(event)
        state = horizon_step(state, event)
        match event.data:
            case StepStart() as start:
                here = (start.turn, start.step) == (turn, step)
            case RequestSent(purpose="step") if here:
                return request_of(state)
            case StepEnd() if here:
                break
            case _:
                pass
    raise TurnMismatchError(f"no request of step {turn}.{step} is in this log")


def rebuild_summary(events: Iterable[Event], compaction: int) -> Request:
    """Give the request of the compaction that began with the event of that seq, as `rebuild` does for a step's.

    Raises TurnMismatchError when no compaction began there, or it asked no provider.
    """
    state = NO_REQUESTS
    for event in events:
        refuse_foreign(event)
        state = horizon_step(state, event)
        if isinstance(event.data, RequestSent) and event.data.purpose == "summary" and state.compaction is not None:
            if state.compaction.seq == compaction:
                return summary_request_of(state)
        elif event.seq > compaction and state.compaction is None:
            break
    raise TurnMismatchError(f"no compaction that sent a request began with event {compaction} of this log")


def sent_requests(events: Iterable[Event]) -> Iterator[tuple[Event, RequestSent, Request]]:
    """Iterate over the requests of all steps in one pass: the `request/sent` event, its data, the request rebuilt.

    Raises SessionFormatUnsupportedError at a foreign event that may not be skipped.
    """
    state = NO_REQUESTS
    for event in events:
        refuse_foreign(event)
        state = horizon_step(state, event)
        if isinstance(event.data, RequestSent) and event.data.purpose == "step":
            yield event, event.data, request_of(state)


def _projected(state: RequestState, surface: Surface, event: Event) -> AppendOnlyList[Message]:
    if surface.replace_generation != state.surface.replace_generation:
        derived = (derive_message(node) for node in surface.nodes)
        return AppendOnlyList(message for message in derived if message is not None)
    message = derive_message(event)
    return state.history if message is None else state.history.then(message)
