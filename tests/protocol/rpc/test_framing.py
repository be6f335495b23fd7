"""Framing: frames come out whole wherever the stream is cut, however the header is written, and never by a character count.

Case D-03, inputs (a) to (h).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.rpc.framing import (
    HEAD_BYTES,
    MAX_HEADER_BYTES,
    MAX_LENGTH,
    Broken,
    Frame,
    FrameEvent,
    FrameReader,
    TooLarge,
    encode_frame,
)

BODY = '{"jsonrpc":"2.0","id":1,"method":"x","params":{"t":"é世🙂"}}'.encode()


def read(*pieces: bytes, limit: int = 1 << 20) -> list[FrameEvent]:
    reader = FrameReader(limit)
    return [event for piece in pieces for event in reader.feed(piece)]


def framed(header: bytes, body: bytes = BODY) -> bytes:
    return header.replace(b"@", str(len(body)).encode()) + b"\r\n\r\n" + body


headers = st.sampled_from(
    [
        b"Content-Length: @",
        b"content-length:   @",
        b"CONTENT-LENGTH:@\t",
        b"Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length: @",
        b"Content-Length: @\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8",
        b"X-Anything: a:b:c\r\nContent-Length : @\r\nX-Empty:",
        b"\r\nContent-Length: @",
        b"\r\n\r\nContent-Length: @\r\nContent-Length: @",
        b"\nX-Lone: line feeds\nContent-Length: @",
        b"Content-Length: 000@",
    ]
)


@given(frames=st.lists(st.tuples(headers, st.binary(max_size=300)), max_size=5), data=st.data())
def test_frames_come_out_whole_wherever_the_stream_is_cut(frames: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    stream = b"".join(framed(header, body) for header, body in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*pieces) == [Frame(body) for _, body in frames]


def test_d03_a_frame_that_comes_byte_by_byte_is_read() -> None:
    assert read(*(bytes([byte]) for byte in framed(b"Content-Length: @") * 2)) == [Frame(BODY)] * 2


def test_d03_lone_line_feeds_end_header_lines_too() -> None:
    assert read(b"Content-Length: 2\n\n{}Content-Length: 2\n\r\n{}") == [Frame(b"{}")] * 2


def test_d03_one_frame_and_a_half_give_one_frame_now_and_one_later() -> None:
    reader = FrameReader()
    frame = encode_frame(BODY)
    assert reader.feed(frame + frame[:20]) == [Frame(BODY)]
    assert reader.feed(frame[20:]) == [Frame(BODY)]


def test_d03_the_length_counts_bytes() -> None:
    assert encode_frame("é".encode()) == b"Content-Length: 2\r\n\r\n\xc3\xa9"


def test_d03_a_body_of_20_mib_in_small_pieces_is_read_without_looking_at_a_byte_twice() -> None:
    body = b"x" * (20 << 20)
    stream = encode_frame(body)
    pieces = [stream[start : start + 65_536] for start in range(0, len(stream), 65_536)]
    assert read(*pieces, limit=32 << 20) == [Frame(body)]


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: -5",
        b"Content-Length: abc",
        b"Content-Length:",
        b"Content-Length: 5 5",
        b"Content-Length: 5_0",
        b"Content-Length: +5",
        b"Content-Length: \xd9\xa5",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: %d" % (MAX_LENGTH + 1),
        b"Content-Length: " + b"9" * 5000,
        b"Content-Type: text/plain",
        b"no colon",
        b"two words: 1",
        b'{"jsonrpc":"2.0"}',
        b": 5",
    ],
)
@given(cut=st.integers(0, 60))
def test_d03_after_a_broken_header_there_is_one_error_and_nothing_more(header: bytes, cut: int) -> None:
    stream = framed(header) + encode_frame(BODY)
    first, *others = read(stream[:cut], stream[cut:])
    assert isinstance(first, Broken)
    assert not others


def test_json_without_a_header_is_named_as_what_it_is() -> None:
    (broken,) = read(BODY + b"\n")
    assert isinstance(broken, Broken)
    assert "one JSON text a line" in broken.reason


@pytest.mark.parametrize("filler", [b"x", b"X-Header: x\r\n", b"X-"])
def test_a_header_that_does_not_end_is_given_up(filler: bytes) -> None:
    reader = FrameReader()
    events: list[FrameEvent] = []
    for _ in range(0, 4 * MAX_HEADER_BYTES, len(filler)):
        events += reader.feed(filler)
    assert [type(event) for event in events] == [Broken]


@given(length=st.integers(101, 3 * HEAD_BYTES), cut=st.integers(0, 3 * HEAD_BYTES))
def test_a_body_above_the_limit_is_skipped_by_its_length_and_the_stream_goes_on(length: int, cut: int) -> None:
    body = (b'{"id":1,"method":"x","params":"' + b"y" * length)[:length]
    stream = encode_frame(body) + encode_frame(b"{}")
    assert read(stream[:cut], stream[cut:], limit=100) == [TooLarge(length, body[:HEAD_BYTES]), Frame(b"{}")]


def test_a_body_above_the_limit_is_told_as_soon_as_its_beginning_is_known() -> None:
    reader = FrameReader(limit=100)
    assert reader.feed(b"Content-Length: 100000\r\n\r\n" + b"z" * HEAD_BYTES) == [TooLarge(100_000, b"z" * HEAD_BYTES)]
    assert reader.mid_frame


def test_a_body_of_exactly_the_limit_is_taken() -> None:
    assert read(encode_frame(b"x" * 100), limit=100) == [Frame(b"x" * 100)]


def test_an_empty_body_is_a_frame() -> None:
    assert read(b"Content-Length: 0\r\n\r\n" + encode_frame(b"{}")) == [Frame(b""), Frame(b"{}")]


@pytest.mark.parametrize("piece", [b"", b"\r\n", b"  ", encode_frame(b"{}")])
def test_between_two_frames_the_stream_may_end(piece: bytes) -> None:
    reader = FrameReader()
    reader.feed(piece)
    assert not reader.mid_frame


@pytest.mark.parametrize("piece", [b"Content-Len", b"Content-Length: 3\r\n", b"X: y\r\n\r", encode_frame(b"{}")[:-1]])
def test_d01_inside_a_frame_the_stream_is_cut_if_it_ends(piece: bytes) -> None:
    reader = FrameReader()
    reader.feed(piece)
    assert reader.mid_frame


@given(pieces=st.lists(st.binary(max_size=200), max_size=20))
def test_no_garbage_raises_or_is_kept_for_ever(pieces: list[bytes]) -> None:
    reader = FrameReader(limit=50)
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert sum(isinstance(event, Broken) for event in events) <= 1
