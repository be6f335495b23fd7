"""A chat-completions stream becomes chunks; what is not a whole reply is a failure (cases A-01, A-02, A-04, A-05, A-15)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.chat_completions import StreamDecoder
from refold_protocol.errors import RETRYABLE_KINDS, ProviderError
from refold_protocol.session.messages import BlockEnd, BlockStart, FinishChunk, ReasoningDelta, TextDelta
from tests.support.chat_stream import (
    DONE,
    call,
    calls,
    chunk,
    decode,
    decode_until_failure,
    event,
    reasoning_in,
    reply,
    text,
    text_in,
)

CUT_CHARACTER = (
    b'data: {"choices":[{"index":0,"delta":{"content":"\xe9',
    b"\x82\xa3\xf0\x9f",
    b'\x99\x82"},"finish_reason":null}]}\n\n' + chunk({}, "stop") + DONE,
)
HALF_CALL = calls(call(0, "c0", "write", '{"path":"a.txt","text":"lo'))


def failure_of(*writes: bytes, cut: bool = False) -> ProviderError:
    _, failure = decode_until_failure(*writes, cut=cut)
    assert failure is not None
    return failure


def test_a_reply_is_a_block_of_text_and_a_finish() -> None:
    assert decode(chunk({"role": "assistant", "content": ""}) + text("a") + text("b") + chunk({}, "stop") + DONE) == [
        BlockStart(0, "text"),
        TextDelta(0, "a"),
        TextDelta(0, "b"),
        BlockEnd(0),
        FinishChunk("stop"),
    ]


def test_chunks_are_given_as_soon_as_their_event_is_complete() -> None:
    decoder = StreamDecoder()
    first = text("a")
    assert decoder.feed(first[:-1]) == []
    assert decoder.feed(first[-1:]) == [BlockStart(0, "text"), TextDelta(0, "a")]


def test_a_character_cut_by_a_write_arrives_whole() -> None:
    """A-01."""
    assert text_in(decode(*CUT_CHARACTER)) == "那🙂"


def test_a_stream_cut_at_any_byte_gives_the_same_chunks() -> None:
    """A-01."""
    stream = b"".join(CUT_CHARACTER)
    whole = decode(stream)
    assert all(decode(stream[:cut], stream[cut:]) == whole for cut in range(len(stream)))
    assert decode(*(stream[at : at + 1] for at in range(len(stream)))) == whole


@pytest.mark.parametrize("name", ["CRLF", "no space", "comments", "retry", "two lines"])
def test_legal_shapes_of_events_give_the_text_once(name: str) -> None:
    """A-02."""
    plain = reply("ok")
    streams = {
        "CRLF": plain.replace(b"\n", b"\r\n"),
        "no space": plain.replace(b"data: ", b"data:"),
        "comments": b": keep-alive\n\n" * 3 + plain.replace(b"\n\n", b"\n:\n\n"),
        "retry": b"retry: 3000\n\nevent: x\n\ndata:\n\n" + plain,
        "two lines": b'data: {"choices":\ndata: []}\n\n' + plain,
    }
    assert text_in(decode(streams[name])) == "ok"


def test_the_last_event_may_lack_its_blank_line() -> None:
    """A-02h."""
    assert text_in(decode(text("ok") + chunk({}, "stop").rstrip())) == "ok"


def test_thinking_and_text_are_blocks_of_their_own() -> None:
    for member in ("reasoning_content", "reasoning"):
        chunks = decode(chunk({member: "so"}) + chunk({member: " 4", "content": None}) + text("4") + chunk({}, "stop"))
        assert chunks == [
            BlockStart(0, "reasoning"),
            ReasoningDelta(0, "so"),
            ReasoningDelta(0, " 4"),
            BlockEnd(0),
            BlockStart(1, "text"),
            TextDelta(1, "4"),
            BlockEnd(1),
            FinishChunk("stop"),
        ]


def test_a_server_that_sends_thinking_under_both_names_is_not_heard_twice() -> None:
    assert reasoning_in(decode(chunk({"reasoning_content": "so", "reasoning": "so"}) + chunk({}, "stop"))) == "so"


def test_text_in_parts_is_text() -> None:
    parts = [{"type": "text", "text": "o"}, {"type": "text", "text": "k"}]
    assert text_in(decode(chunk({"content": parts}) + chunk({}, "stop"))) == "ok"


def test_a_part_that_is_no_text_is_a_failure_and_not_skipped() -> None:
    assert "audio" in failure_of(chunk({"content": [{"type": "audio"}]})).message


def test_other_choices_than_the_first_are_not_mixed_in() -> None:
    other = event({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]})
    assert text_in(decode(text("o") + other + text("k") + chunk({}, "stop"))) == "ok"


def test_a_finish_reason_without_the_marker_is_a_whole_reply() -> None:
    """A-04a."""
    assert decode(text("done") + chunk({}, "stop"))[-1] == FinishChunk("stop")


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


def test_the_marker_without_a_finish_reason_ends_a_reply_without_calls() -> None:
    """A-04e."""
    assert decode(text("x") + DONE)[-1] == FinishChunk("stop", "[DONE]")


def test_a_connection_that_breaks_after_the_finish_reason_takes_nothing() -> None:
    """A-13c: what waits for the end of its line is dropped then."""
    decoder = StreamDecoder()
    decoder.feed(text("x") + chunk({}, "stop") + b'data: {"choi')
    assert decoder.complete
    assert decoder.close(cut=True)[-1] == FinishChunk("stop")


@pytest.mark.parametrize(
    "stream", [b"", b": nothing\n\n: yet\n\n", b"data:\n\n", DONE], ids=["", "comments", "no data", "done"]
)
def test_a_stream_without_any_reply_is_called_empty(stream: bytes) -> None:
    """A-06c."""
    failure = failure_of(stream)
    assert (failure.error_kind, "empty" in failure.message) == ("provider.badStream", True)


def test_nothing_after_the_marker_counts() -> None:
    decoder = StreamDecoder()
    assert decoder.feed(reply("x") + text("y"))[-1] == FinishChunk("stop")
    assert decoder.done
    assert decoder.feed(text("z") + b"data: rubbish\n\n") == decoder.close() == []


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
    decoder = StreamDecoder()
    decoder.feed(text("a") + b"data: x\n\n")
    failure = decoder.failure
    for again in (lambda: decoder.feed(b""), decoder.close):
        with pytest.raises(ProviderError) as caught:
            again()
        assert caught.value is failure


def test_a_failure_behind_chunks_is_known_without_another_call() -> None:
    for rest in (b"data: x\n\n", b'data: {"x":"' + b"y" * (33 << 20)):
        decoder = StreamDecoder()
        assert decoder.feed(text("a") + rest)
        assert decoder.failure is not None


def test_numbers_that_are_not_json_are_not_read() -> None:
    """A-15: also where a lone half makes the lenient scanner read the event."""
    stream = b'data: {"choices":[{"delta":{"content":"\\ud83d"}}],"n":NaN}\n\n'
    assert "not JSON" in failure_of(stream + chunk({}, "stop")).message


def test_an_event_larger_than_the_limit_is_a_failure_behind_what_came_before() -> None:
    """A-13e."""
    chunks, failure = decode_until_failure(text("a") + b'data: {"x":"', *[b"y" * (1 << 20)] * 33)
    assert text_in(chunks) == "a"
    assert failure is not None
    assert "33,554,432 bytes" in failure.message


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", FinishChunk("stop")),
        ("length", FinishChunk("length")),
        ("content_filter", FinishChunk("content-filter")),
        ("tool_calls", FinishChunk("tool-calls")),
        ("model_length", FinishChunk("other", "model_length")),
    ],
)
def test_finish_reasons_are_translated_or_kept(reason: str, finish: FinishChunk) -> None:
    """A-09b, c, f."""
    assert decode(text("x") + chunk({"content": ""}, reason) + DONE)[-1] == finish


def test_a_reply_that_the_provider_broke_off_is_a_failure_behind_its_text() -> None:
    """A-09d."""
    chunks, failure = decode_until_failure(text("abc") + chunk({}, "insufficient_system_resource") + DONE)
    assert text_in(chunks) == "abc"
    assert failure is not None
    assert failure.error_kind == "provider.overloaded"


def test_thinking_alone_is_a_finished_reply() -> None:
    """A-09e."""
    chunks = decode(chunk({"reasoning_content": "so 4"}) + chunk({"content": ""}, "stop") + DONE)
    assert (reasoning_in(chunks), chunks[-1]) == ("so 4", FinishChunk("stop"))


def test_an_empty_finish_reason_is_none() -> None:
    assert failure_of(chunk({"content": "x"}, "")).error_kind == "provider.badStream"


def test_a_refusal_is_text_with_a_reason_of_its_own() -> None:
    chunks = decode(chunk({"refusal": "I won't"}) + chunk({}, "stop") + DONE)
    assert (text_in(chunks), chunks[-1]) == ("I won't", FinishChunk("refusal", "stop"))


def test_halves_of_a_character_in_two_deltas_are_joined() -> None:
    """A-14b."""
    halves = [b'data: {"choices":[{"delta":{"content":"' + half + b'"}}]}\n\n' for half in (b"a\\ud83d", b"\\ude42b")]
    assert text_in(decode(*halves, chunk({}, "stop"))) == "a🙂b"


def test_a_lone_half_becomes_a_replacement_character_before_the_chunk_is_given() -> None:
    """A-14: also at the end of a block, in thinking, and in a name."""
    lone = b'data: {"choices":[{"delta":{"content":"x\\ud83d"}}]}\n\n'
    assert text_in(decode(lone, text("y"), chunk({}, "stop"))) == "x\ufffdy"
    assert text_in(decode(lone, chunk({}, "stop"))) == "x\ufffd"
    thought = b'data: {"choices":[{"delta":{"reasoning":"\\ude42"}}]}\n\n'
    assert reasoning_in(decode(thought, chunk({}, "stop"))) == "\ufffd"
    assert text_in(decode(lone, calls(call(0, "c", "f", "{}")), chunk({}, "stop"))) == "x\ufffd"


@given(st.lists(st.sampled_from(["a", "那", "🙂", "\ud83d", "\ude42", '"', "\\", "\n"]), max_size=8))
def test_whatever_halves_come_every_chunk_is_valid_unicode(pieces: list[str]) -> None:
    stream = b"".join(b'data: {"choices":[{"delta":{"content":' + json.dumps(piece).encode() + b"}}]}\n\n" for piece in pieces)
    text_in(decode(stream + chunk({}, "stop"))).encode()


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
