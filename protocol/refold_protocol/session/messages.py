"""Content blocks, messages, stream chunks and token usage: the words that events and requests are made of.

All are frozen structs of tuples, scalars and JSON text, so nothing that was recorded can be changed through a reference.
Names on the wire are camelCase; tags stand in `type`. Knows nothing of events, sessions or providers.

Types of a request's non-historical part: the epoch header, its call config, its tools, and its delta.

The functions on them are in `header.py`; here are only shapes, so that events can name them.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from refold_protocol.json_text import JsonText


class Source(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who caused something. `kind` is `client`, `cli`, `plugin`, `tool`, `file`, `loop` or `closer`; the set is open."""

    kind: str
    name: str | None = None


class TextBlock(Struct, frozen=True, gc=False, tag="text"):
    """Text that the model reads or writes."""

    text: str


class ReasoningBlock(Struct, frozen=True, gc=False, tag="reasoning"):
    """The model's visible thinking. Recorded always; sent back only by dialects that ask for it."""

    text: str


class ImageBlock(Struct, frozen=True, gc=False, tag="image", rename="camel"):
    """An image; `blob` is the SHA-256 of its bytes in lower-case hex."""

    media_type: str
    blob: str


class ToolCallBlock(Struct, frozen=True, gc=False, tag="tool-call"):
    """A call that the model asks for. `arguments` is the model's own text, which need not be valid JSON."""

    id: str
    name: str
    arguments: str


ResultBlock: TypeAlias = TextBlock | ImageBlock
"""What a tool can answer with."""


class ToolResultBlock(Struct, frozen=True, gc=False, tag="tool-result", rename="camel"):
    """The answer to a call, inside a user message."""

    tool_call_id: str
    content: tuple[ResultBlock, ...]
    is_error: bool


Block: TypeAlias = TextBlock | ReasoningBlock | ImageBlock | ToolCallBlock | ToolResultBlock
"""Any content block."""

InputBlock: TypeAlias = TextBlock | ImageBlock
"""What a person or a client can send."""


class Replay(Struct, frozen=True, gc=False):
    """What an adapter needs to send a reply back to the very provider and model that made it (say, thinking signatures)."""

    provider: str
    model: str
    data: JsonText


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One message of a request. `role` is `system`, `user` or `assistant`; tool results are blocks of user messages."""

    role: str
    content: tuple[Block, ...]
    replay: Replay | None = None


MOST_TOKENS: Final = 2**53 - 1
"""The largest count of tokens that can be recorded."""


class Usage(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Tokens of one call, in disjoint buckets. An absent bucket is unknown, which is not zero.

    `input_tokens` counts what was neither read from nor written to a cache. `reasoning_tokens` is part of
    `output_tokens` already and only informs.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def is_possible(self) -> bool:
        """Whether each bucket is a count: none is below 0, none is more than every reader of JSON keeps exactly."""
        buckets = (getattr(self, name) for name in self.__struct_fields__)
        return all(bucket is None or 0 <= bucket <= MOST_TOKENS for bucket in buckets)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt: uncached, read from and written to the cache."""
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def total_tokens(self) -> int:
        """Prompt and output together; reasoning is not added again."""
        return self.prompt_tokens + self.output_tokens


class BlockStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="block-start"):
    """A block opens at `index`; `block` is `text`, `reasoning` or `tool-call`. `id` and `name` belong to tool calls."""

    index: int
    block: str
    id: str | None = None
    name: str | None = None


class TextDelta(Struct, frozen=True, gc=False, tag="text-delta"):
    """More text of the block at `index`."""

    index: int
    text: str


class ReasoningDelta(Struct, frozen=True, gc=False, tag="reasoning-delta"):
    """More thinking of the block at `index`."""

    index: int
    text: str


class ToolCallDelta(Struct, frozen=True, gc=False, tag="tool-call-delta"):
    """More of the arguments' text of the call at `index`."""

    index: int
    arguments: str


class BlockEnd(Struct, frozen=True, gc=False, tag="block-end"):
    """The block at `index` is complete."""

    index: int


class UsageChunk(Struct, frozen=True, gc=False, tag="usage"):
    """The call's usage as known so far; a later one replaces it."""

    usage: Usage


class FinishChunk(Struct, frozen=True, gc=False, omit_defaults=True, tag="finish"):
    """The end of a reply. `reason` is `stop`, `length`, `tool-calls`, `content-filter`, `refusal`, `pause` (for a tool of
    the provider's own), `aborted` (the provider gave up) or `other`; `raw` is the provider's own word where it is another
    one."""

    reason: str
    raw: str | None = None


Chunk: TypeAlias = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | FinishChunk
"""One decoded piece of a provider's stream."""


def text_of(content: tuple[Block, ...]) -> str:
    """Join the text blocks of `content` by line breaks; other blocks are left out."""
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def text_content(text: str) -> tuple[TextBlock]:
    """Give content that holds `text` alone."""
    return (TextBlock(text),)


def encode_compact(value: object) -> bytes:
    """Write a struct as compact JSON: fields in declared order, absent ones omitted. Text must be valid Unicode."""
    return _ENCODER.encode(value)


_ENCODER = msgspec.json.Encoder()


class CallConfig(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Everything beside system, tools and messages that can change a byte of a body. Closed: nothing else reaches an encoder.

    `dialect` names the encoder. `dialect_options` holds its resolved settings as canonical JSON text, `extra` an object
    that is merged into the body. Base address, credentials, proxies and HTTP headers are no part of a request.
    """

    provider: str
    model: str
    dialect: str
    dialect_options: JsonText | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    reasoning_effort: str | None = None
    extra: JsonText | None = None


class ToolSchema(Struct, frozen=True, gc=False):
    """A tool as the model sees it; `parameters` is its JSON Schema as text."""

    name: str
    description: str
    parameters: JsonText


class EpochHeader(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The state of a request that is not history. Compared by value on every step."""

    config: CallConfig
    system: str | None = None
    tools: tuple[ToolSchema, ...] | None = None
    message_prefix: tuple[Message, ...] | None = None


class SystemDelta(Struct, frozen=True, gc=False, rename="camel"):
    """A change of the system text by lines, split at `\\n` only: leading lines kept, lines put in, trailing lines kept."""

    keep_start: int
    insert: tuple[str, ...]
    keep_end: int


class ToolsDelta(Struct, frozen=True, gc=False):
    """A change of the tools by name: removed, changed in their place, added at the end."""

    removed: tuple[str, ...]
    changed: tuple[ToolSchema, ...]
    added: tuple[ToolSchema, ...]
