"""A body that expands is read in bounded steps, and no more of it than is wanted."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import ProviderError
from refold_server.providers.answer_body import STEP_BYTES, Inflater, can_decode


def inflated(encoding: str, data: bytes, step: int = 1 << 20) -> bytes:
    inflater = Inflater(encoding)
    return b"".join(piece for at in range(0, len(data), step) for piece in inflater.feed(data[at : at + step]))


def raw_deflate(data: bytes) -> bytes:
    maker = zlib.compressobj(wbits=-15)
    return maker.compress(data) + maker.flush()


@given(st.binary(max_size=2000), st.integers(1, 50), st.integers(1, 400))
def test_a_body_in_any_pieces_is_what_was_compressed(data: bytes, step: int, times: int) -> None:
    data *= times
    assert inflated("gzip", gzip.compress(data), step) == data
    assert inflated("gzip", gzip.compress(data) + gzip.compress(b"more") + b"\0\0", step) == data + b"more"
    assert inflated("deflate", zlib.compress(data), step) == data
    assert inflated("deflate", raw_deflate(data), step) == data


def test_a_bomb_is_expanded_as_far_as_it_is_read() -> None:
    """200 MB of zeros in 200 kB: each piece is bounded, and nothing is expanded before it is asked for."""
    bomb = gzip.compress(bytes(200 << 20))
    pieces = Inflater("gzip").feed(bomb)
    assert [len(next(pieces)) for _ in range(3)] == [STEP_BYTES] * 3


def test_what_is_no_compressed_body_is_told() -> None:
    with pytest.raises(ProviderError) as caught:
        inflated("gzip", b"plain text")
    assert caught.value.error_kind == "provider.badStream"


@pytest.mark.parametrize(("encoding", "readable"), [("", True), ("gzip", True), ("gzip, gzip", False), ("br", False)])
def test_a_chain_of_encodings_is_not_undone(encoding: str, readable: bool) -> None:
    assert can_decode(encoding) is readable
