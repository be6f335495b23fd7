"""The tool `search_text`."""

from __future__ import annotations

import signal
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold_server.tools import line_search, search_text
from tests.support.tool_calls import call, code, fill, text

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("regex", [False, True])


async def _lines(root: Path, pattern: str, **arguments: Any) -> list[str]:
    answer = await call(root, "search_text", pattern=pattern, **arguments)
    assert code(answer) is None, text(answer)
    return text(answer).split("\n")


@both
async def test_lines_are_told_with_path_and_number_in_order(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"b/c.py": "x = 1\nneedle two\n", "a.md": "a needle\nno\nneedle needle\n", "z": "nothing"})
    assert await _lines(tmp_path, "needle", regex=regex) == [
        "a.md:1: a needle",
        "a.md:3: needle needle",
        "b/c.py:2: needle two",
    ]


async def test_a_pattern_is_literal_unless_said_otherwise(tmp_path: Path) -> None:
    fill(tmp_path, {"a": "f(x)*\nffx\nf.x\n"})
    assert await _lines(tmp_path, "f(x)*") == ["a:1: f(x)*"]
    assert await _lines(tmp_path, "f.x$", regex=True) == ["a:2: ffx", "a:3: f.x"]
    assert await _lines(tmp_path, "F(X)", regex=True) == ["[no line of 1 files holds 'F(X)']"]
    assert await _lines(tmp_path, "(?i)FFX", regex=True) == ["a:2: ffx"]


@both
async def test_crlf_is_no_part_of_a_line(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"a": "needle\r\nneedle\n"})
    assert await _lines(tmp_path, "needle", regex=regex) == ["a:1: needle", "a:2: needle"]
    assert await _lines(tmp_path, "needle$", regex=True) == ["a:1: needle", "a:2: needle"]


@both
async def test_a_folder_or_a_file_can_be_searched_alone(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"a/x": "needle", "b/y": "needle", "b/z": "needle"})
    assert await _lines(tmp_path, "needle", path="b", regex=regex) == ["b/y:1: needle", "b/z:1: needle"]
    assert await _lines(tmp_path, "needle", path="b/z", regex=regex) == ["b/z:1: needle"]


@both
async def test_binary_and_ignored_files_are_left_out_e_03(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"a": b"needle\0", ".gitignore": "b\n", "b": "needle", "c": "needle", ".git/d": "needle"})
    assert await _lines(tmp_path, "needle", regex=regex) == ["c:1: needle"]
    assert await _lines(tmp_path, "needle", path="b", regex=regex) == ["b:1: needle"], "asked for by its name"


@both
async def test_bad_bytes_become_marks(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"a": b"\xff needle \xe2\x82\n"})
    assert await _lines(tmp_path, "needle", regex=regex) == ["a:1: \ufffd needle \ufffd"]


@both
async def test_a_long_line_is_shown_around_its_match(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"a": "é" * 5_000 + "needle" + "b" * 5_000})
    (line,) = await _lines(tmp_path, "needle", regex=regex)
    assert "needle" in line
    assert line.startswith("a:1: ...é")
    assert line.endswith("b...")
    assert len(line) <= search_text.MAX_LINE + len("a:1: ......")


async def test_the_end_of_a_long_line_is_shown_to_its_end(tmp_path: Path) -> None:
    fill(tmp_path, {"a": "x" * 5_000 + "needle", "b": "needle" + "x" * 5_000})
    first, second = await _lines(tmp_path, "needle")
    assert first.endswith("xneedle")
    assert second.startswith("b:1: needlex")


@both
async def test_matches_are_bounded_and_the_answer_says_so(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"a": "needle\n" * 500, "b": "needle\n"})
    lines = await _lines(tmp_path, "needle", regex=regex)
    assert lines[: search_text.MAX_MATCHES] == [f"a:{n}: needle" for n in range(1, search_text.MAX_MATCHES + 1)]
    assert lines[search_text.MAX_MATCHES :] == ["[stopped here, there may be more: name a path or a longer pattern]"]


