"""What counts as lossless JSON, and what is done about text that is not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import InvalidJsonError
from refold_protocol.json_text import (
    MAX_DEPTH,
    JsonText,
    check_json,
    compact_json,
    is_json_object,
    parse_strict,
    repair_surrogates,
)
from tests.support.strategies import json_texts, json_values

HALVES = st.sampled_from("\ud83d\ude00\ud800\udfff")
"""`st.text` never gives these, whatever its alphabet: texts with halves of surrogate pairs are joined from lists."""

PUNCTUATION = st.sampled_from('{}[]",:\\u0123456789abcdeE+-. \t\ntnfrls')
ANY_TEXT = st.lists(st.characters() | HALVES | PUNCTUATION, max_size=20).map("".join) | st.text(PUNCTUATION, max_size=40)


@given(json_texts())
def test_lossless_json_is_accepted_unchanged(text: JsonText) -> None:
    assert check_json(text) is text


@given(json_values())
def test_compact_json_says_what_the_value_said_without_white_space(value: Any) -> None:
    text = compact_json(value)
    assert parse_strict(text) == value
    assert text == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(ANY_TEXT)
def test_any_text_is_either_accepted_or_refused(text: str) -> None:
    try:
        value = parse_strict(text)
    except InvalidJsonError:
        assert not is_json_object(text)
        return
    assert is_json_object(text) == isinstance(value, dict)
    assert parse_strict(compact_json(value)) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ('{"a":-Infinity}', "-Infinity is not JSON"),
        ("1e999", "the number 1e999 is beyond what can be kept"),
        ("-1.0e999", "beyond what can be kept"),
        ('{"a":1,"b":{"c":1,"c":1}}', "key 'c' stands twice"),
        ('{"a":1,"\\u0061":2}', "key 'a' stands twice"),
        ('"\\ud800"', "half of a surrogate pair"),
        ('{"\\udc00":1}', "half of a surrogate pair"),
        ('["\\ude00\\ud83d"]', "half of a surrogate pair"),
        ('"\ud83d"', "half of a surrogate pair"),
        ("", "at character 0"),
        ("{} {}", "at character 3"),
        ("[1,]", "at character"),
        ('"a\nb"', "at character 2"),
        ("\ufeff{}", "at character 0"),
        ('["ab', "string starting at character 1"),
        ("01", "at character 1"),
        ("1" * 5000, "digits"),
    ],
)
def test_text_that_is_not_lossless_json_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidJsonError, match=re.escape(reason)):
        check_json(text)


@pytest.mark.parametrize(
    "text", ['"\\ud83d\\ude00"', '"\\ud83d\\ude00\\ufffd"', '"🙂"', '"\\\\ud800"', '"\u2028"', " [ 1 ]\r\n"]
)
def test_text_that_only_looks_suspicious_is_accepted(text: str) -> None:
    assert check_json(text) == text


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_the_limit_of_depth_is_exact(opening: str, closing: str) -> None:
    times = MAX_DEPTH // opening.count("[") if opening.count("{") == 0 else MAX_DEPTH // (opening.count("[") + 1)
    at_the_limit = opening * times + "1" + closing * times
    assert check_json(at_the_limit) == at_the_limit
    for one_more in (f"[{at_the_limit}]", f'{{"a":{at_the_limit}}}'):
        with pytest.raises(InvalidJsonError, match=f"nested deeper than {MAX_DEPTH} levels"):
            check_json(one_more)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1_000, 100_000])
def test_any_depth_beyond_the_limit_is_refused_alike(levels: int) -> None:
    with pytest.raises(InvalidJsonError, match="nested deeper"):
        check_json("[" * levels + "]" * levels)


def test_breadth_is_not_depth() -> None:
    check_json("[" + ",".join(["[]"] * 5_000) + "]")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": b"bytes"}, "\ud800", {1: 1, "1": 2}, object()])
def test_a_value_that_is_not_lossless_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidJsonError):
        compact_json(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(InvalidJsonError):
        compact_json(ring)


@given(st.lists(st.characters() | HALVES, max_size=12).map("".join))
def test_repair_joins_halves_side_by_side_and_replaces_every_other_one(text: str) -> None:
    joined = re.sub(
        "[\ud800-\udbff][\udc00-\udfff]",
        lambda pair: (pair.group().encode("utf-16-le", "surrogatepass")).decode("utf-16-le"),
        text,
    )
    assert repair_surrogates(text) == re.sub("[\ud800-\udfff]", "\ufffd", joined)


def test_text_that_needs_no_repair_is_left_alone() -> None:
    text = "那🙂"
    assert repair_surrogates(text) is text


def test_more_values_than_may_be_built_are_refused_before_any_is() -> None:
    with pytest.raises(InvalidJsonError, match="more than 2,000,000 values"):
        check_json("[" + "{}," * 1_000_000 + "{}]")
    with pytest.raises(InvalidJsonError, match="more than"):
        check_json('"' + '\\"' * 10 + '",' + "[" * 2_000_000)


def test_what_looks_like_values_in_a_string_counts_as_none() -> None:
    text = '["' + ",[{" * 700_000 + '\\",,"]'
    assert check_json(text) == text
