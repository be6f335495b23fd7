"""What is not a whole reply is a failure, told behind the chunks that came before it (cases A-04, A-05, A-06c, A-15)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.chat_completions import ChatCompletionsDecoder
from refold_protocol.errors import RETRYABLE_KINDS, ProviderError
from refold_protocol.session.messages import BlockEnd, FinishChunk
from tests.support.chat_stream import (
    DONE,
    arguments_in,
    call,
    calls,
    chunk,
    decode,
    decode_until_failure,
    event,
    text,
    text_in,
)

HALF_CALL = calls(call(0, "c0", "write", '{"path":"a.txt","text":"lo'))


def failure_of(*writes: bytes, cut: bool = False) -> ProviderError:
    _, failure = decode_until_failure(*writes, cut=cut)
    assert failure is not None
    return failure


def test_a_part_that_is_no_text_is_a_failure_and_not_skipped() -> None:
    assert "audio" in failure_of(chunk({"content": [{"type": "audio"}]})).message


@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_that_ends_in_text_is_a_failure_behind_its_text(cut: bool) -> None:
    """A-04b."""
    chunks, failure = decode_until_failure(text("half"), cut=cut)
    assert text_in(chunks) == "half"
    assert failure is not None
    assert failure.error_kind == "provider.badStream"
    assert "in the middle of the text" in failure.message


@pytest.mark.parametrize("end", [b"", DONE])
@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_that_ends_in_a_call_is_a_failure(cut: bool, end: bytes) -> None:
    """A-04c, A-04d; and with the marker, while the call is open."""
    chunks, failure = decode_until_failure(HALF_CALL + end, cut=cut)
    assert failure is not None
    assert (failure.error_kind, "tool call" in failure.message) == ("provider.badStream", True)
    assert not any(isinstance(part, FinishChunk | BlockEnd) for part in chunks)


@pytest.mark.parametrize(
    "stream", [b"", b": nothing\n\n: yet\n\n", b"data:\n\n", DONE], ids=["", "comments", "no data", "done"]
)
def test_a_stream_without_any_reply_is_called_empty(stream: bytes) -> None:
    """A-06c."""
    failure = failure_of(stream)
    assert (failure.error_kind, "empty" in failure.message) == ("provider.badStream", True)


def test_a_quota_error_in_the_stream_is_not_retryable() -> None:
    """A-05a."""
    failure = failure_of(event({"error": {"message": "quota used up", "code": "insufficient_quota"}}) + DONE)
    assert failure.error_kind == "provider.rejected"
    assert failure.error_kind not in RETRYABLE_KINDS
    assert "quota used up" in failure.message
    assert "insufficient_quota" in failure.message


def test_an_error_that_is_a_string_is_the_providers_fault() -> None:
    """A-05b."""
    failure = failure_of(event({"error": "backend stopped"}) + DONE)
    assert (failure.error_kind, "backend stopped" in failure.message) == ("provider.overloaded", True)


def test_text_before_an_error_is_delivered_before_the_error() -> None:
    """A-05c, in one write and in two."""
    error = event({"error": {"message": "gone", "type": "server_error"}})
    for writes in ((text("Par") + error,), (text("Par"), error)):
        chunks, failure = decode_until_failure(*writes)
        assert text_in(chunks) == "Par"
        assert failure is not None
        assert (failure.error_kind, "gone" in failure.message) == ("provider.overloaded", True)


def test_an_error_inside_a_choice_and_a_bare_error_object_are_seen() -> None:
    choice = event({"choices": [{"index": 0, "delta": {}, "error": {"code": 429, "message": "slow"}}]})
    assert failure_of(choice).error_kind == "provider.rateLimited"
    assert failure_of(event({"object": "error", "message": "no", "code": 401})).error_kind == "provider.auth"


def test_null_and_empty_errors_are_none() -> None:
    assert text_in(decode(chunk({"content": "ok"}, error=None) + chunk({}, "stop", error={}))) == "ok"


def test_an_overflow_in_the_stream_is_told_with_its_numbers() -> None:
    error = {"code": 400, "type": "exceed_context_size_error", "message": "too long", "n_prompt_tokens": 20010, "n_ctx": 8192}
    failure = failure_of(event({"error": error}))
    assert failure.error_kind == "provider.contextOverflow"
    assert "20,010" in failure.message
    assert "8,192" in failure.message


def test_broken_json_ends_the_stream_with_a_sample() -> None:
    """A-15a: never skipped."""
    stream = text("a") + b'data: {"choices":[{"index":0,"del\n\n' + text("c") + chunk({}, "stop") + DONE
    chunks, failure = decode_until_failure(stream)
    assert text_in(chunks) == "a"
    assert failure is not None
    assert failure.error_kind == "provider.badStream"
    assert '"index":0,"del' in failure.message


def test_prose_in_the_stream_is_quoted() -> None:
    """A-15b."""
    failure = failure_of(text("a") + b"data: upstream timed out\n\n" + DONE)
    assert (failure.error_kind, "upstream timed out" in failure.message) == ("provider.badStream", True)


@pytest.mark.parametrize("data", [b"5", b"[]", b"null", b'"x"', b'{"choices":{}}', b'{"n":NaN}', b"[" * 5000, b"{" * 9])
def test_json_that_is_no_event_is_a_failure(data: bytes) -> None:
    assert failure_of(b"data: " + data + b"\n\n").error_kind == "provider.badStream"


def test_a_sample_is_short_and_on_one_line() -> None:
    assert len(failure_of(b"data: " + b"y\x1b" * 5000 + b"\n\n").message) < 300


def test_after_a_failure_every_call_raises_it() -> None:
    decoder = ChatCompletionsDecoder()
    decoder.feed(text("a") + b"data: x\n\n")
    failure = decoder.failure
    for again in (lambda: decoder.feed(b""), decoder.close):
        with pytest.raises(ProviderError) as caught:
            again()
        assert caught.value is failure


def test_a_failure_behind_chunks_is_known_without_another_call() -> None:
    for rest in (b"data: x\n\n", b'data: {"x":"' + b"y" * (33 << 20)):
        decoder = ChatCompletionsDecoder()
        assert decoder.feed(text("a") + rest)
        assert decoder.failure is not None


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_nobody_needs_never_fail_a_reply(number: str) -> None:
    """A-15: also beside a lone half. Only one of thousands of digits cannot be read at all."""
    beside = f'data: {{"choices":[{{"delta":{{"content":"\\ud83dx"}}}}],"n":{number}}}\n\n'.encode()
    chunks, failure = decode_until_failure(text("a") + beside + chunk({}, "stop"))
    if len(number) > 4000:
        assert (text_in(chunks), None if failure is None else failure.error_kind) == ("a", "provider.badStream")
    else:
        assert (text_in(chunks), failure) == ("a\ufffdx", None)


def test_a_number_that_is_not_json_makes_arguments_that_do_not_run() -> None:
    entry = b'{"index":0,"id":"c","function":{"name":"f","arguments":{"n":NaN}}}'
    stream = b'data: {"choices":[{"delta":{"tool_calls":[' + entry + b"]}}]}\n\n"
    chunks = decode(stream, chunk({}, "tool_calls"))
    assert arguments_in(chunks, 0) == '{"n": NaN}'


def test_an_event_larger_than_the_limit_is_a_failure_behind_what_came_before() -> None:
    """A-13e."""
    chunks, failure = decode_until_failure(text("a") + b'data: {"x":"', *[b"y" * (1 << 20)] * 33)
    assert text_in(chunks) == "a"
    assert failure is not None
    assert "33,554,432 bytes" in failure.message


def test_a_reply_that_the_provider_broke_off_is_a_failure_behind_its_text() -> None:
    """A-09d."""
    chunks, failure = decode_until_failure(text("abc") + chunk({}, "insufficient_system_resource") + DONE)
    assert text_in(chunks) == "abc"
    assert failure is not None
    assert failure.error_kind == "provider.overloaded"


def test_an_empty_finish_reason_is_none() -> None:
    assert failure_of(chunk({"content": "x"}, "")).error_kind == "provider.badStream"


@given(st.binary(max_size=300))
def test_no_bytes_whatsoever_raise_anything_but_a_provider_error(data: bytes) -> None:
    decode_until_failure(data)
    decode_until_failure(b"data: " + data + b"\n\n")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "index",
                        "error",
                        "usage",
                        "content",
                        "tool_calls",
                        "function",
                        "arguments",
                        "name",
                        "id",
                        "finish_reason",
                        "message",
                        "code",
                        "reasoning",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_whatsoever_raises_anything_but_a_provider_error(value: object) -> None:
    decode_until_failure(event(value) + event({"choices": [value]}) + event({"choices": [{"delta": value}]}))