async def test_the_answer_is_bounded_in_characters(tmp_path: Path) -> None:
    fill(tmp_path, {"a": ("needle" + "x" * 1_000 + "\n") * 500})
    lines = await _lines(tmp_path, "needle")
    assert 100 < len(lines) < 200
    assert lines[-1].startswith("[stopped here")
    assert "left out here" not in "".join(lines), "whole lines, not a cut text"


async def test_files_that_are_too_large_are_counted_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_text, "MAX_FILE_BYTES", 1 << 20)
    fill(tmp_path, {"a": "needle\n" * (1 << 18), "b": "needle"})
    assert await _lines(tmp_path, "needle") == ["b:1: needle", "[files above 1 MiB that were not searched: 1]"]


async def test_a_search_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_text, "MAX_TOTAL_BYTES", 10)
    fill(tmp_path, {"a": "needle in a", "b": "needle in b"})
    assert await _lines(tmp_path, "needle") == [
        "a:1: needle in a",
        "[stopped here, there may be more: name a path or a longer pattern]",
    ]


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "(?P<x>", "a{99999999999}", "\\"])
async def test_a_bad_regular_expression_is_a_matter_of_arguments(tmp_path: Path, pattern: str) -> None:
    fill(tmp_path, {"a": "x"})
    answer = await call(tmp_path, "search_text", pattern=pattern, regex=True)
    assert code(answer) == "INVALID_ARGUMENTS"
    assert "not a regular expression" in text(answer)


@pytest.mark.parametrize("pattern", ["", "a\nb", "a\r"])
async def test_a_pattern_that_no_line_can_hold_is_refused(tmp_path: Path, pattern: str) -> None:
    assert code(await call(tmp_path, "search_text", pattern=pattern)) == "INVALID_ARGUMENTS"


async def test_a_pattern_without_end_is_stopped_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_search, "SECONDS", 1)
    fill(tmp_path, {"a": "a" * 60 + "b\n"})
    answer = await call(tmp_path, "search_text", pattern="(a+)+$", regex=True)
    assert code(answer) == "TIMED_OUT"
    assert "(a+)+$" in text(answer)
    assert "longer than 1 s on a;" in text(answer)


async def test_a_cancelled_search_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []
    working = threading.Event()
    start: Any = subprocess.Popen
    ask = line_search.RegexMatcher.rows

    def started(*arguments: Any, **settings: Any) -> subprocess.Popen[bytes]:
        child: subprocess.Popen[bytes] = start(*arguments, **settings)
        children.append(child)
        return child

    def asked(*arguments: Any) -> Any:
        working.set()
        return ask(*arguments)

    monkeypatch.setattr(line_search.subprocess, "Popen", started)
    monkeypatch.setattr(line_search.RegexMatcher, "rows", asked)
    fill(tmp_path, {"a": "a" * 60 + "b\n"})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(call, tmp_path, "search_text", pattern="(a+)+$", regex=True))
        await anyio.to_thread.run_sync(working.wait)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(children[0].wait) == -signal.SIGKILL


async def test_a_missing_file_and_an_empty_tree_are_told_apart(tmp_path: Path) -> None:
    assert code(await call(tmp_path, "search_text", pattern="x", path="none")) == "TOOL_FAILED"
    assert await _lines(tmp_path, "x") == ["[no line of 0 files holds 'x']"]


@both
async def test_an_empty_file_has_no_lines(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"a": "", "b": "\n"})
    assert await _lines(tmp_path, "^$" if regex else "x", regex=regex) == (
        ["b:1: "] if regex else ["[no line of 1 files holds 'x']"]
    )


async def test_one_unreadable_file_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, {"a": "needle", "b": "needle"})
    search = search_text.Walk.entries

    def vanishing(walk: Any) -> Any:
        for entry in search(walk):
            if entry.place.text == "a":
                (tmp_path / "a").unlink()
            yield entry

    monkeypatch.setattr(search_text.Walk, "entries", vanishing)
    assert await _lines(tmp_path, "needle") == ["b:1: needle", "[files and folders that could not be read: 1]"]
