"""The digest of a request is the same whether computed step by step or from nothing, and never changes for old logs."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.messages import (
    CallConfig,
    EpochHeader,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
)
from refold_protocol.session.request import Request, RequestDigest, request_sha256
from tests.support.strategies import headers, messages

HEADER = EpochHeader(
    CallConfig("engine", "chain", "chat-completions", temperature=0.5),
    "Be brief.",
    (ToolSchema("read_file", "Reads.", JsonText('{"type": "object"}')),),
    (Message("user", (TextBlock("House rules"),)),),
)
HISTORY = (
    Message("user", (TextBlock("那🙂\u2028"), ImageBlock("image/png", "5f" * 32))),
    Message("assistant", (ToolCallBlock("c1", "read_file", "{}"),)),
    Message("user", (ToolResultBlock("c1", (TextBlock("ok"),), False),)),
)


def test_the_digest_is_that_of_the_compact_json_of_header_and_messages() -> None:
    plain: dict[str, Any] = {
        "header": {
            "config": {"provider": "engine", "model": "chain", "dialect": "chat-completions", "temperature": 0.5},
            "system": "Be brief.",
            "tools": [{"name": "read_file", "description": "Reads.", "parameters": '{"type": "object"}'}],
            "messagePrefix": [{"role": "user", "content": [{"type": "text", "text": "House rules"}]}],
        },
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "House rules"}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "那🙂\u2028"},
                    {"type": "image", "mediaType": "image/png", "blob": "5f" * 32},
                ],
            },
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "id": "c1", "name": "read_file", "arguments": "{}"}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "c1",
                        "content": [{"type": "text", "text": "ok"}],
                        "isError": False,
                    }
                ],
            },
        ],
    }
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    assert request_sha256(Request(HEADER, AppendOnlyList(HISTORY))) == sha256(text.encode()).hexdigest()


def test_the_digest_of_a_request_without_messages_is_well_formed_json() -> None:
    bare = EpochHeader(CallConfig("p", "m", "d"))
    text = b'{"header":{"config":{"provider":"p","model":"m","dialect":"d"}},"messages":[]}'
    assert request_sha256(Request(bare, AppendOnlyList())) == sha256(text).hexdigest()


@settings(max_examples=40)
@given(st.lists(headers(), min_size=1, max_size=2), st.data())
def test_step_by_step_equals_from_nothing_for_any_course(kinds: list[EpochHeader], data: st.DataObject) -> None:
    """Invariant: A request's digest does not depend on how it was computed."""
    digest = RequestDigest()
    histories: list[AppendOnlyList[Message]] = [AppendOnlyList()]
    for _ in range(data.draw(st.integers(1, 6))):
        history = data.draw(st.sampled_from(histories))
        for message in data.draw(st.lists(messages(), max_size=2)):
            history = history.then(message)
        histories.append(history)
        request = Request(data.draw(st.sampled_from(kinds)), history)
        assert digest.of(request) == request_sha256(request)


@settings(max_examples=50)
@given(messages(), messages())
def test_two_histories_that_differ_have_two_digests(one: Message, other: Message) -> None:
    first, second = Request(HEADER, AppendOnlyList((one,))), Request(HEADER, AppendOnlyList((other,)))
    assert (request_sha256(first) == request_sha256(second)) == (one == other)


def test_asking_twice_gives_the_same_answer() -> None:
    digest = RequestDigest()
    request = Request(HEADER, AppendOnlyList(HISTORY))
    assert digest.of(request) == digest.of(request) == request_sha256(request)


def test_messages_are_the_prefix_and_then_the_history() -> None:
    assert tuple(Request(HEADER, AppendOnlyList(HISTORY)).messages()) == (*(HEADER.message_prefix or ()), *HISTORY)
