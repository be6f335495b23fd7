"""Hypothesis strategies for everything that a log can hold, derived from the annotations of the structs.

A struct that is added to the vocabulary is covered from that moment on. Text prefers what breaks naive code: line breaks
that are not line breaks, quotes, halves of escapes, characters outside the BMP. Never gives lone surrogates or NaN.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NewType, TypeVar, get_args, get_origin

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.json_text import JsonText
from refold_protocol.session.event_data import TURN_ENDS
from refold_protocol.session.events import EVENT_TYPES, Draft, EventData, ForeignData, SeqRange, SurfaceOp, TurnEndReason
from refold_protocol.session.messages import Chunk, EpochHeader, Message
from tests.support.annotations import alternatives, fields, is_struct

S = TypeVar("S", bound=Struct)

AWKWARD = (
    "",
    "\n",
    "\r\n",
    "\u2028",
    "\x85",
    '"',
    "\\",
    "\\u",
    "\x00",
    "\x7f",
    "🙂",
    "那",
    "\ufeff",
    "</script>",
    "{",
    "é" * 40,
)


def texts() -> st.SearchStrategy[str]:
    """Text without lone surrogates, often awkward."""
    return (
        st.sampled_from(AWKWARD) | st.text(max_size=20) | st.builds(str.__add__, st.text(max_size=5), st.sampled_from(AWKWARD))
    )


def json_values() -> st.SearchStrategy[Any]:
    """Any lossless JSON value."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts()
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=5,
    )


@st.composite
def json_texts(draw: st.DrawFn) -> JsonText:
    """The text of a lossless JSON value as some writer might lay it out."""
    return JsonText(
        json.dumps(
            draw(json_values()),
            ensure_ascii=draw(st.booleans()),
            indent=draw(st.sampled_from((None, None, 1))),
            separators=draw(st.sampled_from((None, (",", ":"), (" , ", "\t:\r\n")))),
        )
    )


def structs(kind: type[S], opaque: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[S]:
    """Values of a struct. `opaque` replaces what stands in for opaque JSON text."""
    if opaque is None:
        return _structs(kind)
    return st.builds(kind, **{name: _values(part, opaque) for name, part in fields(kind).items()}).map(_as_recorded)


def messages() -> st.SearchStrategy[Message]:
    """Any message of a request."""
    return structs(Message)


def headers() -> st.SearchStrategy[EpochHeader]:
    """Any epoch header, canonical or not."""
    return structs(EpochHeader)


def chunks() -> st.SearchStrategy[Chunk]:
    """Any chunk of a stream."""
    return st.one_of([structs(kind) for kind in get_args(Chunk)])


def foreign_types() -> st.SearchStrategy[str]:
    """Names of event types that are not in the vocabulary."""
    return texts().filter(lambda name: name != "" and name not in EVENT_TYPES)


@st.composite
def sources(draw: st.DrawFn, seq: int) -> tuple[SeqRange, ...]:
    """Ascending, disjoint ranges of seqs below `seq`."""
    marks = sorted(draw(st.sets(st.integers(0, max(seq - 1, 0)), max_size=min(6, seq))))
    return tuple(zip(marks[::2], marks[1::2], strict=False))


@st.composite
def drafts(draw: st.DrawFn, seq: int, data: st.SearchStrategy[EventData] | None = None) -> Draft:
    """Drafts that may stand at position `seq`, of every type and of foreign ones."""
    content = draw(event_data() if data is None else data)
    foreign = isinstance(content, ForeignData)
    surface = not foreign and any(row.data is type(content) and row.surface for row in EVENT_TYPES.values())
    return Draft(
        content,
        surface_op=draw(_values(SurfaceOp, json_texts())) if surface else None,
        sources=draw(st.none() | sources(seq)),
        ignorable=draw(st.booleans()),
        type=draw(foreign_types()) if foreign else None,
        time=draw(st.none() | _COUNTS),
    )


def event_data() -> st.SearchStrategy[Any]:
    """Data of every event type, and of foreign ones."""
    return st.one_of([structs(row.data) for row in EVENT_TYPES.values()] + [structs(ForeignData)])


_COUNTS = st.integers(0, 2**53 - 1)
_SCALARS: dict[object, st.SearchStrategy[Any]] = {
    str: texts(),
    int: _COUNTS,
    float: st.floats(0.0, 4.0),
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
    type(None): st.none(),
}


@cache
def _structs(kind: type[Any]) -> st.SearchStrategy[Any]:
    built: Callable[..., st.SearchStrategy[Any]] = st.builds
    return built(kind, **{name: _values(part, json_texts()) for name, part in fields(kind).items()}).map(_as_recorded)


def _as_recorded(value: S) -> S:
    """Give a value as a reader gets it: the end of a turn in a way that is none of ours has no members of ours."""
    if isinstance(value, TurnEndReason) and value.kind not in TURN_ENDS:
        return replace(value, cause=None, error=None)
    return value


def _values(annotation: Any, opaque: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of([_value(part, opaque) for part in alternatives(annotation)])


def _value(annotation: Any, opaque: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    if annotation is JsonText:
        return opaque
    if isinstance(annotation, NewType):
        return _value(annotation.__supertype__, opaque)
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)
        if inner[-1] is Ellipsis:
            return st.lists(_values(inner[0], opaque), max_size=3).map(tuple)
        return st.tuples(*(_values(part, opaque) for part in inner))
    if is_struct(annotation):
        return structs(annotation, opaque)
    return _SCALARS[annotation]
