"""Owns the way from a Request to the bytes of a chat-completions body. A function of the request and nothing else.

Order: model, stream, scalars, tools, extra members, and the messages last, so that the body of a longer history begins
with the bytes of the shorter one up to its closing brackets. What a message becomes depends on the message and the
header, never on its place. Messages are not grouped; each tool result is a message of its own. Thinking is not sent.

Any change of any byte raises `ENCODER.version`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from refold_protocol.dialects.body import Body, BodyFragments
from refold_protocol.dialects.chat_completions_options import Options, extra_members, read_options
from refold_protocol.errors import BlobUnknownError
from refold_protocol.json_text import is_json_object
from refold_protocol.session.events import EncoderId
from refold_protocol.session.header_types import CallConfig, EpochHeader, ToolSchema
from refold_protocol.session.messages import (
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    text_of,
)
from refold_protocol.session.request import Request
from refold_protocol.session.tape import Tape

ENCODER: Final = EncoderId("chat-completions", 1)
"""Name and version of this encoder."""

TAIL: Final = b"]}"
"""What closes a body behind its last message."""


def encode(request: Request, blobs: Mapping[str, bytes]) -> bytes:
    """Give the body of one request, encoded from nothing. Raises BlobUnknownError for an image whose bytes are missing."""
    return BodyEncoder().encode(request, blobs).data


class BodyEncoder:
    """Encodes the requests of one session; of a history that grew, only what is new."""

    def __init__(self) -> None:
        self._header: EpochHeader | None = None
        self._history: Tape[Message] = Tape()
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
        self._history = Tape()
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
        yield _Result("tool", result.tool_call_id, _result_text(result))
    rest = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
    if rest or not results:
        yield _Spoken(message.role, _content(rest, blobs))


class _Spoken(Struct, frozen=True):
    role: str
    content: Any


class _Result(Struct, frozen=True):
    role: str
    tool_call_id: str
    content: str


class _Reply(Struct, frozen=True, omit_defaults=True):
    role: str
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    tool_calls: list[_Call] | None = None


class _Function(Struct, frozen=True):
    name: str
    arguments: str


class _Call(Struct, frozen=True):
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


def _call(block: ToolCallBlock) -> _Call:
    """Servers answer for ever with an error to a history whose arguments are no object: such a text is sent as `{}`."""
    arguments = block.arguments if is_json_object(block.arguments) else "{}"
    return _Call(block.id, "function", _Function(block.name, arguments))


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
