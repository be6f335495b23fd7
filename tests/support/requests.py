"""Strategies and examples of requests: headers and histories that an encoder may meet.

Unlike the strategies that follow the annotations, these keep the rules of recorded data: options that some release wrote,
`extra` that is an object, images whose bytes exist.
"""

from __future__ import annotations

import json
from typing import Final

from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.dialects.chat_completions import resolve_options
from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
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
    text_content,
)
from refold_protocol.session.request import Request
from tests.support.strategies import json_texts, texts

PNG: Final = "0f" * 32
"""The digest of an image."""

BLOBS: Final = {PNG: b"\x89PNG"}
"""Its bytes, far too few to be one."""


def user(text: str) -> Message:
    """Give a user's message."""
    return Message("user", text_content(text))


def header(system: str | None = None, tools: tuple[ToolSchema, ...] | None = None) -> EpochHeader:
    """Give a plain header of the chat-completions dialect."""
    return EpochHeader(CallConfig("p", "m", "chat-completions"), system, tools)


def request(*messages: Message) -> Request:
    """Give a request with a plain header."""
    return Request(header(), AppendOnlyList(messages))


def messages() -> st.SearchStrategy[Message]:
    """Messages of users and replies, with every kind of block in its place."""
    plain = st.builds(TextBlock, texts()) | st.just(ImageBlock("image/png", PNG))
    result = st.builds(ToolResultBlock, texts(), st.lists(plain, max_size=2).map(tuple), st.booleans())
    call = st.builds(ToolCallBlock, texts(), texts(), texts() | json_texts())
    said = st.builds(TextBlock, texts()) | st.builds(ReasoningBlock, texts()) | call
    return _spoken("user", plain | result) | _spoken("assistant", said) | _spoken("system", st.builds(TextBlock, texts()))


def history(max_size: int = 6) -> st.SearchStrategy[list[Message]]:
    """Histories, paired or not."""
    return st.lists(messages(), max_size=max_size)


@st.composite
def headers(draw: st.DrawFn, roles: tuple[str, ...] = ("as-they-come", "in-turn")) -> EpochHeader:
    """Canonical headers of the chat-completions dialect, with one of these `roles` in their options."""
    extra = draw(st.none() | st.dictionaries(st.sampled_from(["seed", "temperature", "x"]), st.integers(0, 9)))
    options = {
        "max_tokens_field": draw(st.sampled_from(["max_tokens", "max_completion_tokens"])),
        "tool_only_content": draw(st.sampled_from(["null", "empty", "absent"])),
        "include_usage": draw(st.booleans()),
        "roles": draw(st.sampled_from(roles)),
        "call_ids": draw(st.sampled_from(["as-given", "nine"])),
        "tool_names": draw(st.sampled_from(["as-given", "safe"])),
        "stream": draw(st.booleans()),
    }
    config = CallConfig(
        "p",
        draw(texts()),
        "chat-completions",
        dialect_options=resolve_options(options),
        temperature=draw(st.none() | st.floats(0, 2)),
        max_tokens=draw(st.none() | st.integers(1, 99999)),
        stop=draw(st.none() | st.tuples(texts())),
        extra=None if extra is None else JsonText(json.dumps(extra)),
    )
    tool = st.builds(ToolSchema, texts(), texts(), json_texts())
    fixed = EpochHeader(config, draw(texts()) or None)
    return replace(
        fixed,
        tools=tuple(draw(st.lists(tool, max_size=2))) or None,
        message_prefix=tuple(draw(st.lists(messages(), max_size=2))) or None,
    )


def requests(roles: tuple[str, ...] = ("as-they-come", "in-turn")) -> st.SearchStrategy[Request]:
    """Any request of the chat-completions dialect."""
    return st.builds(Request, headers(roles), history().map(AppendOnlyList[Message]))


def _spoken(role: str, block: st.SearchStrategy[Block]) -> st.SearchStrategy[Message]:
    return st.lists(block, min_size=1, max_size=3).map(lambda content: Message(role, tuple(content)))
