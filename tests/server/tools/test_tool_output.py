"""The bound on output: E-03, A-14d and B-03d."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.messages import ImageBlock, ResultBlock, TextBlock
from refold_server.tools.tool_output import NO_OUTPUT, HeadTail, bound_text, settle, text_of

IMAGE = ImageBlock("image/png", "0" * 64)


def _texts(content: tuple[ResultBlock, ...]) -> list[str]:
    return [block.text for block in content if isinstance(block, TextBlock)]


def test_ten_million_characters_keep_head_and_tail_and_say_what_is_missing_e_03() -> None:
    text = "HEAD" + "y" * (10 << 20) + "TAIL"
    bound = bound_text(text, 50_000)
    assert 49_000 < len(bound) <= 50_000
    assert bound.startswith("HEAD")
    assert bound.endswith("TAIL")
    found = re.search(r"\n\[\.\.\. ([\d,]+) of ([\d,]+) characters left out here \.\.\.\]\n", bound)
    assert found is not None
    shown = len(bound) - len(found[0])
    assert int(found[1].replace(",", "")) == len(text) - shown
    assert int(found[2].replace(",", "")) == len(text)


def test_emoji_are_cut_between_characters_a_14d() -> None:
    bound = bound_text("🙂" * 5_000, 1_000)
    assert set(re.sub(r"\n\[.*\]\n", "", bound)) == {"🙂"}
    assert bound.encode("utf-8").decode("utf-8") == bound


def test_text_that_fits_is_left_alone() -> None:
    assert bound_text("a" * 50_000, 50_000) == "a" * 50_000


@given(pieces=st.lists(st.text(max_size=40), max_size=30), limit=st.integers(1, 200))
def test_pieces_give_the_same_as_the_whole(pieces: list[str], limit: int) -> None:
    keeper = HeadTail(limit)
    for piece in pieces:
        keeper.add(piece)
    assert keeper.text() == bound_text("".join(pieces), limit)
    assert keeper.cut == (len("".join(pieces)) > limit)
    assert len(keeper.text()) <= limit


def test_memory_is_bounded_however_long_the_text_is_e_03() -> None:
    keeper = HeadTail(100)
    for _ in range(10_000):
        keeper.add("ab")
        held = vars(keeper)
        assert len("".join(held["_head"])) <= 100
        assert len("".join(held["_tail"])) <= 102
    assert keeper.length == 20_000


def test_bytes_that_are_not_utf_8_become_marks_e_03() -> None:
    assert text_of(b"a\360\050\377b\n") == "a\ufffd(\ufffdb\n"


@pytest.mark.parametrize("content", [(), (TextBlock(""),), (TextBlock(" \n\t"), TextBlock(""))])
def test_output_without_anything_visible_becomes_a_fixed_note_b_03d(content: tuple[ResultBlock, ...]) -> None:
    assert settle(content, 100) == (TextBlock(NO_OUTPUT),)


def test_an_image_is_output_and_an_empty_text_beside_it_is_not() -> None:
    assert settle((TextBlock(""), IMAGE), 100) == (IMAGE,)


def test_halves_of_surrogate_pairs_are_joined_or_marked_a_14() -> None:
    assert settle((TextBlock("a\ud83d\ude42b\ud83d"),), 100) == (TextBlock("a🙂b\ufffd"),)


def test_blocks_keep_their_order_and_share_one_bound() -> None:
    content = (TextBlock("one"), IMAGE, TextBlock(""), TextBlock("two"))
    assert settle(content, 100) == (TextBlock("one"), IMAGE, TextBlock("two"))
    long = (TextBlock("a" * 300), IMAGE, TextBlock("b" * 300))
    settled = settle(long, 200)
    assert settled[1:] == (IMAGE,)
    (text,) = _texts(settled)
    assert len(text) <= 200
    assert text.startswith("a")
    assert text.endswith("b")


@given(
    content=st.lists(st.text(st.characters(), max_size=50).map(TextBlock) | st.just(IMAGE), max_size=6).map(tuple),
    limit=st.integers(12, 120),
)
def test_whatever_comes_can_be_recorded(content: tuple[ResultBlock, ...], limit: int) -> None:
    settled = settle(content, limit)
    texts = _texts(settled)
    assert settled
    assert all(text.strip() for text in texts)
    assert sum(map(len, texts)) <= limit
    "".join(texts).encode("utf-8")
    assert settle(settled, limit) == settled
