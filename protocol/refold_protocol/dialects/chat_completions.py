"""Owns the settings of the chat-completions dialect, and what a user may merge into its bodies.

Settings reach the encoder by one way only, as canonical text in the recorded header, so that a changed configuration
never makes an old log unprovable. The functions here run when configuration is read; they never see a request.

Owns the way from a Request to the bytes of a chat-completions body. A function of the request and nothing else.

Order: model, stream, scalars, tools, extra members, and the messages last, so that the body of a longer history begins
with the bytes of the shorter one up to its closing brackets. What a message becomes depends on the message and the
header, never on its place. Messages are not grouped; each tool result is a message of its own. Thinking is not sent.

Any change of any byte raises `ENCODER.version`.

Owns the cutting of a chat-completions body into named segments.

Every byte comes from the functions that make the body (`chat_completions_encode`); here is only counted where each part
begins. Never encodes anything itself, and never looks into a body.

The chat-completions dialect: OpenAI's wire form, which most servers speak. This is its public face.

Never sends or receives. The parts: `chat_completions_options` (settings), `_encode` (Request to body), `_segments` (the
names of a body's parts), `_decode` (stream to chunks) over `_blocks` (which delta belongs where) and `_wire` (JSON shapes).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from refold_protocol.dialects.chat_completions_stream import ChatCompletionsDecoder
from refold_protocol.dialects.dialect import Dialect
from refold_protocol.dialects.growing_body import Body, BodyFragments, Segment
from refold_protocol.errors import BlobUnknownError, ConfigError, InvalidJsonError
from refold_protocol.json_text import JsonText, is_json_object, parse_strict
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import EncoderId
from refold_protocol.session.messages import (
    Block,
    CallConfig,
    EpochHeader,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    text_of,
)
from refold_protocol.session.request import Request

RESERVED: Final[frozenset[str]] = frozenset({"messages", "model", "stream", "tools"})
"""Members of a body that only the encoder writes. For others, a member of `extra` takes the encoder's one's place."""


class Options(Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """What servers of this dialect differ in.

    `max_tokens_field` is the name under which the output limit is sent. `tool_only_content` is what `content` is in a
    reply of calls alone: null, an empty string, or no member at all; each is refused by some server. `include_usage`
    asks for the token usage at the end of a stream.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    tool_only_content: Literal["null", "empty", "absent"] = "null"
    include_usage: bool = True


def resolve_options(settings: Mapping[str, object]) -> JsonText:
    """Give the canonical text of the options: every field, in declared order, defaults filled in.

    Keys may be spelled as in TOML (`max_tokens_field`) or as in JSON (`maxTokensField`). Raises ConfigError for unknown
    keys and for values that are not allowed.
    """
    try:
        options = msgspec.convert({_camel(key): value for key, value in settings.items()}, Options)
    except msgspec.ValidationError as error:
        raise ConfigError("options", str(error)) from None
    return JsonText(msgspec.json.encode(options).decode())


def read_options(text: JsonText | None) -> Options:
    """Read what `resolve_options` wrote; None gives the defaults. Raises ConfigError for a text of another release."""
    if text is None:
        return Options()
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError("options", f"recorded options that this encoder cannot follow: {error}") from None


def check_extra(text: str) -> JsonText:
    """Accept the text of an object to be merged into bodies. Raises ConfigError when it is none, or when it redefines a
    member that only the encoder writes."""
    try:
        value = parse_strict(text)
    except InvalidJsonError as error:
        raise ConfigError("extra", f"not JSON: {error.message}") from None
    if not isinstance(value, dict):
        raise ConfigError("extra", "must be an object")
    for name in sorted(RESERVED):
        if name in value:
            raise ConfigError("extra", f"may not set {name!r}, which refold writes itself")
    return JsonText(text)


