"""Front matter: what it takes, what it refuses, and that no text makes it slow, large or wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.tools.skill_index import FrontMatterError, read_front_matter


def described(*lines: str) -> str:
    """Give the description of front matter made of these lines."""
    return read_front_matter("\n".join(["---", *lines, "---", "body"])).text("description")


def test_keys_values_and_the_body_behind_them() -> None:
    matter = read_front_matter(
        "---\nname: a-skill\n# a comment\n\ndescription: Does it: well. # why\nlicense: MIT\n---\n\n# Body\n---\n"
    )
    assert matter.text("name") == "a-skill"
    assert matter.text("description") == "Does it: well."
    assert matter.body == "\n# Body\n---\n"
    assert [key for key, _ in matter.values] == ["name", "description", "license"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["description: 'it''s # one'"], "it's # one"),
        (['description: "a \\"b\\" \\\\ c\\nd"'], 'a "b" \\ c d'),
        (["description: >-", "  folded", "  text"], "folded text"),
        (["description: |", "  two", "", "  lines"], "two lines"),
        (["description: begins", "  and goes on"], "begins and goes on"),
        (["description:", "  below"], "below"),
        (["description:", "  http://x"], "http://x"),
        (["description:", '  "below, in quotes"'], "below, in quotes"),
        (["description:\ttab"], "tab"),
        (["metadata:", "  description: inner", "allowed-tools:", "- Read", "description: outer"], "outer"),
        (["description: http://x/#y"], "http://x/#y"),
    ],
)
def test_the_forms_of_a_value(lines: list[str], text: str) -> None:
    assert described(*lines) == text


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "it has no description"),
        (["description: one", "description: two"], "it has more than one description"),
        (["description:"], "its description is empty"),
        (["description: &a [*a,*a]"], "is not plain text"),
        (["description: *a"], "is not plain text"),
        (["description: !!python/object x"], "is not plain text"),
        (["description: {a: b}"], "is not plain text"),
        (["description: - x"], "is not plain text"),
        (["description:", "  - x", "  - y"], "is not plain text"),
        (["description:", "- x"], "is not plain text"),
        (["description:", "  a: b"], "is not plain text"),
        (["description:", "  &a x"], "is not plain text"),
        (['description: "open'], "do not end"),
        (["description: 'a' b'"], "do not end"),
        (['description: "a" b"'], "do not end"),
        (['description: "\\x41"'], "has an escape other than"),
        (["just words"], "line 2 is not `key: value`"),
        (["  indented: first"], "line 2 is not `key: value`"),
        (["name: x", "<<: *base"], "line 3 is not `key: value`"),
    ],
)
def test_what_is_refused_and_why(lines: list[str], reason: str) -> None:
    with pytest.raises(FrontMatterError, match=reason.replace("*", r"\*")):
        described(*lines)


@pytest.mark.parametrize("text", ["", "name: x\n---\n", " ---\n---\n", "\n---\n---\n"])
def test_a_text_that_does_not_begin_with_it_has_none(text: str) -> None:
    with pytest.raises(FrontMatterError, match="does not begin"):
        read_front_matter(text)


def test_one_that_is_never_ended_is_none() -> None:
    with pytest.raises(FrontMatterError, match="no line --- ends it"):
        read_front_matter("---\nname: x\n")


def test_windows_ends_of_lines() -> None:
    matter = read_front_matter("---\r\nname: x\r\n---\r\nbody\r\n")
    assert (matter.text("name"), matter.body) == ("x", "body\r\n")


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=40).filter(
    lambda text: text.split()
)


@given(name=WORDS, body=st.text(max_size=60))
def test_every_text_in_double_quotes_is_read_as_it_was_written(name: str, body: str) -> None:
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    matter = read_front_matter(f"---\nname: {quoted}\n---\n{body}")
    assert matter.text("name") == " ".join(name.split())
    assert matter.body == body


LINES = st.lists(
    st.one_of(
        st.sampled_from(["---", "name: x", "name: &a", "  - *a", "a: |", "# c", "- x", '"', "description: '"]),
        st.text(max_size=12),
    )
)


@given(lines=LINES)
def test_no_text_raises_anything_but_its_own_error_or_grows(lines: list[str]) -> None:
    text = "\n".join(["---", *lines])
    try:
        matter = read_front_matter(text)
    except FrontMatterError:
        return
    assert sum(len(key) + len(value) for key, value in matter.values) + len(matter.body) <= len(text)
    for key, _ in matter.values:
        try:
            value = matter.text(key)
        except FrontMatterError:
            continue
        assert len(value) <= len(text)
        json.dumps(value)


def test_a_bomb_costs_no_more_than_its_length() -> None:
    """What a reader of YAML would expand 10^9 times is one line here, and a value of many lines is read in one pass."""
    bomb = "\n".join(
        ["---", "a: &a lol", *(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))]
    )
    matter = read_front_matter(f"{bomb}\nname: fine\n---\n")
    assert matter.text("name") == "fine"
    long = read_front_matter("---\nname: >\n" + "  x\n" * 200_000 + "---\n")
    assert len(long.text("name")) == 399_999
