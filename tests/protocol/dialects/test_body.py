"""A body put together from fragments has the bytes and the digest of those bytes, at every moment of its growth."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.growing_body import Body, BodyFragments


@given(st.lists(st.lists(st.binary(min_size=1, max_size=4), max_size=3), max_size=5))
def test_bytes_and_digest_are_those_of_head_pieces_and_tail(groups: list[list[bytes]]) -> None:
    fragments = BodyFragments(b"[")
    pieces: list[bytes] = []
    for group in groups:
        fragments.add(group)
        pieces += group
        data = b"[" + b",".join(pieces) + b"]"
        assert fragments.finished(b"]") == fragments.finished(b"]") == Body(data, sha256(data).hexdigest())
