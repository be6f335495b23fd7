"""The strictest chat-completions server: the union of what real ones and their chat templates refuse."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from refold_protocol.json_text import is_json_object

_ID = re.compile("[a-zA-Z0-9]{9}")
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")


def refusal(body: bytes) -> str | None:
    """Say why the strictest server refuses a body, None where it takes it."""
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return next((why for why in (_roles(messages), _calls(messages), _contents(messages)) if why is not None), None)


def _roles(messages: list[dict[str, Any]]) -> str | None:
    if any(message["role"] == "system" for message in messages[1:]):
        return "a system message that is not the first"
    spoken = [message for message in messages if message["role"] != "system"]
    turns = [message["role"] for message in spoken if message["role"] != "tool" and not message.get("tool_calls")]
    if any(role != ("user", "assistant")[at % 2] for at, role in enumerate(turns)):
        return f"roles must alternate, and begin with the user: {turns}"
    for one, following in itertools.pairwise(spoken):
        if one["role"] == "tool" and following["role"] == "user":
            return "a user message after a tool's"
    return None if spoken and spoken[-1]["role"] in ("user", "tool") else "the last message is the assistant's"


def _calls(messages: list[dict[str, Any]]) -> str | None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "a result without its call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return "a call without its result"
        for call in message.get("tool_calls") or ():
            function = call["function"]
            if not _ID.fullmatch(call["id"]) or not _NAME.fullmatch(function["name"]):
                return f"a call with the id {call['id']!r} and the name {function['name']!r}"
            if not is_json_object(function["arguments"]):
                return f"arguments that are no object: {function['arguments']!r}"
            waiting.append(call["id"])
    return "a call without its result" if waiting else None


def _contents(messages: list[dict[str, Any]]) -> str | None:
    for message in messages:
        if not (message["content"] or "").strip() and not message.get("tool_calls"):
            return f"an empty message of the role {message['role']}"
    return None
