"""Where a session's folder lies: the root of its repository, and where the search for it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refold_server.tools import repository as module
from refold_server.tools.repository import MAX_LEVELS, find_repository
from refold_server.tools.workspace_path import WorkspacePath
from tests.support.prefixes import repository
from tests.support.tool_calls import fill


def test_the_nearest_folder_with_git_is_the_root(tmp_path: Path) -> None:
    repository(tmp_path)
    repository(tmp_path / "inner")
    fill(tmp_path, {"inner/a/b/x": ""})
    found = find_repository(tmp_path / "inner/a/b")
    assert found is not None
    assert (found.workspace.root, found.folder, found.versioned) == (tmp_path / "inner", WorkspacePath(("a", "b")), True)
    assert [place.text for place in found.folders] == [".", "a", "a/b"]


def test_a_path_is_told_relative_to_the_session_s_folder(tmp_path: Path) -> None:
    repository(tmp_path)
    fill(tmp_path, {"a/b/x": ""})
    found = find_repository(tmp_path / "a/b")
    assert found is not None
    paths = {"x": "../../x", "a/x": "../x", "a/b/x": "x", "a/bc/x": "../bc/x", "a/b/c/d": "c/d", "a": "..", "a/b": "."}
    assert {text: found.seen(WorkspacePath(tuple(text.split("/")))) for text in paths} == paths


def test_without_git_the_folder_stands_alone(tmp_path: Path) -> None:
    found = find_repository(tmp_path, home=tmp_path)
    assert found is not None
    assert (found.workspace.root, found.folder, found.versioned) == (tmp_path, WorkspacePath(()), False)


def test_the_home_folder_itself_may_be_a_repository_and_nothing_above_it(tmp_path: Path) -> None:
    repository(tmp_path)
    fill(tmp_path, {"home/p/x": ""})
    found = find_repository(tmp_path / "home/p", home=tmp_path / "home")
    assert found is not None
    assert not found.versioned
    repository(tmp_path / "home")
    found = find_repository(tmp_path / "home/p", home=tmp_path / "home")
    assert found is not None
    assert found.workspace.root == tmp_path / "home"


def test_a_folder_of_another_owner_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may put a `.git` and instructions into a folder that all share."""
    repository(tmp_path)
    fill(tmp_path, {"shared/mine/x": ""})

    def owner_of(folder: Path) -> int:
        return 4_711 if folder == tmp_path / "shared" else 4_712

    monkeypatch.setattr(module, "owner_of", owner_of)
    found = find_repository(tmp_path / "shared/mine")
    assert found is not None
    assert (found.workspace.root, found.versioned) == (tmp_path / "shared/mine", False)


def test_links_in_the_path_are_resolved(tmp_path: Path) -> None:
    repository(tmp_path / "real")
    fill(tmp_path, {"real/a/x": ""})
    os.symlink(tmp_path / "real/a", tmp_path / "link")
    found = find_repository(tmp_path / "link")
    assert found is not None
    assert (found.workspace.root, found.folder) == (tmp_path / "real", WorkspacePath(("a",)))


def test_the_search_goes_up_so_many_levels_only(tmp_path: Path) -> None:
    repository(tmp_path)
    deep = tmp_path.joinpath(*["d"] * MAX_LEVELS)
    deep.mkdir(parents=True)
    far, near = find_repository(deep), find_repository(deep.parent)
    assert (far is not None, near is not None) == (True, True)
    assert [found.versioned for found in (far, near) if found is not None] == [False, True]


def test_a_folder_that_is_gone_lies_nowhere(tmp_path: Path) -> None:
    os.symlink("loop", tmp_path / "loop")
    assert find_repository(tmp_path / "gone") is None
    assert find_repository(tmp_path / "loop") is None
