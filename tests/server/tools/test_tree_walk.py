"""Going through a tree: its order, its bounds, and what stands in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refold_server.tools import tree_walk
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.tree_walk import Walk
from refold_server.tools.workspace_path import ROOT, Workspace, WorkspacePath
from tests.support.tool_calls import fill


def _walk(root: Path, start: WorkspacePath = ROOT, limit: int = tree_walk.MAX_ENTRIES) -> tuple[list[str], Walk]:
    one = Walk(Workspace(root), start, lambda: None, limit=limit)
    return [entry.place.text for entry in one.entries()], one


def test_the_order_is_by_name_with_folders_in_their_place_b_06(tmp_path: Path) -> None:
    names = ["b/z", "b/a/x", "a", "c", "B", "b.txt", "é", "10", "9"]
    fill(tmp_path / "one", dict.fromkeys(names, ""))
    fill(tmp_path / "two", dict.fromkeys(reversed(names), ""))
    expected = ["10", "9", "B", "a", "b/a/x", "b/z", "b.txt", "c", "é"]
    assert _walk(tmp_path / "one")[0] == expected
    assert _walk(tmp_path / "two")[0] == expected


def test_the_repository_itself_is_never_listed(tmp_path: Path) -> None:
    fill(tmp_path, {".git/config": "", "sub/.git": "gitdir: elsewhere", "sub/a": "", ".github/b": ""})
    assert _walk(tmp_path)[0] == [".github/b", "sub/a"]


def test_an_ignored_folder_can_be_listed_by_its_name(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "out/\n*.o\n", "out/a": "", "out/b.o": "", "out/.gitignore": "c\n", "out/c": ""})
    assert _walk(tmp_path)[0] == [".gitignore"]
    assert _walk(tmp_path, WorkspacePath(("out",)))[0] == ["out/.gitignore", "out/a", "out/b.o"]


def test_rules_above_the_start_hold_below_it(tmp_path: Path) -> None:
    fill(
        tmp_path, {".gitignore": "*.o\n", "sub/.gitignore": "/deep/x\n", "sub/deep/x": "", "sub/deep/y.o": "", "sub/deep/z": ""}
    )
    assert _walk(tmp_path, WorkspacePath(("sub", "deep")))[0] == ["sub/deep/z"]


def test_loops_of_links_end_and_links_are_told(tmp_path: Path) -> None:
    fill(tmp_path, {"a/b": ""})
    (tmp_path / "a/up").symlink_to("..")
    entries = list(Walk(Workspace(tmp_path), ROOT, lambda: None).entries())
    assert [(entry.place.text, entry.target) for entry in entries] == [("a/b", None), ("a/up", "..")]


def test_pipes_and_sockets_are_no_files(tmp_path: Path) -> None:
    fill(tmp_path, {"a": ""})
    os.mkfifo(tmp_path / "pipe")
    assert _walk(tmp_path)[0] == ["a"]


@pytest.mark.parametrize(("limit", "cut"), [(4, True), (5, True), (6, False)])
def test_a_walk_is_bounded_in_entries_and_says_so(tmp_path: Path, limit: int, cut: bool) -> None:
    fill(tmp_path, dict.fromkeys(["a/1", "a/2", "b", "c", "d"], ""))
    names, one = _walk(tmp_path, limit=limit)
    assert one.cut is cut
    assert len(names) <= limit
    assert cut or names == ["a/1", "a/2", "b", "c", "d"]


def test_a_walk_is_bounded_in_depth_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_walk, "MAX_DEPTH", 2)
    fill(tmp_path, {"a/b/here": "", "a/b/c/too-deep": ""})
    names, one = _walk(tmp_path)
    assert names == ["a/b/here"]
    assert one.cut


def test_a_folder_that_vanishes_hides_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path, {"a/x": "", "b/y": "", "c": ""})
    one = Walk(Workspace(tmp_path), ROOT, lambda: None)
    entries = one.entries()
    assert next(entries).place.text == "a/x"
    (tmp_path / "b/y").unlink()
    (tmp_path / "b").rmdir()
    assert [entry.place.text for entry in entries] == ["c"]
    assert one.unreadable == 1


def test_a_start_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match="does not exist"):
        _walk(tmp_path, WorkspacePath(("none",)))


def test_the_check_stops_a_walk(tmp_path: Path) -> None:
    fill(tmp_path, {"a/x": ""})

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Walk(Workspace(tmp_path), ROOT, stop).entries())


def test_no_descriptor_is_left_open_by_a_walk_that_was_given_up(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "x\n", "a/b/c": "", "a/d": "", ".git/info/exclude": "y\n"})
    before = len(os.listdir("/dev/fd"))
    next(Walk(Workspace(tmp_path), ROOT, lambda: None).entries())
    assert len(os.listdir("/dev/fd")) == before


def test_a_walk_of_so_many_levels_names_the_folders_of_the_last_and_does_not_enter_them(tmp_path: Path) -> None:
    fill(tmp_path, {"a/b/c/deep": "", "a/x": "", "y": ""})
    opened: list[str] = []

    class Noting(Workspace):
        def open_folder(self, place: WorkspacePath) -> int:
            opened.append(place.text)
            return super().open_folder(place)

    entries = list(Walk(Noting(tmp_path), ROOT, lambda: None, levels=2).entries())
    assert [(entry.place.text, entry.folder) for entry in entries] == [("a/b", True), ("a/x", False), ("y", False)]
    assert opened.count("a/b") == 0
    below = Walk(Workspace(tmp_path), WorkspacePath(("a",)), lambda: None, levels=1).entries()
    assert [(entry.place.text, entry.folder) for entry in below] == [("a/b", True), ("a/x", False)]


def test_a_walk_ends_when_its_time_is_over_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, {"a": "", "b": ""})
    walk = Walk(Workspace(tmp_path), ROOT, lambda: None, seconds=0)
    assert list(walk.entries()) == []
    assert walk.cut
