"""Questions to the offline provider in tests: bodies made by the real encoder, tools played by tables of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from refold_protocol.dialects.chat_completions import encode
from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import (
    CallConfig,
    EpochHeader,
    Message,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    text_content,
    text_of,
)
from refold_protocol.session.request import Request
from refold_server.providers.offline_provider import OfflineProvider
from tests.support.asking import ask

TOOLS = ("list_files", "read_file", "search_text")


def body_of(*messages: Message, tools: tuple[str, ...] = TOOLS, model: str = "workspace", script: str | None = None) -> bytes:
    """Give the body of a request to the rehearsal provider."""
    extra = None if script is None else JsonText(json.dumps({"script": script}))
    config = CallConfig("rehearsal", model, "chat-completions", extra=extra)
    schemas = tuple(ToolSchema(name, "", JsonText("{}")) for name in tools)
    return encode(Request(EpochHeader(config, tools=schemas or None), AppendOnlyList(messages)), {})


async def run_turn(
    question: str, answers: Mapping[str, str], tools: tuple[str, ...] = TOOLS
) -> tuple[list[ToolCallBlock], str]:
    """Run a turn in which each tool answers by its name; give the calls in order and the last text."""
    provider = OfflineProvider()
    messages = [Message("user", text_content(question))]
    calls: list[ToolCallBlock] = []
    while True:
        asked = await ask(provider, body_of(*messages, tools=tools))
        assert asked.error is None
        content = assemble(asked.chunks).content
        messages.append(Message("assistant", content))
        new = [block for block in content if isinstance(block, ToolCallBlock)]
        if not new:
            return calls, text_of(content)
        calls += new
        results = (ToolResultBlock(call.id, text_content(answers[call.name]), False) for call in new)
        messages += [Message("user", (result,)) for result in results]
