"""Diffs are what people are asked about: applied by anybody, they give the new text to the byte."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.tools import text_change
from refold_server.tools.text_change import (
    MAX_SHOWN,
    LineChange,
    line_changes,
    lines_of,
    shown_diff,
    unified_diff,
)
from tests.support.patching import patched

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "a\r\n", "a\rb\n", "é\u2028\n"]), max_size=30).map("".join)
OPEN_TEXTS = st.tuples(TEXTS, st.sampled_from(["", "end", "a\r"])).map("".join)


@given(OPEN_TEXTS, OPEN_TEXTS)
def test_a_diff_applied_gives_the_new_text(old: str, new: str) -> None:
    if old != new:
        assert patched(old, unified_diff("a.txt", old, new)) == new


@given(OPEN_TEXTS.filter(bool))
def test_the_diff_of_a_new_file_has_every_line(new: str) -> None:
    diff = unified_diff("a.txt", None, new)
    assert diff.startswith("--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1")
    assert patched("", diff) == new


@given(OPEN_TEXTS, OPEN_TEXTS)
def test_changes_are_in_order_and_apart_and_all_else_is_equal(old: str, new: str) -> None:
    one, other = lines_of(old), lines_of(new)
    changes = line_changes(one, other)
    at = new_at = 0
    for change in changes:
        assert one[at : change.start] == other[new_at : change.new_start]
        assert change.start < change.end or change.new_start < change.new_end
        at, new_at = change.end, change.new_end
    assert one[at:] == other[new_at:]


@given(st.text("ab\r\n\v\f\x1c\x85\u2028", max_size=20))
def test_lines_end_at_line_feeds_only_and_nothing_is_lost(text: str) -> None:
    lines = lines_of(text)
    assert "".join(lines) == text
    assert all(line.count("\n") == line.endswith("\n") == 1 for line in lines[:-1])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("a\r\nb\r\n", "a\r\nB\r\n"),
        ("\n" * 40, "\n" * 20 + "x\n" + "\n" * 20),
        ("".join(f"{n}\n" for n in range(50)), "".join(f"{n}\n" for n in range(50) if n not in (3, 30, 49))),
    ],
)
def test_the_program_patch_takes_it(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "a b.txt").write_bytes(old.encode())
    diff = unified_diff("a b.txt", old, new).encode()
    done = subprocess.run(["patch", "--binary", "-p1", "--fuzz=0"], cwd=tmp_path, input=diff, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "a b.txt").read_bytes() == new.encode()


def test_a_diff_looks_like_this() -> None:
    old = "".join(f"{number}\n" for number in range(1, 21))
    new = old.replace("4\n", "four\n", 1).replace("20\n", "20")
    assert unified_diff("sub/a.txt", old, new).split("\n") == [
        "--- a/sub/a.txt",
        "+++ b/sub/a.txt",
        "@@ -1,7 +1,7 @@",
        *(" 1", " 2", " 3", "-4", "+four", " 5", " 6", " 7"),
        "@@ -17,4 +17,4 @@",
        *(" 17", " 18", " 19", "-20", "+20", "\\ No newline at end of file"),
        "",
    ]


@pytest.mark.parametrize(("between", "hunks"), [(6, 1), (7, 2)])
def test_changes_whose_surroundings_touch_share_a_hunk(between: int, hunks: int) -> None:
    text = "a\n" + "same\n" * between + "a\n"
    assert unified_diff("x", text, text.replace("a\n", "b\n")).count("@@ -") == hunks


def test_what_would_take_too_long_to_compare_is_given_as_one_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ["same\n", *(f"old {number}\n" for number in range(20)), "mid\n", *(f"old {number}\n" for number in range(20))]
    new = [line.replace("old", "new") for line in old]
    assert len(line_changes(old, new)) == 2
    monkeypatch.setattr(text_change, "_MAX_COMPARED", 40)
    assert line_changes(old, new) == (LineChange(1, 42, 1, 42),)
    assert patched("".join(old), unified_diff("a", "".join(old), "".join(new))) == "".join(new)


@pytest.mark.parametrize("count", [500, 100_000])
def test_texts_that_differ_everywhere_are_compared_up_to_a_bound(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_change, "_MAX_COMPARED", 1_000_000)
    compared = 0
    find = text_change.SequenceMatcher[str].find_longest_match

    def counted(matcher: Any, alo: int, ahi: int, blo: int, bhi: int) -> Any:
        nonlocal compared
        compared += sum(1 + len(matcher.b2j.get(line, ())) for line in matcher.a[alo:ahi])
        return find(matcher, alo, ahi, blo, bhi)

    monkeypatch.setattr(text_change.SequenceMatcher, "find_longest_match", counted)
    old = [f"{number}\n" for number in range(count)]
    new = [line if number % 2 else f"new {line}" for number, line in enumerate(old)]
    assert patched("".join(old), unified_diff("a", "".join(old), "".join(new))) == "".join(new)
    assert 0 < compared <= 1_000_000


def test_a_diff_too_long_to_show_says_so_in_front_where_no_text_can_stand() -> None:
    diff = unified_diff("a", None, "x\n" * MAX_SHOWN)
    assert shown_diff(diff[:MAX_SHOWN]) == diff[:MAX_SHOWN]
    shown = shown_diff(diff)
    assert len(shown) <= MAX_SHOWN
    first, second = shown.split("\n")[:2]
    assert first.startswith(f"[This diff has {len(diff):,} characters, too many to be shown")
    assert second == "--- /dev/null"
    assert "characters left out here" in shown
