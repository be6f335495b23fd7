"""Keys have fixed widths and sort as what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.ids import SessionId
from refold_storage.record_keys import parse_recent_key, parse_record_key, recent_key, record_key, session_key

U64 = st.integers(0, 2**64 - 1)


@given(one=st.tuples(U64, U64), two=st.tuples(U64, U64))
def test_record_keys_sort_by_session_and_seq(one: tuple[int, int], two: tuple[int, int]) -> None:
    assert (record_key(*one) < record_key(*two)) == (one < two)
    assert parse_record_key(record_key(*one)) == one
    assert len(record_key(*one)) == 16


@given(one=st.tuples(U64, U64), two=st.tuples(U64, U64))
def test_recent_keys_sort_by_activity(one: tuple[int, int], two: tuple[int, int]) -> None:
    assert (recent_key(*one) < recent_key(*two)) == (one < two)
    assert parse_recent_key(recent_key(*one)) == one


def test_a_time_before_1970_or_after_all_times_has_a_key_too() -> None:
    assert parse_recent_key(recent_key(-5, 1)) == (0, 1)
    assert parse_recent_key(recent_key(2**70, 1)) == (2**64 - 1, 1)


@given(name=st.text(st.characters(), max_size=2_000))
def test_c_08_the_key_of_a_session_has_the_same_length_whatever_its_id(name: str) -> None:
    """C-08, also for text that is no valid Unicode."""
    assert len(session_key(SessionId(name))) == 32


@given(key=st.binary(max_size=40).filter(lambda key: len(key) != 16))
def test_a_key_of_another_length_is_damage(key: bytes) -> None:
    with pytest.raises(SessionCorruptionError):
        parse_record_key(key)
