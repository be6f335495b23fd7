"""Halves of surrogate pairs are joined, or replaced, before anything else sees them (case A-14)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.sse import TextRepair
from refold_protocol.json_text import repair_surrogates


def repaired(*pieces: str) -> str:
    repair = TextRepair()
    return "".join(repair.feed(piece) for piece in pieces) + repair.close()


def test_two_halves_in_two_pieces_are_one_character() -> None:
    assert repaired("a\ud83d", "\ude42b") == "a🙂b"


def test_a_high_half_waits_for_the_next_piece() -> None:
    repair = TextRepair()
    assert (repair.feed("a\ud83d"), repair.pending) == ("a", "\ud83d")
    assert (repair.feed("\ude42"), repair.pending) == ("🙂", "")


def test_a_half_without_its_other_half_becomes_one_replacement_character() -> None:
    assert repaired("\ud83d", "x") == "\ufffdx"
    assert repaired("\ude42x") == "\ufffdx"
    assert repaired("x\ud83d") == "x\ufffd"
    assert repaired("\ud83d", "\ud83d", "\ude42") == "\ufffd🙂"


@given(st.lists(st.text(alphabet="a🙂\ud83d\ude42", max_size=4), max_size=5))
def test_pieces_give_what_the_whole_text_gives(pieces: list[str]) -> None:
    result = repaired(*pieces)
    result.encode()  # valid Unicode
    assert result == repair_surrogates("".join(pieces))
