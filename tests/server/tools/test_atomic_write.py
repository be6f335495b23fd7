"""Writing a file: whole or not at all, into the workspace alone, and as it was in all but its text."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from refold_server.tools.atomic_write import make_file, replace_file
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import Workspace, WorkspacePath
from tests.support.tool_calls import fill

A = WorkspacePath(("a.txt",))
NEW = WorkspacePath(("x", "y", "n.txt"))


def refusal(act: Any, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(ToolFailure) as caught:
        act(*arguments)
    return caught.value.code, caught.value.name


def refusing(*_given: Any, **_more: Any) -> bool:
    return False


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_mode_owner_and_attributes_stay(tmp_path: Path) -> None:
    file = fill(tmp_path, {"a.txt": "old"}) / "a.txt"
    file.chmod(0o4751)
    if os.geteuid() == 0:
        os.chown(file, 12345, 54321)
        file.chmod(0o4751)
    os.setxattr(file, "user.refold", b"kept")
    before = file.stat()
    replace_file(Workspace(tmp_path), A, b"old", b"new text")
    after = file.stat()
    assert file.read_bytes() == b"new text"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert os.getxattr(file, "user.refold") == b"kept"
    assert after.st_ino != before.st_ino, "it is another file, renamed over the old one"
    assert tree(tmp_path) == ["a.txt"]


def test_a_file_with_several_names_keeps_them(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "old text"})
    os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    replace_file(Workspace(tmp_path), A, b"old text", b"new")
    replace_file(Workspace(tmp_path), A, b"new", b"longer than before")
    assert (tmp_path / "b.txt").read_bytes() == b"longer than before"
    assert (tmp_path / "a.txt").samefile(tmp_path / "b.txt")
    assert refusal(replace_file, Workspace(tmp_path), A, b"other", b"x")[0] == "STALE"
    assert (tmp_path / "b.txt").read_bytes() == b"longer than before"


def test_a_file_in_a_folder_that_takes_no_new_ones_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fill(tmp_path, {"a.txt": "old"}) / "a.txt"
    inode = file.stat().st_ino
    monkeypatch.setattr(os, "access", refusing)  # root may write everywhere
    replace_file(Workspace(tmp_path), A, b"old", b"new")
    assert file.read_bytes() == b"new"
    assert file.stat().st_ino == inode


def test_a_file_whose_owner_a_new_one_could_not_have_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the tests are not root's all files are ours; then a new one can have the owner, and takes the place of the old."""
    file = fill(tmp_path, {"a.txt": "old"}) / "a.txt"
    if os.geteuid() == 0:
        os.chown(file, 12345, 54321)
    file.chmod(0o660)
    before = file.stat()

    def not_root(*_given: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", not_root)
    replace_file(Workspace(tmp_path), A, b"old", b"new text")
    after = file.stat()
    assert file.read_bytes() == b"new text"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert (after.st_ino == before.st_ino) == (os.geteuid() == 0)
    assert tree(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("call", ["posix_fallocate", "write", "ftruncate", "fsync"])
def test_a_write_in_place_that_fails_half_way_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """What fails has done a part: a file system that runs out of room may have made the file longer, or taken some bytes."""
    fill(tmp_path, {"a.txt": "old text"})
    os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    done = getattr(os, call)
    failed: list[str] = []

    def half(descriptor: int, *given: Any) -> Any:
        if failed:
            return done(descriptor, *given)
        failed.append(call)
        done(descriptor, *([given[0][:3]] if call == "write" else given))
        raise OSError(28, "full")

    monkeypatch.setattr(os, call, half)
    assert refusal(replace_file, Workspace(tmp_path), A, b"old text", b"new and longer") == ("TOOL_FAILED", "DiskFull")
    assert failed == [call]
    assert (tmp_path / "b.txt").read_bytes() == b"old text"


@pytest.mark.parametrize("links", [1, 2])
def test_e_05_c_of_two_writes_at_the_same_moment_the_second_sees_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    """The first has checked the text and not written yet when the second comes, as of another session of the same folder."""
    workspace = Workspace(fill(tmp_path, {"a.txt": "old"}))
    if links == 2:
        os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    call = "rename" if links == 1 else "lseek"
    done = getattr(os, call)
    second = threading.Thread(target=lambda: answers.append(refusal(replace_file, workspace, A, b"old", b"second")))
    answers: list[tuple[str, str]] = []
    looked, over = threading.Event(), threading.Event()

    def late(*given: Any, **more: Any) -> None:
        if not second.ident:
            second.start()
            assert looked.wait(60), "the second one does not wait for the first"
        done(*given, **more)

    def waiting(_seconds: float) -> None:
        looked.set()
        over.wait(60)

    monkeypatch.setattr(os, call, late)
    monkeypatch.setattr(time, "sleep", waiting)
    replace_file(workspace, A, b"old", b"1st")
    over.set()
    second.join()
    assert answers == [("STALE", "FileChanged")]
    assert (tmp_path / "a.txt").read_bytes() == b"1st"


@pytest.mark.parametrize("links", [1, 2])
def test_a_lock_that_another_program_keeps_or_that_there_is_none_of_stops_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    workspace = Workspace(fill(tmp_path, {"a.txt": "old"}))
    if links == 2:
        os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    monkeypatch.setattr(time, "sleep", refusing)
    theirs = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(theirs, fcntl.LOCK_EX)
    replace_file(workspace, A, b"old", b"new")
    os.close(theirs)

    def none(*_given: Any) -> None:
        raise OSError(37, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    replace_file(workspace, A, b"new", b"newer")
    assert (tmp_path / "a.txt").read_bytes() == b"newer"


@pytest.mark.parametrize("links", [1, 2])
def test_a_file_that_holds_something_else_is_not_touched(tmp_path: Path, links: int) -> None:
    file = fill(tmp_path, {"a.txt": "theirs"}) / "a.txt"
    if links == 2:
        os.link(file, tmp_path / "b.txt")
    before = file.stat()
    for old in (b"older", b"theirs and more", b"their", b""):
        assert refusal(replace_file, Workspace(tmp_path), A, old, b"new") == ("STALE", "FileChanged")
    assert file.read_bytes() == b"theirs"
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert len(tree(tmp_path)) == links


def test_what_is_put_in_the_way_is_not_followed(tmp_path: Path) -> None:
    workspace = Workspace(fill(tmp_path, {"ws/sub/a.txt": "old", "out/a.txt": "old"}) / "ws")
    place = workspace.locate("sub/a.txt")
    (tmp_path / "ws/sub").rename(tmp_path / "ws/moved")
    (tmp_path / "ws/sub").symlink_to("../out")
    assert refusal(replace_file, workspace, place, b"old", b"new")[0] == "TOOL_FAILED"
    (tmp_path / "ws/sub").unlink()
    (tmp_path / "ws/sub").mkdir()
    (tmp_path / "ws/sub/a.txt").symlink_to("../../out/a.txt")
    assert refusal(replace_file, workspace, place, b"old", b"new")[0] == "TOOL_FAILED"
    (tmp_path / "ws/sub/a.txt").unlink()
    (tmp_path / "ws/sub/a.txt").symlink_to("../../out/new.txt")
    assert refusal(make_file, workspace, place, b"new") == ("STALE", "FileChanged")
    (tmp_path / "ws/x").symlink_to("../out")
    assert refusal(make_file, workspace, NEW, b"new")[0] == "TOOL_FAILED"
    assert (tmp_path / "out/a.txt").read_bytes() == b"old"
    assert tree(tmp_path / "out") == ["a.txt"]


@pytest.mark.parametrize("links", [1, 2])
def test_a_folder_swapped_for_a_link_amid_the_write_changes_nothing_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    """Between opening the folder and writing: the descriptor still is the folder that was meant."""
    workspace = Workspace(fill(tmp_path, {"ws/sub/a.txt": "old", "out/a.txt": "old"}) / "ws")
    if links == 2:
        os.link(tmp_path / "ws/sub/a.txt", tmp_path / "ws/other")
    opened = workspace.open_folder

    def swap(place: WorkspacePath) -> int:
        descriptor = opened(place)
        if not (tmp_path / "ws/sub").is_symlink():
            (tmp_path / "ws/sub").rename(tmp_path / "ws/moved")
            (tmp_path / "ws/sub").symlink_to("../out")
        return descriptor

    monkeypatch.setattr(workspace, "open_folder", swap)
    assert refusal(replace_file, workspace, WorkspacePath(("sub", "a.txt")), b"old", b"new")[0] == "TOOL_FAILED"
    assert (tmp_path / "out/a.txt").read_bytes() == b"old"
    assert tree(tmp_path / "out") == ["a.txt"]
    assert tree(tmp_path / "ws/moved") == ["a.txt"]


def test_a_new_file_gets_the_folders_it_needs_and_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        make_file(Workspace(tmp_path), NEW, b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "x/y/n.txt").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "x/y/n.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "x/y").stat().st_mode) == 0o750
    assert tree(tmp_path) == ["x", "x/y", "x/y/n.txt"]


@pytest.mark.parametrize("linked", [True, False])
def test_a_new_file_never_takes_the_place_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool) -> None:
    def no_links(*_given: Any, **_more: Any) -> None:
        raise PermissionError(1, "no hard links here")

    if not linked:
        monkeypatch.setattr(os, "link", no_links)
    make_file(Workspace(tmp_path), NEW, b"first")
    assert refusal(make_file, Workspace(tmp_path), NEW, b"second") == ("STALE", "FileChanged")
    assert (tmp_path / "x/y/n.txt").read_bytes() == b"first"
    assert tree(tmp_path) == ["x", "x/y", "x/y/n.txt"]


def test_a_folder_that_somebody_else_makes_at_the_same_moment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = os.mkdir

    def faster(*given: Any, **more: Any) -> None:
        made(*given, **more)
        made(*given, **more)

    monkeypatch.setattr(os, "mkdir", faster)
    make_file(Workspace(tmp_path), NEW, b"new")
    assert (tmp_path / "x/y/n.txt").read_bytes() == b"new"


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_new_file_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def broken(*_given: Any, **_more: Any) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(os, call, broken)
    assert refusal(make_file, Workspace(tmp_path), NEW, b"new") == ("TOOL_FAILED", "NotWritten")
    assert tree(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "fchmod"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def broken(*_given: Any, **_more: Any) -> None:
        raise OSError(5, "broken")

    fill(tmp_path, {"a.txt": "old"})
    monkeypatch.setattr(os, call, broken)
    assert refusal(replace_file, Workspace(tmp_path), A, b"old", b"new") == ("TOOL_FAILED", "NotWritten")
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert tree(tmp_path) == ["a.txt"]


def test_a_file_that_its_mode_protects_is_known(tmp_path: Path) -> None:
    """In another process, which is somebody else by its real user: root may write everything."""
    program = (
        "import os, sys; from pathlib import Path; from refold_server.tools.workspace_path import *; "
        "from refold_server.tools.atomic_write import is_writable\n"
        "if os.geteuid() == 0: os.setreuid(65534, 0)\n"
        "sys.exit(is_writable(Workspace(Path(sys.argv[1])), WorkspacePath(('a.txt',))))"
    )
    file = fill(tmp_path, {"a.txt": "old"}) / "a.txt"
    tmp_path.chmod(0o755)
    for mode, writable in ((0o444, False), (0o666, True)):
        file.chmod(mode)
        assert subprocess.run([sys.executable, "-c", program, tmp_path], check=False).returncode == writable


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Generator[Path | None]:
    """A file system of 64 KiB where the machine lets us mount one; None elsewhere."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    yield place if mounted else None
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("links", [1, 2])
def test_a_full_disk_leaves_the_old_file_and_is_named(tiny_disk: Path | None, links: int) -> None:
    """Where no file system can be mounted, the next test is the one with a real write that fails."""
    if tiny_disk is None:
        return
    fill(tiny_disk, {"a.txt": "o" * 20_000})
    if links == 2:
        os.link(tiny_disk / "a.txt", tiny_disk / "b.txt")
    workspace = Workspace(tiny_disk)
    assert refusal(replace_file, workspace, A, b"o" * 20_000, b"n" * 80_000) == ("TOOL_FAILED", "DiskFull")
    assert refusal(make_file, workspace, NEW, b"n" * 80_000) == ("TOOL_FAILED", "DiskFull")
    assert (tiny_disk / "a.txt").read_bytes() == b"o" * 20_000
    assert tree(tiny_disk) == ["a.txt", "b.txt"][:links]
    replace_file(workspace, A, b"o" * 20_000, b"n" * 100)
    assert (tiny_disk / "a.txt").read_bytes() == b"n" * 100


def test_a_file_at_the_limit_of_its_size_stays_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "old"})
    program = (
        "import resource, sys; from pathlib import Path; from refold_server.tools.workspace_path import *; "
        "from refold_server.tools.atomic_write import *; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: replace_file(Workspace(Path(sys.argv[1])), WorkspacePath(('a.txt',)), b'old', bytes(2000))\n"
        "except ToolFailure as failure: print(failure.name)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "DiskFull\n"
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert tree(tmp_path) == ["a.txt"]


KILLED = """
import os, signal, sys
from pathlib import Path
from refold_server.tools.workspace_path import WorkspacePath, Workspace
from refold_server.tools.atomic_write import make_file, replace_file
left = int(sys.argv[2])
def audit(event, given):
    global left
    if event in ("open", "os.rename", "os.link", "os.chmod", "os.chown", "os.remove", "os.mkdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
workspace = Workspace(Path(sys.argv[1]))
sys.addaudithook(audit)
replace_file(workspace, WorkspacePath(("a.txt",)), b"o" * 5000, b"n" * 9000)
make_file(workspace, WorkspacePath(("x", "n.txt")), b"n" * 9000)
os._exit(0)
"""
"""A program that is killed right before one of the calls that change something, as many as its argument says into it."""


def test_a_kill_leaves_the_old_file_or_the_new_one_never_half(tmp_path: Path) -> None:
    """Invariant: A file that a tool writes is the old one or the new one, whenever the process dies and however full the disk
    is.
    """
    seen: set[tuple[bytes, bool]] = set()
    for number in range(100):
        root = fill(tmp_path / str(number), {"a.txt": "o" * 5000})
        done = subprocess.run([sys.executable, "-c", KILLED, root, str(number)], check=False)
        content = (root / "a.txt").read_bytes()
        assert content in (b"o" * 5000, b"n" * 9000)
        made = (root / "x/n.txt").exists()
        assert not made or (root / "x/n.txt").read_bytes() == b"n" * 9000
        seen.add((content[:1], made))
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    else:
        raise AssertionError("it never came to its end")
    assert seen == {(b"o", False), (b"n", False), (b"n", True)}, "kills came before, between and behind"
