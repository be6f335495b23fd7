"""The named repairs of a call's arguments: none at all become `{}`, lone halves of surrogate pairs U+FFFD. Nothing else."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.json_text import check_json
from refold_protocol.session.chunks import repaired_arguments
from tests.support.strategies import json_texts

HIGH, LOW = r"\ud83d", r"\ude42"


@pytest.mark.parametrize("text", ["", " ", "\t\r\n", "null", " null ", "\nnull"])
def test_nothing_and_null_mean_no_arguments(text: str) -> None:
    """A-08a."""
    assert repaired_arguments(text) == "{}"


@pytest.mark.parametrize("text", ['""', "nullx", '"null"', "0", "{", '{"path": "lo', "[]", '{"a":1,"a":2}', '{"n":NaN}'])
def test_any_other_text_is_kept_even_where_it_is_no_object(text: str) -> None:
    assert repaired_arguments(text) == text


@given(json_texts())
def test_lossless_json_is_kept_to_the_letter(text: str) -> None:
    if text.strip() != "null":
        assert repaired_arguments(text) == text


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        (rf'"{HIGH}"', r'"\ufffd"'),
        (rf'"{LOW}"', r'"\ufffd"'),
        (rf'"{HIGH}{LOW}"', rf'"{HIGH}{LOW}"'),
        (rf'"{HIGH.upper().replace("U", "u")}{LOW}"', rf'"{HIGH.upper().replace("U", "u")}{LOW}"'),
        (rf'"{LOW}{HIGH}"', r'"\ufffd\ufffd"'),
        (rf'"{HIGH}{HIGH}{LOW}"', rf'"\ufffd{HIGH}{LOW}"'),
        (rf'"{HIGH}{LOW}{LOW}"', rf'"{HIGH}{LOW}\ufffd"'),
        (rf'"{HIGH} {LOW}"', r'"\ufffd \ufffd"'),
        (rf'{{"{HIGH}":"{LOW}"}}', r'{"\ufffd":"\ufffd"}'),
        (r'"\uDBFF\uDC00 \uD800\uDFFF"', r'"\uDBFF\uDC00 \uD800\uDFFF"'),
        (r'"\udbff \udc00 \udfff \ud800"', r'"\ufffd \ufffd \ufffd \ufffd"'),
        (r'"\ud7ff\ue000\u00e9\n"', r'"\ud7ff\ue000\u00e9\n"'),
    ],
)
def test_a_lone_half_that_stands_as_an_escape_becomes_the_replacement_character(text: str, repaired: str) -> None:
    """A-14a."""
    assert repaired_arguments(text) == repaired


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        (r'"\\ud83d"', r'"\\ud83d"'),
        (r'"\\\ud83d"', r'"\\\ufffd"'),
        (r'"\\\\ud83d\"\ud83d"', r'"\\\\ud83d\"\ufffd"'),
        (r'"\ud83d\\ude42"', r'"\ufffd\\ude42"'),
    ],
)
def test_a_backslash_that_is_escaped_begins_no_escape(text: str, repaired: str) -> None:
    assert repaired_arguments(text) == repaired


@pytest.mark.parametrize(
    ("text", "repaired"),
    [("\ud83d\ude42", "🙂"), ("\ud83d", "\ufffd"), ("a\ude42\ud83db", "a\ufffd\ufffdb"), ('{"q":"\ud83d"}', '{"q":"\ufffd"}')],
)
def test_halves_that_stand_as_characters_are_joined_or_replaced(text: str, repaired: str) -> None:
    """A-14b."""
    assert repaired_arguments(text) == repaired


@pytest.mark.parametrize("text", ['{"q":"\\', '{"q":"\\u', '{"q":"\\ud8', '{"q":"\\ud83g'])
def test_an_escape_that_was_cut_off_is_kept(text: str) -> None:
    assert repaired_arguments(text) == text


_HALVES = st.sampled_from([chr(0xD800), chr(0xDBFF), chr(0xDC00), chr(0xDFFF), "🙂", "\\", "\\ud83d", '"', "a", "é", "\n"])
_VALUES = st.recursive(
    st.lists(_HALVES, max_size=6).map("".join) | st.none() | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(_VALUES, st.booleans())
def test_repaired_arguments_are_lossless_json_whatever_halves_they_held(value: Any, ascii_only: bool) -> None:
    repaired = repaired_arguments(json.dumps(value, ensure_ascii=ascii_only))
    check_json(repaired)
    assert json.loads(repaired) == ({} if value is None else _expected(value))


@given(st.lists(_HALVES | st.sampled_from(["\\u", "d83d", "de42", "{", "}"]), max_size=12).map("".join))
def test_repairing_twice_changes_nothing_more(text: str) -> None:
    once = repaired_arguments(text)
    assert repaired_arguments(once) == once
    once.encode()


def _expected(value: Any) -> Any:
    """What the repair must come to: pairs joined, other halves replaced, everything else as it was."""
    match value:
        case None:
            return None
        case str():
            joined = re.sub("[\ud800-\udbff][\udc00-\udfff]", _joined, value)
            return re.sub("[\ud800-\udfff]", "\ufffd", joined)
        case list():
            return [_expected(item) for item in cast("list[Any]", value)]
        case dict():
            return {key: _expected(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _joined(pair: re.Match[str]) -> str:
    high, low = pair[0]
    return chr(0x10000 + (ord(high) - 0xD800) * 0x400 + ord(low) - 0xDC00)
