"""Finding a passage as a model means it, and putting another in its place: `str.replace`, whatever ends the lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.tools.text_match import Lines, has_crlf_only, hint, seen_form

LF = st.text("ab\n", max_size=15)
OLD = st.text("ab\n", min_size=1, max_size=3)
MIXED = st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=15).map("".join)
ANY = st.text(st.sampled_from("ab\r\n\ufeff\u2028😀"), max_size=15)


def replaced(text: str, old: str, new: str, *, every: bool) -> str:
    return Lines(text).replaced(old, new, every=every)


@given(LF, OLD, LF, st.booleans())
def test_it_is_what_str_replace_gives(text: str, old: str, new: str, every: bool) -> None:
    assert replaced(text, old, new, every=every) == text.replace(old, new, -1 if every else 1)


@given(LF, OLD, LF, st.booleans())
def test_in_a_file_with_crlf_it_is_the_same_with_crlf(text: str, old: str, new: str, every: bool) -> None:
    crlf = ("x\n" + text).replace("\n", "\r\n")
    expected = ("x\n" + text).replace(old, new, -1 if every else 1)
    assert replaced(crlf, old, new, every=every) == expected.replace("\n", "\r\n")


@given(MIXED, OLD, LF, st.booleans())
def test_in_a_file_that_mixes_both_what_a_model_sees_is_as_meant(text: str, old: str, new: str, every: bool) -> None:
    expected = seen_form(text).replace(old, new, -1 if every else 1)
    assert seen_form(replaced(text, old, new, every=every)) == expected


@given(MIXED, OLD, LF)
def test_all_around_a_passage_stays_to_the_byte(text: str, old: str, new: str) -> None:
    after = replaced(text, old, new, every=False)
    start = seen_form(text).find(old)
    if start < 0:
        assert after == text
        return
    before = seen_form(text)[:start]
    head = next(text[:at] for at in range(len(text) + 1) if seen_form(text[:at]) == before and text[at - 1 : at + 1] != "\r\n")
    tail = text[len(head) :]
    for at in range(len(tail) + 1):
        if seen_form(tail[:at]) == old and tail[at - 1 : at + 1] != "\r\n":
            tail = tail[at:]
            break
    assert after.startswith(head.removesuffix("\r"))
    assert after.endswith(tail)


@given(ANY, ANY.filter(bool), ANY)
def test_a_text_without_the_passage_stays_as_it_is(text: str, old: str, new: str) -> None:
    if seen_form(old) not in seen_form(text):
        assert replaced(text, old, new, every=True) == text


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\r\nb\nc\r\n", "a\nb\nc", "a\nX\nc", "a\r\nX\nc\r\n"),  # what stays in a passage keeps its own breaks
        ("a\r\nb\r\n", "a\r\nb", "x\ny\nz", "x\r\ny\r\nz\r\n"),
        ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
        ("a\nb\r\nc", "c", "c\nd", "a\nb\r\nc\r\nd"),  # no break follows: that before it
        ("a\nb\r\nc", "a", "a\nd", "a\nd\nb\r\nc"),
        ("one", "one", "one\ntwo", "one\ntwo"),
        ("a\r\n\r\nb", "\n\n", "\n", "a\r\nb"),
    ],
)
def test_new_line_breaks_are_those_of_the_place(text: str, old: str, new: str, expected: str) -> None:
    assert replaced(text, old, new, every=False) == expected


def test_places_are_told_even_when_they_overlap() -> None:
    lines = Lines("aaa\r\naa")
    assert [lines.line_at(at) for at in lines.places("aa")] == [1, 1, 2]


@pytest.mark.parametrize(
    ("text", "is_so"), [("", False), ("a", False), ("a\r\n", True), ("a\r\nb\n", False), ("\n", False), ("\r\n\r\r\n", True)]
)
def test_a_text_of_crlf_lines_is_known(text: str, is_so: bool) -> None:
    assert has_crlf_only(text) is is_so


@pytest.mark.parametrize(
    ("text", "old", "said"),
    [
        ("x\n", "   12\tx", " Leave out the line numbers and tabs that read_file puts in front of lines."),
        (
            "a\n\tif x:\n",
            "  if x:\n    y",
            " Its first line is like line 2; look at the white space, and at the lines that follow.",
        ),
        ("one\ndef feed(turtle):\n", "def feed(tortoise):", " The line most like its first is line 2: def feed(turtle):"),
        ("one\n", "nothing at all like it", ""),
        ("one\n", " \n", ""),
    ],
)
def test_a_passage_that_is_not_there_gives_a_hint(text: str, old: str, said: str) -> None:
    assert hint(text, old) == said
