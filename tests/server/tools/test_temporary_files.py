"""What a killed write leaves beside a file: tools do not see it, and a later write in that folder takes it away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from refold_server.tools.atomic_write import is_temporary, make_file, replace_file, temporary_name
from refold_server.tools.workspace_path import Workspace, WorkspacePath
from tests.support.tool_calls import call, fill, text

HOUR_S = 3600
LEFT = ".refold-0123456789abcdef.tmp"
OTHERS = (
    ".refold-notes.tmp",
    ".refold-0123456789abcdef.tmp.txt",
    "refold-0123456789abcdef.tmp",
    ".refold-0123456789ABCDEF.tmp",
)


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then), follow_symlinks=False)


def test_only_the_names_that_writes_give_are_theirs() -> None:
    assert is_temporary(temporary_name())
    assert is_temporary(LEFT)
    assert not any(map(is_temporary, OTHERS))


@pytest.mark.anyio
async def test_what_a_killed_write_left_is_not_listed_and_not_searched(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "zebra", f"sub/{LEFT}": "zebra", LEFT: "zebra", "sub/.refold-notes.tmp": "zebra"})
    assert text(await call(tmp_path, "list_files")) == "a.txt\nsub/.refold-notes.tmp"
    assert text(await call(tmp_path, "search_text", pattern="zebra")) == "a.txt:1: zebra\nsub/.refold-notes.tmp:1: zebra"


@pytest.mark.parametrize("way", ["replace", "make"])
def test_the_next_write_in_a_folder_takes_away_what_is_old_there(tmp_path: Path, way: str) -> None:
    fill(tmp_path, {"a.txt": "old", LEFT: "", f"sub/{LEFT}": "", **dict.fromkeys(OTHERS, "")})
    for file in (LEFT, f"sub/{LEFT}", *OTHERS):
        age(tmp_path / file, HOUR_S + 60)
    if way == "replace":
        replace_file(Workspace(tmp_path), WorkspacePath(("a.txt",)), b"old", b"new")
    else:
        make_file(Workspace(tmp_path), WorkspacePath(("n.txt",)), b"new")
    assert not (tmp_path / LEFT).exists()
    assert all((tmp_path / name).exists() for name in (f"sub/{LEFT}", *OTHERS)), "another folder, other names"


def test_what_may_still_be_written_and_what_is_no_file_stays(tmp_path: Path) -> None:
    link, folder = tmp_path / ".refold-1111111111111111.tmp", tmp_path / ".refold-2222222222222222.tmp"
    fill(tmp_path, {LEFT: ""})
    age(tmp_path / LEFT, HOUR_S - 60)
    link.symlink_to("nowhere")
    folder.mkdir()
    for each in (link, folder):
        age(each, HOUR_S + 60)
    make_file(Workspace(tmp_path), WorkspacePath(("n.txt",)), b"new")
    assert sorted(os.listdir(tmp_path)) == sorted([LEFT, link.name, folder.name, "n.txt"])
