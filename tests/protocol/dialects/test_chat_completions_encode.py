"""A Request becomes the bytes of a chat-completions body: which bytes, and that earlier ones never change."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold_protocol.dialects.chat_completions import ENCODER, ChatCompletionsEncoder, encode, moved_end, resolve_options
from refold_protocol.errors import BlobUnknownError
from refold_protocol.json_text import JsonText
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
    text_content,
)
from refold_protocol.session.request import Request
from tests.support.requests import BLOBS, PNG, header, headers, history, requests, user


def sent(*messages: Message, options: str | None = None) -> list[dict[str, Any]]:
    """Give the wire messages of a history, parsed."""
    config = CallConfig("p", "m", "chat-completions", dialect_options=None if options is None else JsonText(options))
    return json.loads(encode(Request(EpochHeader(config), AppendOnlyList(messages)), BLOBS))["messages"]


def assistant(*blocks: Block) -> Message:
    return Message("assistant", blocks)


def test_the_encoder_has_a_name_and_a_version() -> None:
    assert EncoderId("chat-completions", 1) == ENCODER


def test_a_whole_body_byte_for_byte() -> None:
    """Golden: whoever changes a byte of this raises ENCODER.version."""
    config = CallConfig(
        "engine",
        "chain",
        "chat-completions",
        dialect_options=JsonText('{"maxTokensField":"max_completion_tokens","toolOnlyContent":"empty","includeUsage":true}'),
        temperature=0.5,
        top_p=1.0,
        max_tokens=1024,
        stop=("END",),
        reasoning_effort="low",
        extra=JsonText('{ "seed": 7, "x": {"y":[1.50]} }'),
    )
    tool = ToolSchema("read_file", "Reads a file.", JsonText('{"type": "object"}'))
    prefix = (Message("user", text_content("House rules")),)
    messages = [
        user("那🙂\u2028\n"),
        assistant(ReasoningBlock("hm"), ToolCallBlock("c1", "read_file", '{"path": "a.txt"}')),
        Message("user", (ToolResultBlock("c1", text_content("No such file"), is_error=True),)),
        assistant(TextBlock("Sorry.")),
    ]
    body = encode(Request(EpochHeader(config, "Be brief.", (tool,), prefix), AppendOnlyList(messages)), {})
    assert body.decode() == (
        '{"model":"chain","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":1024,'
        '"temperature":0.5,"top_p":1.0,"stop":["END"],"reasoning_effort":"low",'
        '"tools":[{"type":"function","function":{"name":"read_file","description":"Reads a file.",'
        '"parameters":{"type": "object"}}}],"seed": 7, "x": {"y":[1.50]},'
        '"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"House rules"},'
        '{"role":"user","content":"那🙂\u2028\\n"},'
        '{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",'
        '"function":{"name":"read_file","arguments":"{\\"path\\": \\"a.txt\\"}"}}]},'
        '{"role":"tool","tool_call_id":"c1","content":"No such file"},'
        '{"role":"assistant","content":"Sorry."}]}'
    )


def test_the_smallest_body() -> None:
    body = encode(Request(EpochHeader(CallConfig("p", "m", "chat-completions")), AppendOnlyList()), {})
    assert body == b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}'


def test_consecutive_user_messages_stay_messages_of_their_own() -> None:
    assert [message["content"] for message in sent(user("a"), user("b"))] == ["a", "b"]


def test_text_blocks_are_joined_by_line_breaks() -> None:
    assert sent(Message("user", (TextBlock("a"), TextBlock("b"))))[0]["content"] == "a\nb"


def test_an_image_makes_the_content_a_list_with_a_data_url() -> None:
    content = sent(Message("user", (TextBlock("see"), ImageBlock("image/png", PNG))))[0]["content"]
    assert content == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]


def test_an_image_whose_bytes_are_missing_is_an_error_that_names_it() -> None:
    encoder = ChatCompletionsEncoder()
    tape = AppendOnlyList([user("a")])
    encoder.encode(Request(header(), tape), {})
    picture = Request(header(), tape.then(user("b")).then(Message("user", (ImageBlock("image/png", PNG),))))
    with pytest.raises(BlobUnknownError, match=PNG):
        encoder.encode(picture, {})
    assert encoder.encode(picture, BLOBS).data == encode(picture, BLOBS)


def test_thinking_is_not_sent_and_alone_gives_no_message() -> None:
    assert sent(assistant(ReasoningBlock("hm"), TextBlock("4"))) == [{"role": "assistant", "content": "4"}]
    assert sent(assistant(ReasoningBlock("hm"))) == []


@pytest.mark.parametrize(("form", "members"), [("null", {"content": None}), ("empty", {"content": ""}), ("absent", {})])
def test_the_content_of_a_message_of_calls_alone_is_a_setting(form: str, members: dict[str, Any]) -> None:
    """A-11."""
    options = f'{{"maxTokensField":"max_tokens","toolOnlyContent":"{form}","includeUsage":true}}'
    (message,) = sent(assistant(ToolCallBlock("c", "f", "{}")), options=options)
    del message["tool_calls"]
    assert message == {"role": "assistant", **members}


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"n":NaN}', '{"a":1,"a":2}', '{"q":"\\ud83d"}', "null"])
def test_arguments_that_are_no_strict_object_are_sent_as_an_empty_one(arguments: str) -> None:
    """A-08a, A-15c and d: servers refuse such a history for ever."""
    (message,) = sent(assistant(ToolCallBlock("c", "f", arguments)))
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_arguments_keep_their_text() -> None:
    text = '{ "n" : 1.50, "s": "\\u00e9" }'
    (message,) = sent(assistant(ToolCallBlock("c", "f", text)))
    assert message["tool_calls"][0]["function"]["arguments"] == text


def test_each_result_is_a_message_of_its_own_before_what_else_its_message_says() -> None:
    results = (ToolResultBlock("c1", text_content("one"), False), ToolResultBlock("c2", text_content("two"), True))
    assert sent(Message("user", (*results, TextBlock("go on")))) == [
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "user", "content": "go on"},
    ]


def test_an_image_in_a_result_is_named_since_the_role_takes_text_only() -> None:
    result = ToolResultBlock("c", (TextBlock("look"), ImageBlock("image/png", PNG)), False)
    assert sent(Message("user", (result,)))[0]["content"] == "look\n[image/png, which this provider takes from users only]"


def test_an_extra_member_takes_the_place_of_a_scalar() -> None:
    config = CallConfig(
        "p", "m", "chat-completions", temperature=0.5, extra=JsonText('{"temperature":1,"stream_options":null}')
    )
    body = encode(Request(EpochHeader(config), AppendOnlyList()), {})
    assert body == b'{"model":"m","stream":true,"temperature":1,"stream_options":null,"messages":[]}'


def test_usage_is_not_asked_for_where_the_setting_says_so() -> None:
    options = JsonText('{"maxTokensField":"max_tokens","toolOnlyContent":"null","includeUsage":false}')
    config = CallConfig("p", "m", "chat-completions", dialect_options=options, max_tokens=5)
    assert (
        encode(Request(EpochHeader(config), AppendOnlyList()), {})
        == b'{"model":"m","stream":true,"max_tokens":5,"messages":[]}'
    )


@settings(max_examples=40)
@given(requests())
def test_every_body_is_json_with_the_messages_last(asked: Request) -> None:
    body = json.loads(encode(asked, BLOBS))
    assert list(body)[-1] == "messages"
    assert body["model"] == asked.header.config.model


@settings(max_examples=40)
@given(headers(), history(), history(max_size=3))
def test_a_longer_history_keeps_every_byte_up_to_the_closing_brackets(
    fixed: EpochHeader, first: list[Message], more: list[Message]
) -> None:
    before, after = Request(fixed, AppendOnlyList(first)), Request(fixed, AppendOnlyList([*first, *more]))
    shorter, longer = encode(before, BLOBS), encode(after, BLOBS)
    assert longer.startswith(shorter[: len(shorter) - moved_end(before, after)])


@settings(max_examples=40)
@given(headers(("as-they-come",)), history(), st.data())
def test_what_a_message_becomes_never_depends_on_its_place(
    fixed: EpochHeader, messages: list[Message], data: st.DataObject
) -> None:
    alone = {at: encode(Request(fixed, AppendOnlyList([message])), BLOBS) for at, message in enumerate(messages)}
    empty = encode(Request(fixed, AppendOnlyList()), BLOBS).removesuffix(b"]}")
    pieces = [body.removesuffix(b"]}").removeprefix(empty).removeprefix(b",") for body in alone.values()]
    start = empty if empty.endswith(b'"messages":[') else empty + b","
    expected = start + b",".join(piece for piece in pieces if piece) + b"]}"
    assert encode(Request(fixed, AppendOnlyList(messages)), BLOBS) == (expected if any(pieces) else empty + b"]}")


@settings(max_examples=40)
@given(st.lists(headers(), min_size=1, max_size=2), st.lists(st.tuples(history(max_size=3), st.integers(0, 9)), max_size=6))
def test_encoding_step_by_step_gives_the_bytes_of_encoding_from_nothing(
    choices: list[EpochHeader], steps: list[tuple[list[Message], int]]
) -> None:
    """Appends, replaces (a tape of its own) and changes of the header, in any order."""
    encoder = ChatCompletionsEncoder()
    tape: AppendOnlyList[Message] = AppendOnlyList()
    for new, choice in steps:
        if choice == 0:
            tape = AppendOnlyList(tape[: len(tape) // 2])
        elif choice == 1:
            tape = AppendOnlyList([user("summary"), *tape[2:]])
        for message in new:
            tape = tape.then(message)
        asked = Request(choices[choice % len(choices)], tape)
        body = encoder.encode(asked, BLOBS)
        assert body.data == encode(asked, BLOBS)
        assert body.sha256 == sha256(body.data).hexdigest()


def test_of_a_history_that_grew_only_the_new_messages_are_encoded() -> None:
    """Shown by images: the bytes of old ones are not asked for again."""
    encoder = ChatCompletionsEncoder()
    tape = AppendOnlyList([Message("user", (ImageBlock("image/png", PNG),))])
    encoder.encode(Request(header(), tape), BLOBS)
    longer = Request(header(), tape.then(user("next")))
    assert encoder.encode(longer, {}).data == encode(longer, BLOBS)


def test_going_back_to_a_shorter_history_encodes_that_history() -> None:
    encoder = ChatCompletionsEncoder()
    short_tape: AppendOnlyList[Message] = AppendOnlyList([user("a")])
    long_tape = short_tape.then(user("b"))
    for tape in (long_tape, short_tape, short_tape.then(user("c"))):
        asked = Request(header(), tape)
        assert encoder.encode(asked, {}).data == encode(asked, {})


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ("tags", {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}),
        ("field", {"role": "assistant", "content": "4", "reasoning_content": "hm"}),
        ("omit", {"role": "assistant", "content": "4"}),
    ],
)
def test_thinking_goes_back_as_the_option_says(history: str, message: dict[str, Any]) -> None:
    options = resolve_options({"reasoning_history": history})
    asked = Message("user", (TextBlock("2+2"),))
    assert sent(asked, assistant(ReasoningBlock("hm"), TextBlock("4")), options=options)[1] == message


def test_thinking_before_calls_goes_back_with_them() -> None:
    reply = assistant(ReasoningBlock("hm"), ToolCallBlock("c1", "read_file", "{}"))
    tags, field = (sent(reply, options=resolve_options({"reasoning_history": way}))[-1] for way in ("tags", "field"))
    assert (tags["content"], len(tags["tool_calls"])) == ("<think>\nhm\n</think>\n\n", 1)
    assert (field["content"], field["reasoning_content"]) == (None, "hm")
