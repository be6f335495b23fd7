"""Owns the types of a request's non-historical part: the epoch header, its call config, its tools, and its delta.

The functions on them are in `header.py`; here are only shapes, so that events can name them.
"""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import Message


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
