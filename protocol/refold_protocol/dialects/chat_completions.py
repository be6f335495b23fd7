"""The chat-completions dialect: OpenAI's wire form, which most servers speak; from a Request to the bytes of a body.

A function of the request and nothing else. Order: model, stream, scalars, tools, extra members, and the messages last, so
that the body of a longer history begins with the bytes of the shorter one up to its closing brackets. Each tool result is a
message of its own. Thinking is not sent. What a message becomes depends on the message and the header; where the options ask
for roles in turn, also on what stands before it (`messages_in_turn`). Any change of any byte of a recorded header's body
raises `ENCODER.version`; a new way to write is a new option, and a header that lacks it means the old way.

Also here: the cutting of a body into named segments, and the dialect's row. Streams are read in `chat_completions_stream`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec
from msgspec import Raw, Struct

from refold_protocol.dialects.chat_completions_options import (
    Options,
    check_extra,
    extra_members,
    read_options,
    resolve_options,
    takes_text_calls,
)
from refold_protocol.dialects.chat_completions_stream import ChatCompletionsDecoder
from refold_protocol.dialects.dialect import Dialect
from refold_protocol.dialects.growing_body import Body, BodyFragments, Segment
from refold_protocol.dialects.messages_in_turn import MessagesInTurn, Part, Spoken, ends_open, safe_id, safe_name
from refold_protocol.errors import BlobUnknownError
from refold_protocol.json_text import is_json_object
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import EncoderId
from refold_protocol.session.messages import (
    Block,
    CallConfig,
    EpochHeader,
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    text_of,
)
from refold_protocol.session.request import Request

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
        self._messages = MessagesInTurn(self._fragments, in_turn=False)

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
        self._messages = MessagesInTurn(self._fragments, in_turn=self._options.in_turn)
        self._add(header.message_prefix or (), blobs)

    def _add(self, messages: Iterable[Message], blobs: Mapping[str, bytes]) -> None:
        for message in messages:
            self._messages.add(wire_messages(message, self._options, blobs))


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
    return [] if header.system is None else [_json(Spoken("system", header.system))]


def wire_messages(message: Message, options: Options, blobs: Mapping[str, bytes]) -> Iterator[Struct]:
    """Give what one message becomes: a `tool` message for each result in it, then itself if anything else is in it."""
    if message.role == "assistant":
        yield from _reply(message.content, options)
        return
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    for result in results:
        text = _result_text(result)
        yield _ResultBody(
            "tool", _id(result.tool_call_id, options), text if text.strip() or not options.in_turn else "(no output)"
        )
    rest = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
    if rest or not results:
        yield Spoken(message.role, _content(rest, blobs))


class _ResultBody(Struct, frozen=True):
    role: str
    tool_call_id: str
    content: str


class _Reply(Struct, frozen=True, omit_defaults=True):
    role: str
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    tool_calls: list[_CallBody] | None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


class _Function(Struct, frozen=True):
    name: str
    arguments: str


class _CallBody(Struct, frozen=True):
    id: str
    type: str
    function: _Function


def _reply(content: tuple[Block, ...], options: Options) -> Iterator[Struct]:
    """A reply of thinking alone becomes nothing: servers refuse a message without content."""
    text = text_of(content)
    thought = "" if options.reasoning_history == "omit" else _reasoning_of(content)
    calls = [block for block in content if isinstance(block, ToolCallBlock)]
    if options.in_turn and not text.strip():
        text = ""
    if thought and options.reasoning_history == "tags" and (text or calls):
        text, thought = f"<think>\n{thought}\n</think>\n\n{text}", ""
    field = thought or msgspec.UNSET
    if calls and not text:
        nothing = {"null": None, "empty": "", "absent": msgspec.UNSET}[options.tool_only_content]
        yield _Reply("assistant", nothing, [_call(block, options) for block in calls], field)
    elif text:
        yield _Reply("assistant", text, [_call(block, options) for block in calls] or None, field)


def _reasoning_of(content: tuple[Block, ...]) -> str:
    return "".join(block.text for block in content if isinstance(block, ReasoningBlock))


def _id(name: str, options: Options) -> str:
    return safe_id(name) if options.call_ids == "nine" else name


def _call(block: ToolCallBlock, options: Options) -> _CallBody:
    """Servers answer for ever with an error to a history whose arguments are no object: such a text is sent as `{}`."""
    arguments = block.arguments if is_json_object(block.arguments) else "{}"
    name = safe_name(block.name) if options.tool_names == "safe" else block.name
    return _CallBody(_id(block.id, options), "function", _Function(name, arguments))


def _content(blocks: tuple[Block, ...], blobs: Mapping[str, bytes]) -> str | list[Part]:
    if not any(isinstance(block, ImageBlock) for block in blocks):
        return text_of(blocks)
    parts: list[Part] = []
    for block in blocks:
        if isinstance(block, ImageBlock):
            parts.append(Part("image_url", image_url={"url": _data_url(block, blobs)}))
        elif isinstance(block, TextBlock):
            parts.append(Part("text", text=block.text))
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
    yield "stream", options.stream
    yield "stream_options", {"include_usage": True} if options.include_usage and options.stream else None
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
    written = MessagesInTurn(fragments, in_turn=options.in_turn)
    for kind, messages in (("prefix", request.header.message_prefix or ()), ("history", request.history)):
        for index, message in enumerate(messages):
            start = fragments.length
            written.add(wire_messages(message, options, blobs))
            if fragments.length > start:
                found.append(Segment(kind, start, fragments.length, index))
    found.append(Segment("tail", fragments.length, fragments.length + len(fragments.closing) + len(TAIL)))
    return tuple(found)


def moved_end(before: Request, after: Request) -> int:
    """Count the bytes at the end of the body of `before` that a body of a longer history has further back: the closing
    brackets, and those of the last message where the next one continues it."""
    options = read_options(after.header.config.dialect_options)
    count = len(before.history)
    if not options.in_turn or len(after.history) <= count:
        return len(TAIL)
    latest_first = chain((before.history[at] for at in range(count - 1, -1, -1)), reversed(before.header.message_prefix or ()))
    return len(TAIL) + ends_open(latest_first, after.history[count])


CHAT_COMPLETIONS: Final = Dialect(
    encoder=ENCODER,
    encode=encode,
    segments=segments,
    moved_end=moved_end,
    make_encoder=ChatCompletionsEncoder,
    make_decoder=ChatCompletionsDecoder,
    resolve_options=resolve_options,
    check_extra=check_extra,
    text_calls=takes_text_calls,
    path="/chat/completions",
    key_header="authorization",
    key_prefix="Bearer ",
    headers=(("content-type", "application/json"), ("accept", "text/event-stream")),
)
"""This dialect's row of the table."""
