"""Owns the cutting of a chat-completions body into named segments.

Every byte comes from the functions that make the body (`chat_completions_encode`); here is only counted where each part
begins. Never encodes anything itself, and never looks into a body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from refold_protocol.dialects.body import BodyFragments
from refold_protocol.dialects.chat_completions_encode import TAIL, head_members, message_pieces, system_pieces
from refold_protocol.dialects.chat_completions_options import Options, read_options
from refold_protocol.dialects.segments import Segment
from refold_protocol.session.messages import Message
from refold_protocol.session.request import Request


def segments(request: Request, blobs: Mapping[str, bytes]) -> tuple[Segment, ...]:
    """Give the segments of the body of `request`, in order: they tile it. See Dialect.segments.

    Members of the head and tools are named, and hold the separator before them. A message holds its comma; one that
    becomes nothing in this dialect has no segment.
    """
    options = read_options(request.header.config.dialect_options)
    found: list[Segment] = []
    end, tools = 0, 0
    for member in head_members(request.header, options):
        start, end = end, end + len(member.text)
        index = tools if member.kind == "tools" else None
        tools += member.kind == "tools"
        found.append(Segment(member.kind, start, end, index, member.name))
    fragments = BodyFragments(bytes(end))
    fragments.add(system_pieces(request.header))
    if fragments.length > end:
        found.append(Segment("system", end, fragments.length))
    _add(found, fragments, "prefix", request.header.message_prefix or (), options, blobs)
    _add(found, fragments, "history", request.history, options, blobs)
    found.append(Segment("tail", fragments.length, fragments.length + len(TAIL)))
    return tuple(found)


def _add(
    found: list[Segment],
    fragments: BodyFragments,
    kind: str,
    messages: Iterable[Message],
    options: Options,
    blobs: Mapping[str, bytes],
) -> None:
    for index, message in enumerate(messages):
        start = fragments.length
        fragments.add(message_pieces(message, options, blobs))
        if fragments.length > start:
            found.append(Segment(kind, start, fragments.length, index))
