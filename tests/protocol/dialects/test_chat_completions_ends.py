"""Every stream ends as what it was: an end is believed when it is one, and the server's words reach the person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from refold_protocol.dialects.chat_completions_stream import FREE_SIZE, MOST_SIZE, ChatCompletionsDecoder
from refold_protocol.dialects.finish_reasons import reason_of
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import FinishChunk
from tests.support.chat_stream import (
    DONE,
    arguments_in,
    call,
    calls,
    chunk,
    decode,
    decode_until_failure,
    event,
    reasoning_in,
    text,
    text_in,
)

WHOLE_CALL = calls(call(0, "c0", "read", '{"path":"a.txt"}'))
ERROR = {"error": {"code": 400, "message": "model 'm' not found, try pulling it first", "type": "api_error"}}


def failed(*writes: bytes) -> tuple[str, ProviderError]:
    chunks, failure = decode_until_failure(*writes)
    assert failure is not None
    one_by_one, again = decode_until_failure(*(bytes([byte]) for byte in b"".join(writes)))
    assert (text_in(one_by_one), str(again)) == (text_in(chunks), str(failure)), "the same, byte by byte"
    return text_in(chunks), failure


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("abort", "provider.overloaded"),
        ("cancelled", "provider.overloaded"),
        ("insufficient_system_resource", "provider.overloaded"),
        ("engine_shutdown_now", "provider.overloaded"),
        ("timeout", "provider.timeout"),
        ("MALFORMED_FUNCTION_CALL", "provider.badStream"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "provider.badStream"),
    ],
)
@pytest.mark.parametrize("before", [text("half"), WHOLE_CALL])
def test_a_server_that_gives_up_completes_nothing(before: bytes, word: str, kind: str) -> None:
    chunks, failure = decode_until_failure(before + chunk({}, word) + DONE)
    assert chunks[-1] == FinishChunk("aborted", word)
    assert failure is not None
    assert (failure.error_kind, word in failure.message) == (kind, True)


@pytest.mark.parametrize(
    ("word", "reason"),
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("tool_use", "tool-calls"), ("SAFETY", "content-filter"), ("x", "other")],
)
def test_words_of_other_servers_mean_the_same(word: str, reason: str) -> None:
    assert reason_of(word) == reason
    assert reason_of("null") is reason_of(" ") is None


def test_stop_takes_nothing_back() -> None:
    assert decode(text("a") + chunk({}, "length") + chunk({}, "stop") + DONE)[-1] == FinishChunk("length")


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (chunk({"content": ""}) + chunk({}, "tool_calls") + DONE, "sent no call"),
        (text("I will now write.") + chunk({}, "tool_calls") + DONE, "sent no call"),
        (calls(call(0, "c0", "", '{"path":"a"}')) + chunk({}, "tool_calls") + DONE, "without naming it"),
        (chunk({}, "stop") + DONE, "without any text"),
        (text(" \n") + chunk({}, "stop") + DONE, "without any text"),
        (event({"id": "k", "choices": []}) + DONE, "without any text"),
        (text("a") + chunk({}, "pause_turn") + DONE, "a tool of its own"),
    ],
)
def test_an_answer_that_is_none_is_told(stream: bytes, words: str) -> None:
    assert words in failed(stream)[1].message


def test_what_comes_after_a_reason_needs_an_end_of_its_own() -> None:
    """Some servers say `stop` with each event: a stream that is cut between two of them is cut."""
    each = chunk({"content": "a"}, "stop") + chunk({"content": "b"}, "stop")
    assert text_in(decode(each + DONE)) == "ab"
    assert "cut off" in failed(each + text("c"))[1].message
    assert decode(each + text("c") + DONE)[-1] == FinishChunk("stop")


def test_the_marker_ends_calls_whose_arguments_are_whole() -> None:
    assert decode(WHOLE_CALL + chunk({}) + DONE)[-1] == FinishChunk("tool-calls", "[DONE]")
    camel = event({"choices": [{"index": 0, "delta": {}, "finish_reason": None, "finishReason": "tool_calls"}]})
    assert decode(WHOLE_CALL + camel)[-1] == FinishChunk("tool-calls")


@pytest.mark.parametrize(
    "stream",
    [
        event(ERROR),
        b"error: " + json.dumps(ERROR["error"]).encode() + b"\n\n",
        b"event: error\ndata: " + json.dumps(ERROR["error"]).encode() + b"\n\n",
        json.dumps(ERROR).encode(),
        json.dumps(ERROR, indent=2).encode(),
        json.dumps([ERROR]).encode() + b"\n",
    ],
)
@pytest.mark.parametrize("before", [b"", text("Par")])
def test_an_error_in_any_clothes_keeps_the_servers_words(before: bytes, stream: bytes) -> None:
    shown, failure = failed(before + stream)
    assert "not found, try pulling it first" in failure.message
    assert shown == ("Par" if before else "")
    assert "not found" in failed(before + stream + b"\n\n" + DONE)[1].message


def test_words_that_are_no_json_are_kept_too() -> None:
    assert "upstream is down" in failed(b"error: upstream is down\n\n")[1].message
    assert "no healthy upstream" in failed(text("a") + b"no healthy upstream\n")[1].message
    decoder = ChatCompletionsDecoder()
    decoder.feed(b"<html><title>Sign in</title></html>")
    with pytest.raises(ProviderError):
        decoder.close()
    assert decoder.unread.startswith(b"<html>")


MESSAGE = {"role": "assistant", "content": "The answer."}
ANSWER = {"object": "chat.completion", "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "stream",
    [
        event(ANSWER) + DONE,
        event(ANSWER),
        json.dumps(ANSWER).encode(),
        json.dumps(ANSWER, indent=1).encode() + b"\n\n" + DONE,
        event({"choices": [{"index": 0, "text": "The answer.", "finish_reason": "stop"}]}),
        text("The answer.") + event(ANSWER) + DONE,
    ],
)
def test_a_whole_answer_counts_once(stream: bytes) -> None:
    assert text_in(decode(stream)) == "The answer."
    assert text_in(decode(*(bytes([byte]) for byte in stream))) == "The answer."


def test_a_whole_answer_brings_its_calls() -> None:
    entry = {"id": "c0", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [entry]}
    chunks = decode(json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode())
    assert (arguments_in(chunks, 0), chunks[-1]) == ("{}", FinishChunk("tool-calls"))


def test_text_in_one_choice_and_calls_in_another_are_one_reply() -> None:
    def choice(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "finish_reason": finish}

    entry = {"tool_calls": [call(0, "c0", "read", "{}")]}
    first = event({"choices": [choice(0, {"content": "Look."})]}) + event({"choices": [choice(1, entry)]})
    chunks = decode(first + event({"choices": [choice(0, {}, "tool_calls"), choice(1, {}, "tool_calls")]}) + DONE)
    assert (text_in(chunks), arguments_in(chunks, 1), chunks[-1]) == ("Look.", "{}", FinishChunk("tool-calls"))


def test_thinking_inside_content_is_thinking() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "42"}]
    chunks = decode(chunk({"content": [*parts, {"type": "reference", "reference_ids": [1]}]}) + chunk({}, "stop") + DONE)
    assert (reasoning_in(chunks), text_in(chunks)) == ("hm", "42")


@pytest.mark.parametrize(
    "odd",
    [
        event({"choices": [{"index": None, "delta": {"content": "42"}, "finish_reason": None}]}),
        event({"choices": [{"index": "0", "delta": {"content": "42", "refusal": False, "tool_calls": [None]}}]}),
        event({"choices": [None, {"delta": {"content": 42}}]}),
        b'data: {"choices":[{"delta":{"content":"42"},"logprobs":NaN}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"4"}}]}\ndata: {"choices":[{"delta":{"content":"2"}}]}\n\n',
        b"data: " + text("42"),
        text("42") + chunk({}, "stop") + b"data: ]\n\n",
        text("42") + chunk({}, "stop") + event({"code": 0, "message": "Success", "usage": {"prompt_tokens": 1}}),
    ],
)
def test_members_that_nobody_needs_never_fail_a_reply(odd: bytes) -> None:
    assert text_in(decode(odd + event({"choices": [{"delta": {}, "finish_reason": {"type": "stop"}}]}) + DONE)) == "42"


@pytest.mark.parametrize(
    "entry",
    [
        {"index": "0", "id": 7, "function": {"name": "read", "arguments": "{}"}},
        {"id": "7", "name": "read", "arguments": {}},
    ],
)
def test_calls_of_an_odd_form_are_calls(entry: dict[str, Any]) -> None:
    for entries in ([entry], entry):
        chunks = decode(chunk({"tool_calls": entries}) + chunk({}, "tool_calls") + DONE)
        assert (chunks[0], arguments_in(chunks, 0)) == (decode(calls(call(0, "7", "read", "{}")) + DONE)[0], "{}")


@pytest.mark.parametrize("piece", [text("x" * 1000), chunk({"reasoning": "x" * 1000}), text("x")])
def test_a_reply_without_an_end_is_given_up_and_kept(piece: bytes) -> None:
    for limit, most in ((16, FREE_SIZE + 16 * 256), (None, MOST_SIZE)):
        decoder = ChatCompletionsDecoder(limit)
        write, came = piece * 2000, 0
        while decoder.failure is None:
            came += len(decoder.feed(write))
            assert came * 32 <= 2 * most
        assert decoder.failure.error_kind == "provider.badStream"
        assert "does not end" in decoder.failure.message


def test_calls_without_an_end_are_given_up() -> None:
    failure = failed(b"".join(calls(call(at, None, None, "")) for at in range(1100)))[1]
    assert "more than 1,024 tool calls" in failure.message
