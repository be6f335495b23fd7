"""The two ways of finding lines, and the process in which regular expressions run."""

from __future__ import annotations

import io
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold_server.tools import regex_child
from refold_server.tools.line_search import LiteralMatcher, RegexMatcher
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import WorkspacePath

PLACE = WorkspacePath(("a.txt",))


def _nothing() -> None:
    pass


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _pid(matcher: RegexMatcher) -> int:
    return vars(matcher)["_child"].pid


_DATA = st.lists(st.sampled_from([b"a", b"b", b"ab", b"\n", b"\r\n", "é".encode(), b"\xff"]), max_size=20).map(b"".join)


@settings(max_examples=200)
@given(data=_DATA, needle=st.sampled_from(["a", "ab", "é", "b", "aa"]), limit=st.integers(0, 4))
def test_a_literal_finds_what_its_escaped_expression_finds(data: bytes, needle: str, limit: int) -> None:
    literal = LiteralMatcher(needle).rows(PLACE, data, limit)
    assert literal == regex_child.find_rows(re.compile(re.escape(needle)), data, limit)


def test_both_matchers_answer_one_file_after_the_other() -> None:
    for matcher in (LiteralMatcher("ab"), RegexMatcher("ab", _nothing)):
        with matcher:
            assert matcher.rows(PLACE, b"x ab\n\nab", 10) == [(1, 2), (3, 0)]
            assert matcher.rows(PLACE, b"", 10) == []
            assert matcher.rows(PLACE, b"ab\nab\nab", 2) == [(1, 0), (2, 0)]
            assert matcher.rows(PLACE, b"ab" * (4 << 20), 5) == [(1, 0)]


def test_the_process_is_gone_when_the_search_is_over() -> None:
    with RegexMatcher("a", _nothing) as matcher:
        process = _pid(matcher)
        assert _is_alive(process)
    assert not _is_alive(process)


def test_the_process_is_gone_after_a_bad_pattern() -> None:
    matcher = RegexMatcher("(", _nothing)
    with pytest.raises(ToolFailure, match="unterminated"), matcher:
        raise AssertionError
    assert not _is_alive(_pid(matcher))


def test_a_cancelled_search_does_not_wait_for_its_pattern() -> None:
    asked: list[str] = []

    def check() -> None:
        asked.append("stop?")
        raise KeyboardInterrupt

    matcher = RegexMatcher("(a+)+$", _nothing, seconds=3600)
    vars(matcher)["_check"] = check
    with pytest.raises(KeyboardInterrupt), matcher:
        matcher.rows(PLACE, b"a" * 60 + b"b", 1)
    assert asked == ["stop?"]
    assert not _is_alive(_pid(matcher))


def test_the_alarm_ends_the_process_even_if_nobody_waits_for_it() -> None:
    with RegexMatcher("(a+)+$", _nothing, seconds=1) as matcher:
        with pytest.raises(ToolFailure) as caught:
            matcher.rows(PLACE, b"a" * 60 + b"b", 1)
        assert caught.value.code == "TIMED_OUT"
        assert vars(matcher)["_child"].wait() == -14, "SIGALRM, which no Python code has to be reached for"


def test_a_process_that_was_killed_is_said_so() -> None:
    with RegexMatcher("a", _nothing) as matcher:
        os.kill(_pid(matcher), 9)
        with pytest.raises(ToolFailure) as caught:
            matcher.rows(PLACE, b"a", 1)
    assert caught.value.code == "TOOL_FAILED"


def test_the_process_serves_until_its_input_ends() -> None:
    source, sink = io.BytesIO(), io.BytesIO()
    for payload in (b"a(b)?", regex_child.LENGTH.pack(9) + b"xab\nb\na"):
        regex_child.write_frame(source, payload)
    source.write(regex_child.LENGTH.pack(100) + b"cut off")
    source.seek(0)
    armed: list[bool] = []
    regex_child.serve(source, sink, armed.append)
    assert armed == [True, False] * 2, "the alarm runs while there is work, and never while it waits for some"
    sink.seek(0)
    assert list(regex_child.read_frames(sink)) == [b"", b"[[1, 1], [3, 0]]"]


def test_warnings_about_a_pattern_are_not_errors() -> None:
    pattern, fault = regex_child.compile_pattern("[[a]")
    assert pattern is not None
    assert fault == ""


@given(pattern=st.text(alphabet="ab()[]{}*+?\\|^$.:<>P=!-1,", max_size=12))
def test_no_pattern_breaks_the_process(pattern: str) -> None:
    compiled, fault = regex_child.compile_pattern(pattern)
    assert (compiled is None) == bool(fault)
