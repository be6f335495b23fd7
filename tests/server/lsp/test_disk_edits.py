"""A file's text is replaced whole, or it stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from refold_server.lsp import editor_edits
from refold_server.lsp.editor_edits import DiskText, read_text, replace_text
from refold_server.tools.atomic_write import FileChangedError, replace_file
from refold_server.tools.text_file import BYTE_ORDER_MARK
from refold_server.tools.workspace_path import Workspace, WorkspacePath


def read(path: Path) -> DiskText:
    found = read_text(str(path))
    assert found is not None
    return found


def made(path: Path, data: bytes = b"old\n") -> DiskText:
    path.write_bytes(data)
    return read(path)


def test_a_file_is_read_with_its_text_where_it_has_one(tmp_path: Path) -> None:
    file = tmp_path / "a"
    assert read_text(str(file)) is None
    assert made(file, "é\r\n".encode()) == DiskText("é\r\n".encode(), "é\r\n")
    assert made(file, BYTE_ORDER_MARK + b"a") == DiskText(BYTE_ORDER_MARK + b"a", "a")
    assert made(file, b"\xff") == DiskText(b"\xff", None)
    with pytest.raises(OSError, match="directory"):
        read_text(str(tmp_path))


def test_the_text_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "a"
    replace_text(str(file), made(file), "new é\r\n")
    assert file.read_bytes() == "new é\r\n".encode()
    assert os.listdir(tmp_path) == ["a"]


def test_the_byte_order_mark_stays(tmp_path: Path) -> None:
    file = tmp_path / "a"
    replace_text(str(file), made(file, BYTE_ORDER_MARK + b"old"), "new")
    assert file.read_bytes() == BYTE_ORDER_MARK + b"new"


@pytest.mark.parametrize("mode", [0o755, 0o600])
def test_permissions_stay(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "a"
    before = made(file)
    file.chmod(mode)
    replace_text(str(file), before, "new")
    assert file.stat().st_mode & 0o7777 == mode


def test_a_link_stays_one_and_its_file_has_the_text(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    file, link = tmp_path / "sub" / "a", tmp_path / "link"
    before = made(file)
    link.symlink_to("sub/a")
    replace_text(str(link), before, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_all_names_of_a_file_have_the_text(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    before = made(file, b"a longer old text\n")
    other.hardlink_to(file)
    replace_text(str(file), before, "new")
    assert other.read_text() == "new"
    replace_text(str(other), read(other), "new, and longer than before")
    assert file.read_text() == "new, and longer than before"
    assert file.samefile(other)


@pytest.mark.parametrize("linked", [False, True])
def test_e05_a_file_that_changed_meanwhile_is_left_alone_although_its_time_did_not_change(tmp_path: Path, linked: bool) -> None:
    file = tmp_path / "a"
    before = made(file)
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    if linked:
        (tmp_path / "b").hardlink_to(file)
    file.write_bytes(b"odd\n")
    os.utime(file, ns=times)
    with pytest.raises(FileChangedError):
        replace_text(str(file), before, "new")
    assert file.read_bytes() == b"odd\n"
    assert sorted(os.listdir(tmp_path)) == (["a", "b"] if linked else ["a"])


def test_a_file_that_is_gone_meanwhile_is_not_made_and_told_as_gone(tmp_path: Path) -> None:
    file = tmp_path / "a"
    before = made(file)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        replace_text(str(file), before, "new")
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_full_leaves_the_old_text_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    before = made(file)

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(editor_edits.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_text(str(file), before, "new")
    (tmp_path / "b").hardlink_to(file)
    monkeypatch.setattr(editor_edits.os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        replace_text(str(file), before, "new, and longer")
    assert file.read_bytes() == b"old\n"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("call", ["posix_fallocate", "fsync"])
def test_a_write_in_place_that_fails_half_way_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    file = tmp_path / "a"
    before = made(file)
    (tmp_path / "b").hardlink_to(file)
    done = getattr(os, call)

    def half(*given: Any) -> None:
        done(*given)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(editor_edits.os, call, half)
    with pytest.raises(OSError, match="No space"):
        replace_text(str(file), before, "new, and longer")
    assert file.read_bytes() == b"old\n"


def test_an_owner_that_a_new_file_could_not_have_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tests are not root's all files are ours; then a new one can have the owner."""
    file = tmp_path / "a"
    before = made(file)
    if os.geteuid() == 0:
        os.chown(file, 12345, 54321)
    status = file.stat()

    def not_root(*_given: object) -> None:
        raise PermissionError

    monkeypatch.setattr(editor_edits.os, "fchown", not_root)
    replace_text(str(file), before, "new")
    assert file.read_bytes() == b"new"
    assert (file.stat().st_uid, file.stat().st_gid) == (status.st_uid, status.st_gid)
    assert os.listdir(tmp_path) == ["a"]


def test_special_bits_of_a_file_of_somebody_else_stay(tmp_path: Path) -> None:
    file = tmp_path / "a"
    before = made(file)
    if os.geteuid() == 0:
        os.chown(file, 12345, 54321)
    file.chmod(0o4751)
    replace_text(str(file), before, "new")
    assert file.stat().st_mode & 0o7777 == 0o4751


def test_a_file_that_its_mode_protects_is_refused_as_tools_refuse_it(tmp_path: Path) -> None:
    """In another process, which is somebody else by its real user: root may write everything."""
    program = (
        "import os, sys; from refold_server.lsp.editor_edits import *\n"
        "if os.geteuid() == 0: os.setreuid(65534, 0)\n"
        "try: replace_text(sys.argv[1], read_text(sys.argv[1]), 'new')\n"
        "except PermissionError as error: sys.exit(f'{error.errno} {error.filename}')"
    )
    file = tmp_path / "a"
    file.write_bytes(b"old")
    tmp_path.chmod(0o755)
    for mode, refused, text in ((0o444, 1, b"old"), (0o666, 0, b"new")):
        file.chmod(mode)
        done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, check=False)
        assert (done.returncode, file.read_bytes()) == (refused, text), done.stderr
        assert done.stderr.decode() == (f"13 {file}\n" if refused else "")
        assert file.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("links", [1, 2])
def test_e_05_c_an_edit_and_a_tool_that_write_at_the_same_moment_see_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    """The tool has checked the text and not written yet when the edit comes."""
    file = tmp_path / "a"
    before = made(file)
    if links == 2:
        (tmp_path / "b").hardlink_to(file)
    call = "rename" if links == 1 else "lseek"
    done = getattr(os, call)
    looked, over = threading.Event(), threading.Event()
    answers: list[str] = []

    def edit() -> None:
        try:
            replace_text(str(file), before, "edited")
        except FileChangedError:
            answers.append("changed")

    second = threading.Thread(target=edit)

    def late(*given: Any, **more: Any) -> None:
        if not second.ident:
            second.start()
            assert looked.wait(60), "the edit does not wait for the tool"
        done(*given, **more)

    def waiting(_seconds: float) -> None:
        looked.set()
        over.wait(60)

    monkeypatch.setattr(os, call, late)
    monkeypatch.setattr(time, "sleep", waiting)
    replace_file(Workspace(tmp_path), WorkspacePath(("a",)), before.data, b"tool")
    over.set()
    second.join()
    assert answers == ["changed"]
    assert file.read_bytes() == b"tool"
