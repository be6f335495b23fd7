"""Owns the request for a summary: what a compaction asks its model, from what its `compact/start` recorded.

It replays the header in force and the region's messages as they were sent before, and puts its instructions last: so a
provider finds nearly all of it in its cache. Pure; `rebuild.py` says for which compaction of a log it is made.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.events import CompactStart, Event
from refold_protocol.session.header import canonical_header
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Message, text_content
from refold_protocol.session.projection import derive_message
from refold_protocol.session.request import Request
from refold_protocol.session.surface import EMPTY_SURFACE, Surface, positions_of
from refold_protocol.session.tape import Tape


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
    return Request(canonical_header(replace(header, config=asked.start.config)), Tape(messages))
