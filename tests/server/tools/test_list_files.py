"""The tool `list_files`."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_server.tools import list_files, tree_walk
from tests.support.tool_calls import call, code, fill, text

pytestmark = pytest.mark.anyio


async def _lines(root: Path, **arguments: str) -> list[str]:
    answer = await call(root, "list_files", **arguments)
    assert code(answer) is None
    return text(answer).split("\n")


async def test_the_files_of_a_workspace_are_listed_by_their_paths(tmp_path: Path) -> None:
    fill(tmp_path, {"b/c.py": "", "a.md": "", ".gitignore": "*.o\n", "x.o": "", "b/a.py": "", ".hidden/h": ""})
    assert await _lines(tmp_path) == [".gitignore", ".hidden/h", "a.md", "b/a.py", "b/c.py"]


async def test_a_folder_is_listed_with_paths_from_the_workspace(tmp_path: Path) -> None:
    fill(tmp_path, {"b/c.py": "", "a.md": "", "b/d/e.md": ""})
    assert await _lines(tmp_path, path="b") == ["b/c.py", "b/d/e.md"]
    assert await _lines(tmp_path, path="b/") == ["b/c.py", "b/d/e.md"]


async def test_a_pattern_filters_relative_to_the_folder(tmp_path: Path) -> None:
    fill(tmp_path, {"src/a.ts": "", "src/d/b.tsx": "", "src/c.js": "", "lib/a.ts": ""})
    assert await _lines(tmp_path, pattern="*.{ts,tsx}") == ["lib/a.ts", "src/a.ts", "src/d/b.tsx"]
    assert await _lines(tmp_path, pattern="src/*.ts") == ["src/a.ts"]
    assert await _lines(tmp_path, path="src", pattern="/*.ts") == ["src/a.ts"]
    assert await _lines(tmp_path, path="src", pattern="d/") == ["src/d/b.tsx"]


async def test_nothing_found_is_said_so(tmp_path: Path) -> None:
    assert await _lines(tmp_path) == ["[no files]"]
    assert await _lines(tmp_path, pattern="*.py") == ["[no file matches *.py]"]


async def test_a_bad_pattern_is_a_matter_of_arguments(tmp_path: Path) -> None:
    for pattern in ("[", "", "a\\"):
        assert code(await call(tmp_path, "list_files", pattern=pattern)) == "INVALID_ARGUMENTS"


async def test_a_file_and_what_does_not_exist_cannot_be_listed(tmp_path: Path) -> None:
    fill(tmp_path, {"a": ""})
    file = await call(tmp_path, "list_files", path="a")
    assert (code(file), text(file)) == ("TOOL_FAILED", "a is a file, not a folder; read_file reads it")
    missing = await call(tmp_path, "list_files", path="b")
    assert (code(missing), text(missing)) == ("TOOL_FAILED", "b does not exist")


async def test_a_large_tree_is_folded_until_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_files, "MAX_LINES", 4)
    fill(tmp_path, {"a": "", "b/c": "", "b/d/e": "", "b/d/f": "", "g/h/i/j": "", "z": ""})
    assert await _lines(tmp_path) == ["a", "b/ (3 files)", "g/ (1 files)", "z"]
    monkeypatch.setattr(list_files, "MAX_LINES", 5)
    assert await _lines(tmp_path) == ["a", "b/c", "b/d/ (2 files)", "g/h/ (1 files)", "z"]
    assert await _lines(tmp_path, path="b/d") == ["b/d/e", "b/d/f"]


async def test_a_flat_folder_that_is_too_large_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_files, "MAX_LINES", 2)
    fill(tmp_path, dict.fromkeys("abcde", ""))
    assert await _lines(tmp_path) == ["a", "b", "[the first 2 of 5 names; give a pattern to see others]"]


async def test_a_bound_that_was_reached_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_walk, "MAX_DEPTH", 1)
    fill(tmp_path, {"a/b": "", "a/c/d": ""})
    lines = await _lines(tmp_path)
    assert lines[0] == "a/b"
    assert "not everything was looked at" in lines[1]


async def test_names_that_are_not_text_do_not_break_the_listing(tmp_path: Path) -> None:
    (tmp_path / "line\nbreak").write_text("")
    (tmp_path / "bad\udc80byte").write_text("")
    (tmp_path / "é🙂").write_text("")
    assert await _lines(tmp_path) == ["bad\ufffdbyte", "line\ufffdbreak", "é🙂"]