def extra_members(text: JsonText | None) -> tuple[frozenset[str], bytes]:
    """Give the names of an extra object's members, and its members as JSON without the braces (empty for none)."""
    if text is None:
        return frozenset(), b""
    names = frozenset(parse_strict(text))
    return names, text.strip()[1:-1].strip().encode()


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


_DECODER: Final = msgspec.json.Decoder(Options)


ENCODER: Final = EncoderId("chat-completions", 1)
"""Name and version of this encoder."""

TAIL: Final = b"]}"
"""What closes a body behind its last message."""


def encode(request: Request, blobs: Mapping[str, bytes]) -> bytes:
    """Give the body of one request, encoded from nothing. Raises BlobUnknownError for an image whose bytes are missing."""
    return ChatCompletionsEncoder().encode(request, blobs).data


class ChatCompletionsEncoder:
    """Encodes the requests of one session; of a history that grew, only what is new."""

    def __init__(self) -> None:
        self._header: EpochHeader | None = None
        self._history: AppendOnlyList[Message] = AppendOnlyList()
        self._options = Options()
        self._fragments = BodyFragments()

    def encode(self, request: Request, blobs: Mapping[str, bytes]) -> Body:
        """Give the body of `request`. Raises BlobUnknownError for a new image whose bytes are not in `blobs`; the next
        call then starts from nothing."""
        header = request.header
        known = header is self._header or header == self._header
        self._header = None  # until all new messages are in
        if not known or not request.history.extends(self._history):
            self._restart(header, blobs)
        self._add(request.history.since(len(self._history)), blobs)
        self._header = header
        self._history = request.history
        return self._fragments.finished(TAIL)

    def _restart(self, header: EpochHeader, blobs: Mapping[str, bytes]) -> None:
        self._options = read_options(header.config.dialect_options)
        self._history = AppendOnlyList()
        self._fragments = BodyFragments(b"".join(member.text for member in head_members(header, self._options)))
        self._fragments.add(system_pieces(header))
        self._add(header.message_prefix or (), blobs)

    def _add(self, messages: Iterable[Message], blobs: Mapping[str, bytes]) -> None:
        for message in messages:
            self._fragments.add(message_pieces(message, self._options, blobs))


class Member(Struct, frozen=True, gc=False):
    """A part of a body's head: `kind` is `config` or `tools`, `name` that of the member or of the tool."""

    kind: str
    name: str
    text: bytes


def head_members(header: EpochHeader, options: Options) -> Iterator[Member]:
    """Give the body up to the first message, in order and without gaps. A member of `extra` takes the place of the scalar
    of the same name."""
    names, extra = extra_members(header.config.extra)
    separator = b"{"
    for name, value in _scalars(header.config, options):
        if value is not None and name not in names:
            yield Member("config", name, separator + b'"' + name.encode() + b'":' + _json(value))
            separator = b","
    last = len(header.tools or ()) - 1
    for position, tool in enumerate(header.tools or ()):
        opening = separator + b'"tools":[' if position == 0 else b","
        yield Member("tools", tool.name, opening + _json(_tool(tool)) + (b"]" if position == last else b""))
        separator = b","
    if extra:
        yield Member("config", "extra", separator + extra)
        separator = b","
    yield Member("config", "messages", separator + b'"messages":[')


def system_pieces(header: EpochHeader) -> list[bytes]:
    """Give the message of the system text, if there is one."""
    return [] if header.system is None else [_json(_Spoken("system", header.system))]


def message_pieces(message: Message, options: Options, blobs: Mapping[str, bytes]) -> list[bytes]:
    """Give what one message becomes: none, one or several JSON objects."""
    return [_json(wire) for wire in wire_messages(message, options, blobs)]


def wire_messages(message: Message, options: Options, blobs: Mapping[str, bytes]) -> Iterator[Struct]:
    """Give what one message becomes: a `tool` message for each result in it, then itself if anything else is in it."""
    if message.role == "assistant":
        yield from _reply(message.content, options)
        return
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    for result in results:
        yield _ResultBody("tool", result.tool_call_id, _result_text(result))
    rest = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
    if rest or not results:
        yield _Spoken(message.role, _content(rest, blobs))


