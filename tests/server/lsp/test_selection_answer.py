"""The form in which a model says what takes the place of a selection: what counts, what does not, and what fits where."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.lsp.editor_edits import EditRefused
from refold_server.lsp.selection_answer import FORMAT, INFO, change_of, fenced, fitted, replacement_in
from refold_server.lsp.text_positions import Splice, spliced


@pytest.mark.parametrize(
    ("reply", "replacement"),
    [
        ("```replacement\nnew\n```", "new"),
        ("Here:\n\n```replacement\nnew\n```\n\nDone.", "new"),
        ("```replacement\n```", ""),
        ("```replacement\n\n```", ""),
        ("```replacement\none\n\n  two\n\n```", "one\n\n  two\n"),
        ("```replacement python\nnew\n```", "new"),
        ("``` replacement \nnew\n```  ", "new"),
        ("~~~replacement\n```\nnew\n```\n~~~", "```\nnew\n```"),
        ("````replacement\n```\nnew\n```\n`````", "```\nnew\n```"),
        ("  ```replacement\n  new\n  ```", "  new"),
        ("```replacement\r\nnew\r\n```\r\n", "new"),
        ("```python\n```\n```replacement\nnew\n```", "new"),
        ("````\n```replacement\nold\n```\n````\n```replacement\nnew\n```", "new"),
        ("```replacement\na\x0cb\u2028c\n```", "a\x0cb\u2028c"),
    ],
)
def test_the_text_of_the_one_block_is_the_replacement(reply: str, replacement: str) -> None:
    assert replacement_in(reply) == replacement


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no replacement"),
        ("replacement\nnew", "no replacement"),
        ("```python\nnew\n```", "no replacement"),
        ("```replacements\nnew\n```", "no replacement"),
        ("text ```replacement\nnew\n```", "no replacement"),
        ("    ```replacement\nnew\n```", "no replacement"),
        ("``replacement\nnew\n``", "no replacement"),
        ("```replacement `x`\nnew\n```", "no replacement"),
        ("````\n```replacement\nnew\n```\n````", "no replacement"),
        ("```replacement\nnew\n```\n```replacement\nother\n```", "2 replacements"),
        ("```replacement\nnew", "not closed"),
        ("````replacement\nnew\n```", "not closed"),
        ("```replacement\nnew\n~~~", "not closed"),
        ("```replacement\nnew\n``` no", "not closed"),
    ],
)
def test_none_several_or_one_that_is_not_closed_changes_nothing(reply: str, reason: str) -> None:
    with pytest.raises(EditRefused, match=reason):
        replacement_in(reply)


@given(st.text(st.sampled_from("`~a \n"), max_size=40))
def test_what_is_fenced_is_read_back(text: str) -> None:
    assert replacement_in(f"Sure.\n{fenced(text, INFO)}\nDone.") == text.removesuffix("\n")


@given(st.text(max_size=60))
def test_any_reply_is_read_or_refused(reply: str) -> None:
    with suppress(EditRefused):
        replacement_in(reply)


def test_the_model_is_told_the_form_by_an_example_that_has_it() -> None:
    assert replacement_in(FORMAT) == "new text"


@pytest.mark.parametrize(
    ("replacement", "selected", "text", "expected"),
    [
        ("new", "old", "old", "new"),
        ("new", "old\n", "old\n", "new\n"),
        ("new\n", "old\n", "old\n", "new\n"),
        ("", "old\n", "old\n", ""),
        ("a\nb", "old\r\n", "x\r\nold\r\n", "a\r\nb\r\n"),
        ("a\nb", "old", "x\r\nold", "a\r\nb"),
        ("a\nb", "old", "x\rold", "a\rb"),
        ("a\nb", "old", "old", "a\nb"),
    ],
)
def test_a_replacement_takes_the_line_breaks_of_its_place(replacement: str, selected: str, text: str, expected: str) -> None:
    assert fitted(replacement, selected, text) == expected


def test_a_selection_is_replaced_where_it_was() -> None:
    assert change_of("new", "old", 4)("old old old") == (Splice(4, 7, "new"),)


def test_a_selection_that_moved_is_replaced_where_it_is_now() -> None:
    change = change_of("new\n", "old\n", 0)
    assert spliced("typed\nold\n", change("typed\nold\n")) == "typed\nnew\n"


@pytest.mark.parametrize(
    ("text", "reason"), [("gone", "was changed meanwhile"), ("x aa aa", "in several places"), ("xaaa", "several")]
)
def test_a_selection_that_is_gone_or_in_several_places_is_left_alone(text: str, reason: str) -> None:
    with pytest.raises(EditRefused, match=reason):
        change_of("new", "aa", 0)(text)
