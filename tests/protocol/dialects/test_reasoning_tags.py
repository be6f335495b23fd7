"""Reasoning between tags at the head of a reply: found however it is cut, and nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.reasoning_tags import TAGS, ReasoningTags

PIECES = st.sampled_from([*TAGS, *TAGS.values(), "<", "thi", "nk>", "</", "/", ">", " ", "\n", "a", "é", "[", "◁"])


def parts(pieces: list[str], *, opened: bool = False) -> tuple[str, str]:
    """Give the reasoning and the text of a reply that comes in these pieces."""
    tags, found = ReasoningTags(opened=opened), ["", ""]
    for piece in pieces:
        for is_reasoning, text in [(False, piece)] if tags.done else tags.feed(piece):
            found[not is_reasoning] += text
    for is_reasoning, text in tags.close():
        found[not is_reasoning] += text
    return found[0], found[1]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<think>\nThe user greets.\n</think>\n\nHello.", ("The user greets.", "Hello.")),
        (" \n<thinking>a </think> b</thinking> c", ("a </think> b", "c")),
        ("[THINK]a[/THINK]b", ("a", "b")),
        ("One writes <think> and </think>.", ("", "One writes <think> and </think>.")),
        ("<think>never closed", ("never closed", "")),
        ("<think>\n\n</think>\n\nHello.", ("", "Hello.")),
        ("<think>a</think>", ("a", "")),
        ("<thin", ("", "<thin")),
        ("<thinks>a", ("", "<thinks>a")),
        ("  plain", ("", "  plain")),
    ],
)
def test_what_stands_between_tags_at_the_head_is_reasoning(reply: str, expected: tuple[str, str]) -> None:
    assert parts([reply]) == expected
    assert parts(list(reply)) == expected


@pytest.mark.parametrize(
    ("reply", "expected"), [("a\n</think>\nb", ("a", "b")), ("[/THINK]b", ("", "b")), ("all of it", ("all of it", ""))]
)
def test_a_template_that_opened_the_tag_has_a_reply_that_begins_inside(reply: str, expected: tuple[str, str]) -> None:
    assert parts([reply], opened=True) == expected
    assert parts(list(reply), opened=True) == expected


@given(st.lists(PIECES, max_size=20), st.booleans(), st.lists(st.integers(1, 6), min_size=1, max_size=40))
def test_however_a_reply_is_cut_the_same_comes_and_nothing_but_tags_and_blanks_is_lost(
    pieces: list[str], opened: bool, sizes: list[int]
) -> None:
    reply = "".join(pieces)
    whole = parts([reply], opened=opened)
    cut: list[str] = []
    place = 0
    for size in [*sizes, len(reply)]:
        cut.append(reply[place : place + size])
        place += size
    assert parts([piece for piece in cut if piece], opened=opened) == whole
    kept = "".join("".join(whole).split())
    left = "".join(reply.split())
    lost = next((tag for tag in ("", *TAGS) if left.startswith(tag) and left[len(tag) :].startswith(whole[0][:1])), "")
    assert len(left) - len(kept) <= len(lost) + max(map(len, TAGS.values())) + max(map(len, TAGS))


def test_white_space_without_end_is_not_held_back_for_ever() -> None:
    tags = ReasoningTags(opened=True)
    tags.feed("a")
    given_back = sum(len(text) for _ in range(1_000) for _, text in tags.feed(" " * 10))
    assert given_back > 9_900
