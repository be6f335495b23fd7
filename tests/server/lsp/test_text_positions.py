"""D-06: positions in three encodings name the right places, whatever a client counts, and whatever it gets wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.rpc.lsp_types import Position, Range
from refold_server.lsp.text_positions import Splice, difference, place_of, position_of, span_of, spliced, text_edits

ENCODINGS = ("utf-8", "utf-16", "utf-32")
CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
TEXTS = st.text(st.sampled_from("ab \té世😋\u2028\x0c\x85\n\r"), max_size=30) | st.lists(
    st.sampled_from(["abc", "😋", "é", "\n", "\r\n", "\r"]), max_size=20
).map("".join)

every_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


def units(text: str, encoding: str) -> int:
    """Count the units of a text by encoding it."""
    codec, size = CODECS[encoding]
    return len(text.encode(codec)) // size


def position_by_encoding(text: str, place: int, encoding: str) -> Position:
    """Give the position of a place in another way: split into lines, encode, count."""
    lines = re.split("\r\n|\n|\r", text[:place])
    return Position(len(lines) - 1, units(lines[-1], encoding))


def inside_break(text: str, place: int) -> bool:
    return text[place - 1 : place + 1] == "\r\n"


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 7), ("utf-16", 5), ("utf-32", 4)])
def test_d06_an_insertion_behind_an_emoji_lands_there(encoding: str, column: int) -> None:
    at = place_of('x="😋"', Position(0, column), encoding)
    assert spliced('x="😋"', [Splice(at, at, "Z")]) == 'x="😋Z"'


@pytest.mark.parametrize(
    ("encoding", "column", "place"),
    [("utf-16", 2, 1), ("utf-16", 1, 0), ("utf-16", 3, 1), ("utf-8", 4, 1), ("utf-8", 3, 0), ("utf-8", 5, 1), ("utf-32", 1, 1)],
)
def test_d06_a_position_inside_a_character_is_its_start(encoding: str, column: int, place: int) -> None:
    assert place_of("😋😋", Position(0, column), encoding) == place


@every_encoding
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_d06_a_column_past_the_end_is_the_end_of_the_line_before_its_break(encoding: str, end: str) -> None:
    for line in ("abc", "a😋é"):
        text = f"{line}{end}"
        for beyond in (units(line, encoding), units(line, encoding) + 1, units(line, encoding) + 2, 999):
            assert place_of(text, Position(0, beyond), encoding) == 3


@every_encoding
def test_a_line_past_the_last_is_the_end_of_the_text(encoding: str) -> None:
    for text in ("", "a", "a\n", "a\r\nb😋"):
        assert place_of(text, Position(99, 0), encoding) == len(text)
        assert place_of(text, Position(99, 7), encoding) == len(text)


@every_encoding
def test_the_empty_line_behind_the_last_break_is_a_line(encoding: str) -> None:
    assert place_of("a\n", Position(1, 0), encoding) == 2
    assert position_of("a\n", 2, encoding) == Position(1, 0)


@every_encoding
def test_lines_end_where_lsp_says_and_not_where_python_says(encoding: str) -> None:
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\nh"
    assert place_of(text, Position(1, 0), encoding) == len(text) - 1
    assert position_of(text, len(text) - 1, encoding) == Position(1, 0)


@every_encoding
def test_d06_a_range_over_two_lines_with_crlf_takes_the_break_between_them(encoding: str) -> None:
    text = "one😋\r\ntwo\r\nthree"
    start, end = span_of(text, Range(position_by_encoding(text, 4, encoding), Position(1, 1)), encoding)
    assert spliced(text, [Splice(start, end, "-")]) == "one😋-wo\r\nthree"


def test_a_range_that_runs_backwards_is_turned_round() -> None:
    assert span_of("abc", Range(Position(0, 2), Position(0, 1)), "utf-16") == (1, 2)


@every_encoding
@given(text=TEXTS, data=st.data())
def test_every_place_has_a_position_and_the_position_names_the_place(encoding: str, text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    position = position_of(text, place, encoding)
    if inside_break(text, place):
        assert position == position_of(text, place - 1, encoding)
    else:
        assert position == position_by_encoding(text, place, encoding)
        assert place_of(text, position, encoding) == place


@every_encoding
@given(text=TEXTS, line=st.integers(0, 12), column=st.integers(0, 60))
def test_every_position_is_a_place_outside_of_line_breaks(encoding: str, text: str, line: int, column: int) -> None:
    place = place_of(text, Position(line, column), encoding)
    assert 0 <= place <= len(text)
    assert not inside_break(text, place)
    named = position_of(text, place, encoding)
    assert (named.line, named.character) <= (line, column)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_long_documents_are_found_on_either_side_of_a_block(end: str) -> None:
    text = "".join(f"line {number}{end}" for number in range(3000))
    for line in (0, 1, 400, 511, 512, 513, 2047, 2999):
        place = place_of(text, Position(line, 0), "utf-16")
        assert text.startswith(f"line {line}{end}", place)
        assert position_of(text, place, "utf-16") == Position(line, 0)
    assert place_of(text, Position(3000, 0), "utf-16") == len(text)


@pytest.mark.parametrize("padding", range(4090, 4100))
def test_a_line_break_that_lies_across_a_block_counts_once(padding: int) -> None:
    text = f"{'x' * padding}\r\nb\r\nc"
    assert text[place_of(text, Position(1, 0), "utf-8") :] == "b\r\nc"
    assert text[place_of(text, Position(2, 0), "utf-8") :] == "c"


def test_half_a_surrogate_pair_counts_as_what_stands_for_it() -> None:
    assert place_of("a\ud83d!", Position(0, 2), "utf-16") == 2
    assert place_of("a\ud83d!", Position(0, 4), "utf-8") == 2


@given(before=TEXTS, after=TEXTS)
def test_the_difference_of_two_texts_makes_one_of_the_other(before: str, after: str) -> None:
    splices = difference(before, after)
    assert spliced(before, splices) == after
    assert len(splices) == (before != after)
    assert not any(inside_break(before, one.start) or inside_break(before, one.end) for one in splices)


def test_the_difference_is_no_larger_than_what_changed() -> None:
    assert difference("one\ntwo\nthree", "one\n2\nthree") == (Splice(4, 7, "2"),)
    assert difference("aa", "aaa") == (Splice(2, 2, "a"),)


@every_encoding
@given(before=TEXTS, after=TEXTS)
def test_an_edit_says_in_positions_what_was_meant_in_places(encoding: str, before: str, after: str) -> None:
    edits = text_edits(before, difference(before, after), encoding)
    places = [(*span_of(before, edit.range, encoding), edit.new_text) for edit in edits]
    assert spliced(before, [Splice(*place) for place in places]) == after


@pytest.mark.parametrize("splices", [[Splice(2, 3, ""), Splice(1, 2, "")], [Splice(2, 1, "")], [Splice(0, 9, "")]])
def test_replacements_that_overlap_or_lie_outside_are_refused(splices: list[Splice]) -> None:
    with pytest.raises(ValueError, match="overlaps another or lies outside"):
        spliced("abc", splices)
