"""No eight characters of a secret in a row leave the process, wherever a text was cut."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

from refold_server.secret_text import MARK, PIECE, SECRETS, ScrubbingFormatter, Secrets

KEY = "sk-live-9f8e7d6c5b4a3210"
TEXTS = st.text(alphabet=f"{KEY} .{MARK}", max_size=60)


def secrets(*known: str) -> Secrets:
    found = Secrets()
    for one in known:
        found.add(one)
    return found


def test_a_secret_goes_and_what_stands_around_it_stays() -> None:
    assert secrets(KEY).scrub(f"bad key {KEY}, {KEY}{KEY}!") == f"bad key {MARK}, {MARK}!"
    assert secrets().scrub(KEY) == KEY


def test_of_a_header_the_last_word_is_the_secret() -> None:
    assert secrets(f"Bearer {KEY}").scrub(f"Bearer {KEY}") == f"Bearer {MARK}"


def test_a_secret_in_an_address_goes_as_well() -> None:
    assert secrets("a/b+c=d/e+f").scrub("https://h/?key=a%2Fb%2Bc%3Dd%2Fe%2Bf") == f"https://h/?key={MARK}"


def test_a_short_secret_goes_as_a_whole_and_a_shorter_one_is_none() -> None:
    assert secrets("s3cr3t").scrub("s3cr3t, s3cr3") == f"{MARK}, s3cr3"
    assert secrets("abc", "").scrub("abc") == "abc"


@given(TEXTS, st.integers(0, len(KEY)), st.integers(0, len(KEY)), TEXTS)
def test_no_piece_is_left_wherever_the_text_was_cut(before: str, begin: int, end: int, after: str) -> None:
    scrubbed = secrets(KEY).scrub(before + KEY[begin:end] + after)
    assert not any(KEY[at : at + PIECE] in scrubbed for at in range(len(KEY) - PIECE + 1))


def test_log_lines_and_tracebacks_hold_no_secret() -> None:
    SECRETS.add(KEY)
    try:
        raise ValueError(f"bad {KEY}")
    except ValueError as error:
        fields = {"msg": f"saw {KEY}", "exc_info": (type(error), error, error.__traceback__)}
    line = ScrubbingFormatter("%(message)s").format(logging.makeLogRecord(fields))
    assert KEY[:PIECE] not in line
    assert f"ValueError: bad {MARK}" in line
