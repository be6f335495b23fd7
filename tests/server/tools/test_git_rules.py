"""What git ignores, by whatever it is told so, and git's own folders whatever they are called; held against git itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from refold_server.tools.repository import is_git_folder
from refold_server.tools.tree_walk import Walk
from refold_server.tools.workspace_path import ROOT, Workspace
from tests.support.tool_calls import call, text

NAMES = ("keep.txt", "a.log", "sub/b.log", "sub/keep.txt", "build/out.txt", "sub/secret.key", "sub/deep/only.me")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without configuration."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    for name in ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody who has a name."""
    named = ("-c", "user.name=n", "-c", "user.email=n@n")
    return subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def repository(folder: Path, *more: str) -> Path:
    """Make a repository with some files."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", *more)
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    return folder


def assert_same(folder: Path) -> list[str]:
    """Compare a walk of a folder with what git gives there; give it."""
    ours = [entry.place.text for entry in Walk(Workspace(folder), ROOT, lambda: None).entries()]
    assert sorted(ours) == sorted(git(folder, "ls-files", "-co", "--exclude-standard").split())
    return ours


def test_a_folder_obeys_the_rules_of_its_repository_from_the_root_down(tmp_path: Path, home: Path) -> None:
    root = repository(tmp_path / "r")
    (root / ".gitignore").write_text("*.log\n/build/\nsub/deep/\n")
    (root / "sub/.gitignore").write_text("!b.log\n")
    assert "b.log" in assert_same(root / "sub")
    assert_same(root)


def test_a_folder_that_is_ignored_itself_is_looked_at(tmp_path: Path, home: Path) -> None:
    root = repository(tmp_path / "r")
    (root / ".gitignore").write_text("/build/\n")
    assert [entry.place.text for entry in Walk(Workspace(root / "build"), ROOT, lambda: None).entries()] == ["out.txt"]


def test_excludes_of_the_repository_and_of_the_user_count(tmp_path: Path, home: Path) -> None:
    root = repository(tmp_path / "r")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("*.key\n")
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("*.log\n")
    assert "a.log" not in assert_same(root)
    assert_same(root / "sub")
    (home / "mine").write_text("only.me\n")
    (home / ".gitconfig").write_text('[user]\n\tname = n\n[core]\n\texcludesFile = "~/mine"\n')
    assert "a.log" in assert_same(root)
    git(root, "config", "core.excludesfile", str(home / ".config/git/ignore"))
    assert "a.log" not in assert_same(root)


def test_a_worktree_has_the_excludes_of_its_repository(tmp_path: Path, home: Path) -> None:
    root = repository(tmp_path / "r")
    git(root, "add", "keep.txt")
    git(root, "commit", "-qm", "one")
    (root / ".git/info/exclude").write_text("*.log\n")
    git(root, "worktree", "add", "-q", str(tmp_path / "w"))
    (tmp_path / "w/a.log").write_text("x\n")
    assert assert_same(tmp_path / "w") == ["keep.txt"]


@pytest.mark.anyio
async def test_gits_own_folder_is_protected_whatever_it_is_called(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "ws"
    repository(root / "apart", "--separate-git-dir", str(root / "apart.data"))
    git(root, "init", "-q", "--bare", "bare")
    (root / "plain").mkdir()
    for path in ("apart.data/hooks/post-checkout", "bare/config", "bare/hooks/new/deep", "apart/.git", "plain/.GIT/config"):
        assert "belongs to git itself" in text(await call(root, "write_file", path=path, content="x"))
    assert not is_git_folder(root / "plain")
    assert "belongs to git itself" in text(await call(root / "bare" / "hooks", "write_file", path="post-receive", content="x"))
