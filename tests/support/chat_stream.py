"""Writing of chat-completions streams for tests, in the notation of the failure cases: events, chunks, calls.

Whoever plays a provider builds its answer from these pieces and joins or cuts the bytes as it likes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from refold_protocol.dialects.chat_completions import ChatCompletionsDecoder
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, UsageChunk

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""


def event(value: Any) -> bytes:
    """Give one event whose data is `value` as compact JSON; non-ASCII characters stay as they are."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, **members: Any) -> bytes:
    """Give one event of a reply: its first choice's `delta` and finish reason, and further members of the event."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return event({"id": "k", "object": "chat.completion.chunk", "choices": choices, **members})


def text(content: str) -> bytes:
    """Give one event that adds text."""
    return chunk({"content": content})


def call(index: int | None, id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:  # noqa: A002
    """Give one entry of `delta.tool_calls`; None leaves a field out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {**entry, "function": function}


def calls(*entries: dict[str, Any]) -> bytes:
    """Give one event for each entry, in order."""
    return b"".join(chunk({"tool_calls": [entry]}) for entry in entries)


def reply(content: str) -> bytes:
    """Give a whole stream that says `content` and stops."""
    return text(content) + chunk({}, "stop") + DONE


def decode(*writes: bytes, cut: bool = False) -> list[Chunk]:
    """Decode a stream that arrives in these pieces. Raises the ProviderError that it ends with, if it does."""
    chunks, failure = decode_until_failure(*writes, cut=cut)
    if failure is not None:
        raise failure
    return chunks


def decode_until_failure(*writes: bytes, cut: bool = False) -> tuple[list[Chunk], ProviderError | None]:
    """Decode as `decode` does, and give what was delivered together with what it failed with."""
    decoder = ChatCompletionsDecoder()
    chunks: list[Chunk] = []
    try:
        for write in writes:
            chunks += decoder.feed(write)
        chunks += decoder.close(cut=cut)
    except ProviderError as error:  # the outcome that a test looks at
        return chunks, error
    return chunks, decoder.failure


def text_in(chunks: Iterable[Chunk]) -> str:
    """Join the text deltas."""
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def reasoning_in(chunks: Iterable[Chunk]) -> str:
    """Join the reasoning deltas."""
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta))


def arguments_in(chunks: Iterable[Chunk], index: int) -> str:
    """Join the arguments of the call at block `index`."""
    return "".join(chunk.arguments for chunk in chunks if isinstance(chunk, ToolCallDelta) and chunk.index == index)


def usage_in(chunks: Iterable[Chunk]) -> list[UsageChunk]:
    """Give the usage chunks."""
    return [chunk for chunk in chunks if isinstance(chunk, UsageChunk)]
