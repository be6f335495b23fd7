"""Owns the comparison of two requests of one log: how many bytes of their bodies agree, and where they part.

Where the later request grew from the earlier one by appends alone, nothing is encoded: the recorded sizes tell. Else both
bodies are made and compared, by the encoders that the log names, if this release has them. Why they part is not known
here (`cache.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from refold_protocol.dialects.dialect import Dialect
from refold_protocol.dialects.registry import DIALECTS, ships_encoder
from refold_protocol.dialects.segments import KINDS, Segment, common_prefix, excerpt, segment_at
from refold_protocol.errors import BlobUnknownError
from refold_protocol.session.events import EncoderId, Event
from refold_protocol.session.projection import derive_message
from refold_protocol.session.request import Request
from refold_protocol.session.tape import Tape


class SentRequest(Struct, frozen=True):
    """A request that was sent: what it was, the surface nodes that its history came from, its encoder, the bytes of its
    body as recorded, the seq and the time (epoch ms) of its `request/sent`."""

    request: Request
    nodes: Tape[Event]
    encoder: EncoderId
    bytes: int
    seq: int
    time: int


class Parting(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where two bodies part: the byte, the segment that holds it (the earlier in a body's order, where it is another one in
    each), the seq of its node if it is of the history, and excerpts of both bodies around it."""

    offset: int
    segment: Segment
    before: str
    after: str
    node: int | None = None


class Comparison(Struct, frozen=True, gc=False, omit_defaults=True):
    """`common` counts the bytes that both bodies begin with; None where an encoder or an image is missing. `kept`: the later
    body has all of the earlier one but its closing brackets. `parting` is absent where it is kept, or not known."""

    kept: bool
    common: int | None
    parting: Parting | None = None


def compare(before: SentRequest, after: SentRequest, blobs: Mapping[str, bytes]) -> Comparison:
    """Compare a request with an earlier one."""
    dialects = [DIALECTS[sent.encoder.name] if ships_encoder(sent.encoder) else None for sent in (before, after)]
    one, other = dialects
    same_header = before.request.header is after.request.header or before.request.header == after.request.header
    if one is None or other is None:
        return Comparison(same_header and _begins_with(after, before), None)
    if one is other and same_header and after.request.history.extends(before.request.history):
        return Comparison(True, before.bytes if before.bytes == after.bytes else before.bytes - len(one.tail))
    try:
        return _compared(before, one, after, other, blobs)
    except BlobUnknownError:  # an image is gone from the store: what can be told without its bytes is told
        return Comparison(same_header and _begins_with(after, before), None)


def _compared(before: SentRequest, one: Dialect, after: SentRequest, other: Dialect, blobs: Mapping[str, bytes]) -> Comparison:
    was, now = one.encode(before.request, blobs), other.encode(after.request, blobs)
    common = common_prefix(was, now)
    if common >= len(was) - len(one.tail):
        return Comparison(True, common)
    here = segment_at(other.segments(after.request, blobs), common)
    there = segment_at(one.segments(before.request, blobs), common)
    sent, segment = (after, here) if KINDS.index(here.kind) <= KINDS.index(there.kind) else (before, there)
    node = _node_of(sent, segment.index) if segment.kind == "history" else None
    return Comparison(False, common, Parting(common, segment, excerpt(was, common), excerpt(now, common), node))


def _begins_with(after: SentRequest, before: SentRequest) -> bool:
    older, newer = before.request.history, after.request.history
    return newer.extends(older) or newer[: len(older)] == older[:]


def _node_of(sent: SentRequest, index: int | None) -> int | None:
    """Find the event that became message `index` of the history: some nodes become none."""
    seen = (node.seq for node in sent.nodes if derive_message(node) is not None)
    return next((seq for at, seq in enumerate(seen) if at == index), None)
