"""Way between an event and its JSON line, and the rules of the envelope.

A line is written once, when the writer accepts the event, and never again: reading back, forking, exporting and sending
all use those bytes. `seal` is the only maker of lines, `decode_event` the only reader. Never looks at earlier events.

Digest chain: one SHA-256 per event, over the one before and the event's exact line.

d(−1) = SHA-256("refold log 0") for every session; d(n) = SHA-256(d(n−1) ‖ line). It runs per event, so how lines are
grouped in a store never matters, and a fork goes on from its parent's digest. It shows accidents and truncation, not an
attacker who rewrites everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from math import isfinite
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from refold_protocol.errors import InvalidEventError, InvalidJsonError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.json_text import JsonText, check_json
from refold_protocol.session.event_data import TURN_ENDS
from refold_protocol.session.events import (
    EVENT_TYPES,
    SURFACE_TYPES,
    TYPE_OF_DATA,
    AssistantChunk,
    AssistantMessage,
    CompactStart,
    ContextMessage,
    Draft,
    Event,
    EventData,
    ForeignData,
    RequestHeader,
    RequestHeaderDelta,
    SeqRange,
    SurfaceOp,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    is_readable,
    plugin_of,
)
from refold_protocol.session.messages import CallConfig, Message, ToolSchema

CHUNK: Final = b'{"type":"assistant/chunk",'
"""How the line of a chunk begins, as `seal` writes it. A line of other origin may begin in another way. Where a reader asked
for no chunks it stands for a whole line, of which nothing else is known."""


class _Written(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    type: str
    seq: int
    time: int
    data: Any
    surface_op: SurfaceOp | None = None
    sources: tuple[SeqRange, ...] | None = None
    ignorable: bool = False


class _Read(Struct, frozen=True, gc=False, rename="camel"):
    type: str
    seq: Annotated[int, Meta(ge=0)]
    time: int
    data: Raw
    surface_op: SurfaceOp | None = None
    sources: tuple[SeqRange, ...] | None = None
    ignorable: bool = False


def seal(draft: Draft, seq: int, now: int) -> Event:
    """Make the event that `draft` becomes at position `seq`, at `now` (Unix epoch ms) unless the draft has a time.

    The event is the decoded form of its own line, so that a live fold sees exactly what a later reader sees. Raises
    InvalidEventError when the envelope breaks a rule or the data is not lossless JSON; nothing else has happened then.
    """
    data = draft.data
    name = _type_name(draft)
    row = EVENT_TYPES.get(name)
    ignorable = draft.ignorable or (row is not None and row.ignorable)
    check_envelope(name, draft.surface_op, draft.sources, seq)
    time = now if draft.time is None else draft.time
    _check_opaque(name, data)
    try:
        payload: Any = Raw(_one_line(data.json).encode()) if isinstance(data, ForeignData) else data
        line = _ENCODER.encode(_Written(name, seq, time, payload, draft.surface_op, draft.sources, ignorable))
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidEventError(f"{name}: not lossless JSON: {error}", seq=seq) from None
    if type(data) is AssistantChunk:  # the hot path: made by our own decoders, immutable and typed already
        return Event(name, seq, time, data, draft.surface_op, draft.sources, ignorable, line)
    try:
        return decode_event(line)
    except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
        raise InvalidEventError(f"{name}: {error.message}", seq=seq) from None


def decode_event(line: bytes) -> Event:
    """Read one event from its line (without the line break).

    A type that is not in the vocabulary gives ForeignData, whether or not it may be skipped: see `refuse_foreign`.
    Raises SessionCorruptionError for a line that is no event, or whose data is not of its type, SessionFormatUnsupportedError
    for data or a surface op with a kind of chunk, block, op or the like that is not known.
    """
    try:
        read = _DECODER.decode(line)
        decoder = _DATA_DECODERS.get(read.type)
        if decoder is None:
            data: EventData = ForeignData(JsonText(bytes(read.data).decode()))
        else:
            data = decoder(read.data)
    except msgspec.ValidationError as error:
        if str(error).startswith(_UNKNOWN_VALUES):
            raise SessionFormatUnsupportedError(
                f"an event has a part that this release does not know ({error}); a later release wrote it, so open the session "
                f"with that. The line begins {line[:80]!r}"
            ) from None
        raise SessionCorruptionError(f"not an event: {error}; the line begins {line[:80]!r}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SessionCorruptionError(f"not an event: {error}; the line begins {line[:80]!r}") from None
    return Event(read.type, read.seq, read.time, data, read.surface_op, read.sources, read.ignorable, line)


def decode_at(line: bytes, seq: int) -> Event:
    """Read the event that stands at `seq` of its log. Raises what `decode_event` raises, with that `seq`, and
    SessionCorruptionError for an event that says another place."""
    try:
        event = decode_event(line)
    except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
        raise type(error)(f"event {seq}: {error.message}", seq=seq) from None
    if event.seq != seq:
        raise SessionCorruptionError(f"event {seq} calls itself {event.seq}", seq=seq)
    return event


def check_envelope(name: str, op: SurfaceOp | None, sources: tuple[SeqRange, ...] | None, seq: int) -> None:
    """Raise InvalidEventError, with the seq, for a surface op on an event that is none of the surface, for one that lacks it,
    and for sources that are not earlier, ascending and disjoint."""
    if name in SURFACE_TYPES:
        if op is None:
            raise InvalidEventError(f"event {seq} ({name}) is of a surface type and needs a surfaceOp", seq=seq)
    elif op is not None:
        raise InvalidEventError(f"event {seq} ({name}) is not of a surface type and takes no surfaceOp", seq=seq)
    after = -1
    for first, last in sources or ():
        if not after < first <= last < seq:
            rule = f"sources must be ascending, disjoint and before {seq}: {sources!r}"
            raise InvalidEventError(f"event {seq} ({name}): {rule}", seq=seq)
        after = last


def refuse_foreign(event: Event) -> None:
    """Raise SessionFormatUnsupportedError for an event of a foreign type that is not marked ignorable, unless a plugin of
    this process brought the type (`foreign.py`).

    A reader that derives anything from a log calls this for each event: without the mark it must refuse, not guess.
    """
    if isinstance(event.data, ForeignData) and not event.ignorable and not is_readable(event.type):
        plugin = plugin_of(event.type)
        missing = "" if plugin is None else f" The plugin {plugin!r} is missing, or this release is too old."
        raise SessionFormatUnsupportedError(
            f"event {event.seq} has the type {event.type!r}, which this release does not know and which is not marked "
            f"ignorable; open the session with the release or the plugin that wrote it.{missing}",
            seq=event.seq,
        )


def line_type(line: bytes) -> str:
    """Give the type of a line written by `seal` without decoding the rest; decodes lines of other origin."""
    if line.startswith(CHUNK):  # most lines are
        return "assistant/chunk"
    if line.startswith(b'{"type":"'):
        end = line.find(b'"', 9)
        name = line[9:end]
        if end > 0 and name.isascii() and b"\\" not in name:
            return name.decode()
    return decode_event(line).type


def _type_name(draft: Draft) -> str:
    known = TYPE_OF_DATA.get(type(draft.data))
    if known is not None:
        if draft.type is not None and draft.type != known:
            raise InvalidEventError(f"data of {known} under the type {draft.type!r}")
        return known
    if not isinstance(draft.data, ForeignData) or not draft.type:
        raise InvalidEventError("a draft needs data of the vocabulary, or a type and foreign data")
    if draft.type in EVENT_TYPES:
        raise InvalidEventError(f"{draft.type} belongs to the vocabulary and takes its own data")
    return draft.type


def _one_line(text: JsonText) -> str:
    """Put spaces for line breaks: in valid JSON they stand between tokens only, and a line must not hold any."""
    return text.replace("\r", " ").replace("\n", " ")


def _check_opaque(name: str, data: EventData) -> None:
    opaque = _OPAQUE.get(type(data))
    if opaque is None:
        return
    for value in opaque(data):
        if isinstance(value, float) and not isfinite(value):  # msgspec would write null
            raise InvalidEventError(f"{name}: not lossless JSON: {value} is not a number")
        if isinstance(value, str):
            try:
                check_json(value)
            except InvalidJsonError as error:
                raise InvalidEventError(f"{name}: opaque JSON: {error.message}") from None


def _of_config(config: CallConfig | None) -> tuple[object, ...]:
    return () if config is None else (config.dialect_options, config.extra, config.temperature, config.top_p)


def _of_messages(messages: Iterable[Message | AssistantMessage] | None) -> tuple[object, ...]:
    return tuple(message.replay.data for message in messages or () if message.replay is not None)


def _of_tools(tools: Iterable[ToolSchema] | None) -> tuple[object, ...]:
    return tuple(tool.parameters for tool in tools or ())


def _of_header(data: RequestHeader) -> tuple[object, ...]:
    header = data.header
    return (*_of_config(header.config), *_of_tools(header.tools), *_of_messages(header.message_prefix))


def _of_delta(data: RequestHeaderDelta) -> tuple[object, ...]:
    tools = () if data.tools is None else (*data.tools.changed, *data.tools.added)
    return (*_of_config(data.config), *_of_tools(tools), *_of_messages(data.message_prefix))


_OPAQUE: Final[dict[type, Callable[[Any], tuple[object, ...]]]] = {
    ForeignData: lambda data: (data.json,),
    ToolResult: lambda data: (data.meta,),
    TurnEnd: lambda data: (data.reason.payload,),
    ContextMessage: lambda data: (data.meta,),
    AssistantMessage: lambda data: _of_messages((data,)),
    CompactStart: lambda data: _of_config(data.config),
    RequestHeader: _of_header,
    RequestHeaderDelta: _of_delta,
}
"""What the encoder would not check by itself, for each struct of data that has any: opaque JSON text, and floats."""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Read)
_UNKNOWN_VALUES: Final = ("Invalid value ", "Invalid enum value ")
"""How errors of msgspec begin that say that a tag or a word is none of those which are known."""


class _TurnEnd(Struct, frozen=True, gc=False):
    turn: int
    reason: Raw


class _Kind(Struct, frozen=True, gc=False):
    kind: str


class _ForeignEnd(Struct, frozen=True, gc=False):
    kind: str
    reason: Any = None
    payload: Any = None


def _turn_end(text: Raw) -> TurnEnd:
    """Read a `turn/end`. Of a kind that is not ours no member need have the type that ours have."""
    read = _TURN_END.decode(text)
    if _KIND.decode(read.reason).kind in TURN_ENDS:
        return TurnEnd(read.turn, _REASON.decode(read.reason))
    foreign = _FOREIGN_END.decode(read.reason)
    reason = foreign.reason if isinstance(foreign.reason, str) else None
    payload = JsonText(foreign.payload) if isinstance(foreign.payload, str) else None
    return TurnEnd(read.turn, TurnEndReason(foreign.kind, reason=reason, payload=payload))


_TURN_END: Final = msgspec.json.Decoder(_TurnEnd)
_KIND: Final = msgspec.json.Decoder(_Kind)
_FOREIGN_END: Final = msgspec.json.Decoder(_ForeignEnd)
_REASON: Final = msgspec.json.Decoder(TurnEndReason)
_DATA_DECODERS: Final[Mapping[str, Callable[[Raw], Any]]] = {
    name: msgspec.json.Decoder(row.data).decode for name, row in EVENT_TYPES.items()
} | {TYPE_OF_DATA[TurnEnd]: _turn_end}


CHAIN_START: Final = sha256(b"refold log 0").digest()
"""The digest before the first event: 32 bytes."""


def chain_step(digest: bytes, line: bytes) -> bytes:
    """Give d(n) from d(n−1) (32 bytes) and the n-th line (no line break): 32 bytes."""
    return sha256(digest + line).digest()


def chain(lines: Iterable[bytes], start: bytes = CHAIN_START) -> bytes:
    """Give the digest after all `lines`, going on from `start`."""
    for line in lines:
        start = chain_step(start, line)
    return start
