"""A chat-completions stream becomes chunks, however it is written and cut (cases A-01, A-02, A-04, A-09, A-14)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.chat_completions import ChatCompletionsDecoder, resolve_options
from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import (
    BlockEnd,
    BlockStart,
    FinishChunk,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
)
from tests.support.chat_stream import (
    DONE,
    call,
    calls,
    chunk,
    decode,
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


def test_a_reply_is_a_block_of_text_and_a_finish() -> None:
    assert decode(chunk({"role": "assistant", "content": ""}) + text("a") + text("b") + chunk({}, "stop") + DONE) == [
        BlockStart(0, "text"),
        TextDelta(0, "a"),
        TextDelta(0, "b"),
        BlockEnd(0),
        FinishChunk("stop"),
    ]


def test_chunks_are_given_as_soon_as_their_event_is_complete() -> None:
    decoder = ChatCompletionsDecoder()
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


def test_other_choices_than_the_first_are_not_mixed_in() -> None:
    other = event({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]})
    assert text_in(decode(text("o") + other + text("k") + chunk({}, "stop"))) == "ok"


def test_a_finish_reason_without_the_marker_is_a_whole_reply() -> None:
    """A-04a."""
    assert decode(text("done") + chunk({}, "stop"))[-1] == FinishChunk("stop")


def test_the_marker_without_a_finish_reason_ends_a_reply_without_calls() -> None:
    """A-04e."""
    assert decode(text("x") + DONE)[-1] == FinishChunk("stop", "[DONE]")


def test_a_connection_that_breaks_after_the_finish_reason_takes_nothing() -> None:
    """A-13c: what waits for the end of its line is dropped then."""
    decoder = ChatCompletionsDecoder()
    decoder.feed(text("x") + chunk({}, "stop") + b'data: {"choi')
    assert decoder.complete
    assert decoder.close(cut=True)[-1] == FinishChunk("stop")


def test_nothing_after_the_marker_counts() -> None:
    decoder = ChatCompletionsDecoder()
    assert decoder.feed(reply("x") + text("y"))[-1] == FinishChunk("stop")
    assert decoder.done
    assert decoder.feed(text("z") + b"data: rubbish\n\n") == decoder.close() == []


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", FinishChunk("stop")),
        ("length", FinishChunk("length")),
        ("content_filter", FinishChunk("content-filter")),
        ("model_length", FinishChunk("length", "model_length")),
        ("end_turn", FinishChunk("stop", "end_turn")),
        ("eager", FinishChunk("other", "eager")),
    ],
)
def test_finish_reasons_are_translated_or_kept(reason: str, finish: FinishChunk) -> None:
    """A-09b, c, f."""
    assert decode(text("x") + chunk({"content": ""}, reason) + DONE)[-1] == finish


def test_thinking_alone_is_a_finished_reply() -> None:
    """A-09e."""
    chunks = decode(chunk({"reasoning_content": "so 4"}) + chunk({"content": ""}, "stop") + DONE)
    assert (reasoning_in(chunks), chunks[-1]) == ("so 4", FinishChunk("stop"))


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
    pieces = ["a", *pieces]
    stream = b"".join(b'data: {"choices":[{"delta":{"content":' + json.dumps(piece).encode() + b"}}]}\n\n" for piece in pieces)
    text_in(decode(stream + chunk({}, "stop"))).encode()


THINKS = chunk({"content": "<thi"}) + chunk({"content": "nk>hm</th"}) + chunk({"content": "ink>\n\n4"})


def contents(data: bytes, way: str) -> list[tuple[str, str]]:
    decoder = ChatCompletionsDecoder(options=resolve_options({"reasoning_tags": way}))
    blocks = assemble([*decoder.feed(data), *decoder.close()]).content
    return [(type(block).__name__, block.text) for block in blocks if isinstance(block, TextBlock | ReasoningBlock)]


def test_thinking_between_tags_at_the_head_of_the_text_is_thinking() -> None:
    data = THINKS + chunk({}, "stop") + DONE
    assert contents(data, "head") == [("ReasoningBlock", "hm"), ("TextBlock", "4")]
    assert contents(data, "off") == [("TextBlock", "<think>hm</think>\n\n4")]


def test_a_template_that_opens_the_tag_itself_is_an_option() -> None:
    data = chunk({"content": "hm</think>4"}) + chunk({}, "stop") + DONE
    assert contents(data, "open") == [("ReasoningBlock", "hm"), ("TextBlock", "4")]
    assert contents(data, "head") == [("TextBlock", "hm</think>4")]


@pytest.mark.parametrize("size", [1, 3])
def test_what_was_held_back_of_a_head_comes_before_a_call_and_before_a_cut(size: int) -> None:
    options = resolve_options({})
    decoder = ChatCompletionsDecoder(options=options)
    data = chunk({"content": "<thi"}) + calls(call(0, "c", "read_file", "{}")) + chunk({}, "tool_calls") + DONE
    content = assemble([one for at in range(0, len(data), size) for one in decoder.feed(data[at : at + size])]).content
    assert [type(block).__name__ for block in content] == ["TextBlock", "ToolCallBlock"]
    cut = ChatCompletionsDecoder(options=options)
    chunks = [*cut.feed(chunk({"content": "<think>hm </thi"})), *cut.close(cut=True)]
    assert assemble(chunks).content == (ReasoningBlock("hm </thi"),)
    assert cut.failure is not None
