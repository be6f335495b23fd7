"""Where two bodies differ first: the byte, the segment that holds it, and the words for a person."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.growing_body import Segment, common_prefix, excerpt, first_difference, segment_at

TWO = (Segment("config", 0, 4, name="model"), Segment("history", 4, 9, 6), Segment("tail", 9, 11))


@given(st.binary(max_size=40), st.binary(max_size=8), st.binary(max_size=8))
def test_the_common_prefix_is_that_of_the_two_texts(shared: bytes, one: bytes, other: bytes) -> None:
    left, right = shared + one, shared + other
    assert common_prefix(left, right) == len(list(takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))))


def test_equal_bodies_have_no_difference() -> None:
    assert first_difference(b"abcdefghijk", b"abcdefghijk", TWO) is None


def test_a_difference_names_its_byte_and_its_segment() -> None:
    found = first_difference(b"abcdeXghijk", b"abcdefghijk", TWO)
    assert found is not None
    assert (found.offset, found.segment) == (5, TWO[1])
    assert found.sentence == "byte 5, in history message 7: sent abcdeXghijk, rebuilt abcdefghijk"


def test_the_first_byte_of_a_segment_is_its_own() -> None:
    assert [segment_at(TWO, offset).kind for offset in (0, 3, 4, 8, 9, 10)] == [
        "config",
        "config",
        "history",
        "history",
        "tail",
        "tail",
    ]


def test_a_body_that_is_longer_differs_behind_the_end_of_the_other() -> None:
    found = first_difference(b"abcdefghijk!", b"abcdefghijk", TWO)
    assert found is not None
    assert (found.offset, found.segment.kind) == (11, "tail")
    assert found.sentence == "byte 11, in the closing brackets: sent abcdefghijk!, rebuilt abcdefghijk"


def test_an_excerpt_is_short_whole_and_printable() -> None:
    body = ("那" * 40 + "\x1b[31m" + "🙂" * 40).encode()
    shown = excerpt(body, 120)
    assert shown == "…" + "那" * 6 + "\\x1b[31m" + "🙂" * 9 + "…"


@given(st.binary(max_size=90), st.integers(0, 90))
def test_an_excerpt_of_any_bytes_is_printable(body: bytes, offset: int) -> None:
    assert excerpt(body, min(offset, len(body))).isprintable()