class _Spoken(Struct, frozen=True):
    role: str
    content: Any


class _ResultBody(Struct, frozen=True):
    role: str
    tool_call_id: str
    content: str


class _Reply(Struct, frozen=True, omit_defaults=True):
    role: str
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    tool_calls: list[_CallBody] | None = None


class _Function(Struct, frozen=True):
    name: str
    arguments: str


class _CallBody(Struct, frozen=True):
    id: str
    type: str
    function: _Function


class _Part(Struct, frozen=True, omit_defaults=True):
    type: str
    text: str | None = None
    image_url: dict[str, str] | None = None


def _reply(content: tuple[Block, ...], options: Options) -> Iterator[Struct]:
    """A reply of thinking alone becomes nothing: servers refuse a message without content."""
    text: str | msgspec.UnsetType | None = text_of(content)
    calls = [block for block in content if isinstance(block, ToolCallBlock)]
    if calls and not text:
        text = {"null": None, "empty": "", "absent": msgspec.UNSET}[options.tool_only_content]
    if calls or text:
        yield _Reply("assistant", text, [_call(block) for block in calls] or None)


def _call(block: ToolCallBlock) -> _CallBody:
    """Servers answer for ever with an error to a history whose arguments are no object: such a text is sent as `{}`."""
    arguments = block.arguments if is_json_object(block.arguments) else "{}"
    return _CallBody(block.id, "function", _Function(block.name, arguments))


def _content(blocks: tuple[Block, ...], blobs: Mapping[str, bytes]) -> str | list[_Part]:
    if not any(isinstance(block, ImageBlock) for block in blocks):
        return text_of(blocks)
    parts: list[_Part] = []
    for block in blocks:
        if isinstance(block, ImageBlock):
            parts.append(_Part("image_url", image_url={"url": _data_url(block, blobs)}))
        elif isinstance(block, TextBlock):
            parts.append(_Part("text", text=block.text))
    return parts


def _data_url(image: ImageBlock, blobs: Mapping[str, bytes]) -> str:
    data = blobs.get(image.blob)
    if data is None:
        raise BlobUnknownError(f"the bytes of an image are missing: {image.blob}")
    return f"data:{image.media_type};base64,{b64encode(data).decode()}"


def _result_text(result: ToolResultBlock) -> str:
    """The `tool` role takes text only; an image in a result is named, so that the model knows of it."""
    return "\n".join(
        block.text if isinstance(block, TextBlock) else f"[{block.media_type}, which this provider takes from users only]"
        for block in result.content
    )


def _scalars(config: CallConfig, options: Options) -> Iterator[tuple[str, object]]:
    yield "model", config.model
    yield "stream", True
    yield "stream_options", {"include_usage": True} if options.include_usage else None
    yield options.max_tokens_field, config.max_tokens
    yield "temperature", config.temperature
    yield "top_p", config.top_p
    yield "stop", config.stop or None
    yield "reasoning_effort", config.reasoning_effort


def _tool(tool: ToolSchema) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": Raw(tool.parameters.encode())}
    return {"type": "function", "function": function}


_json: Final = msgspec.json.Encoder().encode


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


CHAT_COMPLETIONS: Final = Dialect(
    encoder=ENCODER,
    encode=encode,
    segments=segments,
    tail=TAIL,
    make_encoder=ChatCompletionsEncoder,
    make_decoder=ChatCompletionsDecoder,
    resolve_options=resolve_options,
    check_extra=check_extra,
    path="/chat/completions",
    key_header="authorization",
    key_prefix="Bearer ",
    headers=(("content-type", "application/json"), ("accept", "text/event-stream")),
)
"""This dialect's row of the table."""
