"""`Retry-After` is read in each form that occurs, rounded up, and ignored where it is nonsense (case A-06)."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.providers.http_failures import retry_after_ms

NOW = 1_790_000_000.25


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("2", 2000),
        (" 0 ", 0),
        ("1.5", 2000),
        ("0.001", 1000),
        ("86400", 86_400_000),
        (formatdate(1_790_000_003, usegmt=True), 3000),
        (formatdate(1_790_000_003, usegmt=False), 3000),
        (formatdate(1_789_999_000, usegmt=True), 0),
        ("soon", None),
        ("-1", None),
        ("1e3", None),
        ("١", None),
        ("", None),
        ("99999999999999", None),
        ("Mon, 99 Foo 2026 00:00:00 GMT", None),
    ],
)
def test_seconds_and_dates_are_read_and_nonsense_is_not(value: str, wait: int | None) -> None:
    assert retry_after_ms({"retry-after": value}, NOW) == wait


def test_no_header_says_nothing() -> None:
    assert retry_after_ms({}, NOW) is None


def test_milliseconds_go_first_where_they_are_a_number() -> None:
    assert retry_after_ms({"retry-after-ms": "1234.5", "retry-after": "9"}, NOW) == 1235
    assert retry_after_ms({"retry-after-ms": "x", "retry-after": "9"}, NOW) == 9000


def test_a_date_is_taken_by_the_clock_of_the_server_that_gave_it() -> None:
    headers = {"retry-after": formatdate(1_700_000_010, usegmt=True), "date": formatdate(1_700_000_000, usegmt=True)}
    assert retry_after_ms(headers, NOW) == 10_000


@given(st.text(max_size=40))
def test_no_value_whatsoever_raises(value: str) -> None:
    wait = retry_after_ms({"retry-after": value, "date": value, "retry-after-ms": value}, NOW)
    assert wait is None or wait >= 0
