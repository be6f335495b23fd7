"""Server-sent events are found in a stream however it is written and wherever it is cut (cases A-01, A-02, A-13e)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.sse import MAX_EVENT_BYTES, SseDecoder
from refold_protocol.errors import ProviderError

J = b'{"content":"ok"}'
OK = J.decode()

SHAPES: dict[str, tuple[bytes, list[str]]] = {
    "A-02 plain": (b"data: " + J + b"\n\n", [OK]),
    "A-02a CRLF everywhere": (b"data: " + J + b"\r\n\r\ndata: b\r\n\r\n", [OK, "b"]),
    "A-02c lone CR": (b"data: " + J + b"\r\rdata: b\r\r", [OK, "b"]),
    "A-02d no space": (b"data:" + J + b"\n\n", [OK]),
    "A-02d one space of two is removed": (b"data:  x\n\n", [" x"]),
    "A-02e comments first": (b": keep-alive\n\n" * 3 + b"data: " + J + b"\n\n", [OK]),
    "A-02e a comment inside an event": (b":\ndata: " + J + b"\n: x\n\n", [OK]),
    "A-02f a retry event": (b"retry: 3000\n\ndata: " + J + b"\n\n", [OK]),
    "A-02f an event without data": (b"event: x\n\ndata: " + J + b"\n\n", [OK]),
    "A-02f empty data": (b"data:\n\ndata: \n\ndata\n\ndata: " + J + b"\n\n", [OK]),
    "A-02g two data lines": (b'data: {"choices":\ndata: []}\n\n', ['{"choices":\n[]}']),
    "A-02g an empty data line between": (b"data: a\ndata\ndata: b\n\n", ["a\n\nb"]),
    "A-02h no blank line at the end": (b"data: a\n\ndata: " + J, ["a", OK]),
    "A-02h no blank line, but a line end": (b"data: " + J + b"\r", [OK]),
    "A-02b two data lines with CRLF": (b"data: a\r\ndata: b\r\n\r\n", ["a\nb"]),
    "fields around the data": (b"id: 7\nevent: m\ndata: x\nretry: 1\n\n", ["x"]),
    "three line feeds": (b"data: a\n\n\ndata: b\n\n", ["a", "b"]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    "a field whose name only begins like data": (b"database: x\n\ndata: a\n\n", ["a"]),
    "mixed line ends": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\n", ["a", "b", "c", "d"]),
    "line breaks that are none": ("data: a\u2028b\u2029c\x85d\x0be\x0cf\n\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf"]),
    "A-01 characters of several bytes": ("data: 那🙂é\n\n".encode(), ["那🙂é"]),
    "A-01 a byte that is no UTF-8": (b"data: a\xffb\n\n", ["a\ufffdb"]),
    "A-01 half a character at the end": (b"data: a\xf0\x9f\n\n", ["a\ufffd"]),
    "nothing": (b"", []),
}
WHOLE = b"".join(stream for stream, _ in SHAPES.values())


def decoded(*writes: bytes) -> list[str]:
    decoder = SseDecoder()
    events: list[str] = []
    for write in writes:
        events += decoder.feed(write)
    return events + decoder.close()


def drain(decoder: SseDecoder, writes: list[bytes]) -> None:
    for write in writes:
        decoder.feed(write)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_legal_shape_gives_its_events_once(shape: str) -> None:
    stream, events = SHAPES[shape]
    assert decoded(stream) == events


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_may_be_cut_at_any_byte(shape: str) -> None:
    stream, events = SHAPES[shape]
    for cut in range(len(stream) + 1):
        assert decoded(stream[:cut], stream[cut:]) == events, f"cut at {cut}"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_may_come_one_byte_per_write(shape: str) -> None:
    stream, events = SHAPES[shape]
    assert decoded(*(stream[at : at + 1] for at in range(len(stream)))) == events


def test_cr_and_lf_of_one_line_end_may_come_in_different_writes() -> None:
    """A-02b."""
    assert decoded(b"data: " + J + b"\r", b"\n\r", b"\ndata: b\n\n") == [OK, "b"]


def test_a_cr_ends_its_line_without_waiting_for_what_follows() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\r") == ["a"]


@given(st.lists(st.sampled_from(list(SHAPES.values())), max_size=6), st.data())
def test_cuts_never_change_the_events(shapes: list[tuple[bytes, list[str]]], data: st.DataObject) -> None:
    stream = b"".join(shape for shape, _ in shapes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decoded(*pieces) == decoded(stream)


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), min_size=1).filter(lambda t: not set(t) & set("\r\n")))
def test_any_text_without_line_ends_arrives_unchanged(text: str) -> None:
    assert decoded(b"data: " + text.encode() + b"\n\n") == [text]


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_no_bytes_whatsoever_break_the_decoder(writes: list[bytes]) -> None:
    assert decoded(*writes) == decoded(b"".join(writes))


@pytest.mark.parametrize("piece", [b"x" * 7, b"\ndata: yyyy"], ids=["one line", "many data lines"])
def test_an_event_that_never_ends_is_given_up_at_the_limit(piece: bytes) -> None:
    """A-13e."""
    decoder = SseDecoder(limit=100)
    decoder.feed(b"data: x")
    with pytest.raises(ProviderError, match="more than 100 bytes") as caught:
        drain(decoder, [piece] * 100)
    assert caught.value.error_kind == "provider.badStream"


def test_the_limit_is_told_in_the_call_that_reaches_it() -> None:
    with pytest.raises(ProviderError, match="more than 10 bytes"):
        SseDecoder(limit=10).feed(b"data: " + b"x" * 20)


def test_events_before_the_one_that_never_ends_are_delivered_first() -> None:
    decoder = SseDecoder(limit=10)
    assert decoder.feed(b"data: a\n\ndata: " + b"x" * 20) == ["a"]
    assert decoder.failure is not None
    with pytest.raises(ProviderError):
        decoder.feed(b"")


def test_a_long_line_below_the_limit_arrives_whole() -> None:
    """A-13d: a line of 3 MiB, in pieces as a socket gives them."""
    stream = b"data: " + b"x" * (3 << 20) + b"\n\n"
    assert len(stream) < MAX_EVENT_BYTES
    assert decoded(*(stream[at : at + 65536] for at in range(0, len(stream), 65536))) == ["x" * (3 << 20)]
