"""What `.gitignore` means here is what git says, as far as the rules lie in the workspace."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold_server.tools.ignore_rules import MAX_RULES, Glob, is_ignored, is_named, parse_glob, parse_rules, read_globs
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.tree_walk import Walk
from refold_server.tools.workspace_path import ROOT, Workspace, WorkspacePath
from tests.support.tool_calls import fill


def _place(path: str) -> WorkspacePath:
    return WorkspacePath(tuple(path.split("/")))


def _matches(pattern: str, path: str) -> bool:
    return is_named(read_globs(pattern), _place(path).parts)


def _walked(root: Path) -> list[str]:
    return [entry.place.text for entry in Walk(Workspace(root), ROOT, lambda: None).entries()]


def _git(root: Path, *arguments: str) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", "-C", str(root), *arguments], env=environment, capture_output=True, check=True)
    return [name.decode("utf-8", "surrogateescape") for name in done.stdout.split(b"\0") if name]


_NAMES = ["a.py", "a.pyc", "b.o", "build", "keep.o", "#x", "!y", "a b", "docs", "log.txt", "é.txt"]
_LINES = [
    "*.o",
    "!keep.o",
    "build/",
    "/build",
    "docs/*",
    "!docs/log.txt",
    "*.py[co]",
    "**/log.txt",
    "docs/**/b.o",
    "a b",
    "a.py  ",
    "a.py\\ ",
    r"\#x",
    r"\!y",
    "# comment",
    "",
    "é*",
    "*",
    "!*/",
    "!*.py",
    "docs",
    "!docs",
    "sub/build",
    "build/**",
    "log.*\r",
    "[!a].o",
    "[z-a]",
    "foo\\",
    "[[:alpha:]].*",
    "[[:digit:]a]*",
    "[[:nothing:]]*",
    "/**",
    "**/",
    "**",
    "a**c",
    "docs/**/",
    "**/docs/**/a.py",
    "/",
    "//a.py",
    "?.o",
    "[]-]*",
    "[a-",
    "[^a-c]*",
    "b[u-u]il[\\d]",
]


def _check_against_git(root: Path, files: list[str], rules: dict[str, str]) -> None:
    fill(root, {".git/HEAD": "ref: refs/heads/main\n", ".git/objects/keep": "", ".git/refs/keep": ""})
    for name, content in {**dict.fromkeys(files, ""), **rules}.items():
        try:
            fill(root, {name: content})
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # the name of a file that another path needs as a folder
    assert sorted(_walked(root)) == sorted(_git(root, "ls-files", "-z", "--others", "--exclude-standard"))


def _glob(line: str) -> Glob:
    glob = parse_glob(line)
    assert glob is not None
    return glob


@settings(max_examples=60)
@given(
    files=st.lists(
        st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3).map("/".join), min_size=1, max_size=8, unique=True
    ),
    rules=st.dictionaries(
        st.sampled_from([".gitignore", "docs/.gitignore", "build/.gitignore", ".git/info/exclude"]),
        st.lists(st.sampled_from(_LINES), max_size=4).map("\n".join),
    ),
)
def test_a_walk_finds_what_git_finds(tmp_path_factory: pytest.TempPathFactory, files: list[str], rules: dict[str, str]) -> None:
    _check_against_git(tmp_path_factory.mktemp("repository"), files, rules)


@settings(max_examples=60)
@given(line=st.text(alphabet="ab*?[]!^-/\\. #", min_size=1, max_size=10))
def test_any_line_means_what_git_makes_of_it(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    files = ["a", "b", "ab", "a.b", "ba/a", "ba/b/a", "b]/ab", "[/a", "-", "a b", "aa/ba/ab/a", "a\\b", "!a", "#", "^"]
    _check_against_git(tmp_path_factory.mktemp("repository"), files, {".gitignore": line + "\n"})


def test_the_deepest_rules_decide_and_the_last_line_in_them(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            ".git/info/exclude": "*.tmp\n",
            ".gitignore": "*.log\n!a.tmp\n",
            "a.tmp": "",
            "b.tmp": "",
            "a.log": "",
            "sub/.gitignore": "!a.log\n",
            "sub/a.log": "",
            "sub/b.log": "",
        },
    )
    assert _walked(tmp_path) == [".gitignore", "a.tmp", "sub/.gitignore", "sub/a.log"]


def test_in_one_file_the_last_line_that_matches_decides() -> None:
    for text, ignored in (("*.o\n!a.o\n", False), ("!a.o\n*.o\n", True)):
        assert is_ignored((parse_rules(text.encode(), 0),), _place("a.o"), folder=False) is ignored


def test_rules_are_anchored_where_their_file_stands(tmp_path: Path) -> None:
    fill(tmp_path, {"sub/.gitignore": "/x\ndeep/y\n", "x": "", "sub/x": "", "sub/deep/x": "", "sub/deep/y": "", "deep/y": ""})
    assert _walked(tmp_path) == ["deep/y", "sub/.gitignore", "sub/deep/x", "x"]


def test_a_line_longer_than_any_path_is_passed_over() -> None:
    assert parse_glob("*a" * 100_000) is None


def test_a_star_passes_over_a_line_break_in_a_name() -> None:
    assert _glob("a*b?c").fits(("a\n\nb\nc",), folder=False)


def test_nothing_below_an_ignored_folder_comes_back(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "out/\n!out/a.txt\n", "out/a.txt": "", "b.txt": ""})
    assert _walked(tmp_path) == [".gitignore", "b.txt"]


def test_rules_that_are_a_link_are_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, {"ws/a.txt": "", "rules": "*.txt\n"})
    (tmp_path / "ws/.gitignore").symlink_to("../rules")
    assert _walked(tmp_path / "ws") == [".gitignore", "a.txt"]


@pytest.mark.parametrize("data", [b"\xff\xfe*.txt\n", b"\0\n*.o\n", b"[[:none:]]*\n", b"[\n", b"!\n", b"[z-a]\n", b"a\\\n"])
def test_a_line_that_means_nothing_is_passed_over(data: bytes) -> None:
    rules = parse_rules(data + b"secret\n", 0)
    assert is_ignored((rules,), _place("secret"), folder=False)
    assert not is_ignored((rules,), _place("a.txt"), folder=False)


def test_a_byte_order_mark_and_crlf_do_not_hide_rules() -> None:
    rules = parse_rules(b"\xef\xbb\xbf*.o\r\n*.tmp\r\n", 0)
    assert is_ignored((rules,), _place("a.o"), folder=False)
    assert is_ignored((rules,), _place("a.tmp"), folder=False)


@pytest.mark.parametrize("line", ["*a" * 40 + "*b", "**/" * 40 + "b", "[ab]*" * 40 + "c", "?*" * 60 + "b/c", "*/" * 60 + "b"])
def test_no_line_can_take_for_ever(line: str) -> None:
    glob = _glob(line)
    assert not glob.fits(("a" * 250,) * 60, folder=False)
    assert not glob.fits(("a" * 250,), folder=False)


@given(data=st.binary(max_size=200) | st.text(alphabet="*?[]!-/\\#a\n ^{}", max_size=60).map(str.encode))
def test_no_rules_and_no_globs_raise_anything_unforeseen(data: bytes) -> None:
    is_ignored((parse_rules(data, 0),), _place("a/b.txt"), folder=False)
    with contextlib.suppress(ToolFailure):
        _matches(data.decode("utf-8", "replace"), "a/b.txt")


def test_globs_match_at_any_depth_unless_they_hold_a_slash() -> None:
    assert _matches("*.py", "a/b/c.py")
    assert _matches("src/*.py", "src/a.py")
    assert not _matches("src/*.py", "src/deep/a.py")
    assert not _matches("src/*.py", "lib/src/a.py")
    assert _matches("src/**/*.py", "src/deep/er/a.py")
    assert _matches("src/**/*.py", "src/a.py")
    assert _matches("docs/", "docs/a/b.md")
    assert _matches("./a.py", "a.py")


def test_globs_take_alternatives_in_braces() -> None:
    assert _matches("src/**/*.{ts,tsx}", "src/a.ts")
    assert _matches("src/**/*.{ts,tsx}", "src/b/a.tsx")
    assert not _matches("*.{ts,tsx}", "a.js")
    assert _matches("{a,b}/{c,d}", "b/c")
    assert _matches("{a}", "{a}"), "braces without a comma are characters"


def test_a_glob_that_begins_like_a_negation_or_a_comment_is_a_name() -> None:
    assert _matches("!y", "!y")
    assert _matches("#x", "#x")
    assert not _matches("!y", "y")


@pytest.mark.parametrize("pattern", ["", "  ", "/", "[", "[[:no:]]", "a\\", "{a,}", "{a,b}" * 7])
def test_a_glob_that_cannot_be_used_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        read_globs(pattern)
    assert caught.value.code == "INVALID_ARGUMENTS"
    assert "pattern" in caught.value.message


def test_of_very_many_rules_the_last_ones_hold() -> None:
    rules = parse_rules(b"first\n" + b"other\n" * MAX_RULES, 0)
    assert len(rules.globs) == MAX_RULES
    assert not is_ignored((rules,), _place("first"), folder=False)
    assert is_ignored((rules,), _place("other"), folder=False)
