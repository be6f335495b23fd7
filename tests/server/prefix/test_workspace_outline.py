"""The contributor `baseline`: the outline of a tree, its bounds, and the branch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refold_server.config import PrefixConfig
from refold_server.prefix import workspace_outline as module
from refold_server.prefix.workspace_outline import MAX_LINES, git_branch
from tests.support.prefixes import composed, repository
from tests.support.tool_calls import fill

pytestmark = pytest.mark.anyio

ONLY = PrefixConfig(instructions=False, skills=False, editor=False)


async def lines(cwd: Path) -> list[str]:
    """Give what is said behind the first line."""
    text = (await composed(cwd, ONLY)).get("baseline")
    return [] if text is None else text.split("\n")[1:]


async def test_two_levels_are_told_sorted_without_what_git_ignores(tmp_path: Path) -> None:
    files = {"b.txt": "", "src/z.py": "", "src/a/deep.py": "", "out/x": "", "a/.hidden": "", ".gitignore": "out\n*.log\n"}
    fill(repository(tmp_path, "topic/one"), {**files, "src/x.log": "", "only/deeper/x": ""})
    os.symlink("b.txt", tmp_path / "link")
    assert await lines(tmp_path) == [
        "Git branch: topic/one",
        "Its files, two levels deep, without those that git ignores:",
        ".gitignore",
        "a/",
        "  .hidden",
        "b.txt",
        "link -> b.txt",
        "only/",
        "  deeper/",
        "src/",
        "  a/",
        "  z.py",
    ]


async def test_an_empty_folder_has_no_message_and_an_empty_repository_its_branch(tmp_path: Path) -> None:
    assert await lines(tmp_path) == []
    assert await lines(tmp_path / "gone") == []
    assert await lines(repository(tmp_path)) == ["Git branch: main"]


async def test_in_a_folder_of_a_repository_only_that_folder_is_told_by_the_rules_of_all(tmp_path: Path) -> None:
    fill(repository(tmp_path), {".gitignore": "*.log\n", "other/x": "", "a/one.py": "", "a/two.log": "", "a/sub/y": ""})
    assert await lines(tmp_path / "a") == [
        "Git branch: main",
        "Its files, two levels deep, without those that git ignores:",
        "one.py",
        "sub/",
        "  y",
    ]


@pytest.mark.parametrize(("folders", "files"), [(1, 500), (30, 30), (200, 3), (1, 0)])
async def test_an_outline_has_a_bound_of_lines_and_says_what_it_left_out(tmp_path: Path, folders: int, files: int) -> None:
    names = {f"d{folder:03}/f{file:03}": "" for folder in range(folders) for file in range(files)}
    fill(tmp_path, names or {f"f{file:03}": "" for file in range(400)})
    told = await lines(tmp_path)
    assert len(told) <= MAX_LINES + 1
    assert "more" in told[-1] or told[-1].endswith("entries)")


async def test_a_tree_with_too_many_entries_is_told_with_one_level_and_then_with_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    fill(tmp_path, {f"a/{file}": "" for file in range(11)} | {"b": ""})
    assert await lines(tmp_path) == ["Its files, one level deep, without those that git ignores:", "a/", "b"]
    fill(tmp_path, {f"c{file}": "" for file in range(11)})
    assert await lines(tmp_path) == ["It holds more than 10 files; they are not listed here."]


async def test_names_that_would_break_a_line_do_not(tmp_path: Path) -> None:
    fill(tmp_path, {"a\nGit branch: evil": "", "d\u2028/x": ""})
    assert await lines(tmp_path) == [
        "Its files, two levels deep, without those that git ignores:",
        "a\ufffdGit branch: evil",
        "d\ufffd/",
        "  x",
    ]


@pytest.mark.parametrize(
    ("head", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("ref: refs/heads/a/b", "a/b"),
        ("0123456789012345678901234567890123456789\n", None),
        ("ref: refs/heads/two words\n", None),
        ("ref: refs/heads/" + "x" * 300, None),
        ("root:x:0:0\n", None),
        ("", None),
    ],
)
def test_a_branch_is_one_word_or_nothing(tmp_path: Path, head: str, branch: str | None) -> None:
    fill(tmp_path, {".git/HEAD": head})
    assert git_branch(tmp_path) == branch


def test_the_branch_of_a_worktree_is_that_of_the_folder_which_its_file_names(tmp_path: Path) -> None:
    fill(tmp_path, {"main/.git/worktrees/w/HEAD": "ref: refs/heads/side\n", "w/.git": "gitdir: ../main/.git/worktrees/w\n"})
    assert git_branch(tmp_path / "w") == "side"
    fill(tmp_path, {"w/.git": f"gitdir: {tmp_path}/main/.git/worktrees/w\n"})
    assert git_branch(tmp_path / "w") == "side"
    fill(tmp_path, {"w/.git": "gitdir: ../nowhere\n"})
    assert git_branch(tmp_path / "w") is None
    fill(tmp_path, {"w/.git": "something else\n"})
    assert git_branch(tmp_path / "w") is None


def test_a_head_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git/HEAD")
    assert git_branch(tmp_path) is None


async def test_a_huge_folder_is_counted_and_not_compared_with_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walked(*_: object, **__: object) -> None:
        raise AssertionError("it was gone through")

    fill(tmp_path, {f"f{file}": "" for file in range(11)})
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    monkeypatch.setattr(module, "Walk", walked)
    assert await lines(tmp_path) == ["It holds more than 10 files; they are not listed here."]
