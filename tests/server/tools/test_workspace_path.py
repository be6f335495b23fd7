"""Confinement by resolving: E-06, one item after the other, on a real file system."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import ROOT, Workspace, WorkspacePath, shown
from tests.support.tool_calls import fill


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tree of E-06; gives `ROOT`, whose `ws` is the workspace."""
    fill(
        tmp_path,
        {
            "ws/a.txt": "inside\n",
            "ws/sub/x": "in sub\n",
            "ws-evil/s.txt": "evil\n",
            "out/s.txt": "secret\n",
        },
    )
    (tmp_path / "ws/l").symlink_to("../out")
    (tmp_path / "ws/d").symlink_to("../out/new.txt")
    (tmp_path / "ws/in").symlink_to("sub")
    return tmp_path


@pytest.fixture(params=["ws", "link-to-ws"])
def workspace(root: Path, request: pytest.FixtureRequest) -> Workspace:
    """The workspace, once by its own path and once through a symbolic link."""
    (root / "link-to-ws").symlink_to("ws")
    return Workspace(root / str(request.param))


def _refusal(workspace: Workspace, path: str) -> str:
    with pytest.raises(ToolFailure) as caught:
        workspace.locate(path)
    return caught.value.code


def _read(workspace: Workspace, path: str) -> str:
    descriptor = workspace.open_file(workspace.locate(path))
    try:
        return os.read(descriptor, 1000).decode()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("path", ["../ws-evil/s.txt", "l/s.txt", "sub/../../out/s.txt", "..", "../ws-evil", "/", "l"])
def test_paths_that_lead_out_are_refused_e_06(workspace: Workspace, path: str) -> None:
    assert _refusal(workspace, path) == "DENIED"


@pytest.mark.parametrize("path", ["l/n.txt", "d", "l/deep/er/n.txt", "sub/../../n.txt"])
def test_a_new_file_outside_is_refused_and_not_made_e_06(workspace: Workspace, root: Path, path: str) -> None:
    assert _refusal(workspace, path) == "DENIED"
    assert sorted(os.listdir(root / "out")) == ["s.txt"]


def test_absolute_paths_outside_are_refused_and_inside_are_not_e_06(workspace: Workspace, root: Path) -> None:
    assert _refusal(workspace, str(root / "out/s.txt")) == "DENIED"
    assert workspace.locate(str(root / "ws/a.txt")) == WorkspacePath(("a.txt",))
    assert workspace.locate(str(workspace.root / "a.txt")) == WorkspacePath(("a.txt",))


def test_a_nul_character_in_a_path_is_refused_e_06(workspace: Workspace) -> None:
    assert _refusal(workspace, "a\0.txt") == "INVALID_ARGUMENTS"
    assert _refusal(workspace, "\0") == "INVALID_ARGUMENTS"


def test_half_a_surrogate_pair_in_a_path_is_refused_a_14(workspace: Workspace) -> None:
    assert _refusal(workspace, "a\ud83d") == "INVALID_ARGUMENTS"


def test_links_that_stay_inside_work_e_06(workspace: Workspace) -> None:
    assert _read(workspace, "in/x") == "in sub\n"
    assert workspace.locate("in/x") == WorkspacePath(("sub", "x"))
    assert workspace.locate("in/../a.txt") == WorkspacePath(("a.txt",)), "`..` goes up from where the link led"


def test_a_path_that_goes_out_and_comes_back_is_inside(workspace: Workspace) -> None:
    assert _read(workspace, "../ws/a.txt") == "inside\n"


def test_a_new_file_is_placed_in_the_nearest_folder_that_exists_e_06(workspace: Workspace) -> None:
    assert workspace.locate("in/new/deep.txt") == WorkspacePath(("sub", "new", "deep.txt"))
    assert workspace.locate(".") == ROOT
    assert workspace.locate("") == ROOT


def test_a_loop_of_links_is_an_error_and_not_a_hang(workspace: Workspace) -> None:
    (workspace.root / "loop").symlink_to("loop")
    with pytest.raises(ToolFailure) as caught:
        _read(workspace, "loop")
    assert caught.value.code == "TOOL_FAILED"


@pytest.mark.parametrize("swapped", ["sub", "sub/x"])
def test_a_link_put_in_after_the_check_is_not_followed(workspace: Workspace, root: Path, swapped: str) -> None:
    place = workspace.locate("sub/x")
    (root / "out/x").write_text("secret\n")
    os.rename(workspace.root / swapped, workspace.root / "away")
    (workspace.root / swapped).symlink_to(root / "out" if swapped == "sub" else root / "out/x")
    with pytest.raises(ToolFailure):
        workspace.open_file(place)
    with pytest.raises(ToolFailure):
        workspace.open_folder(place)


def test_a_pipe_is_refused_instead_of_waited_for(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pipe")
    with pytest.raises(ToolFailure, match="not a file"):
        workspace.open_file(workspace.locate("pipe"))


@pytest.mark.parametrize("path", [".", "sub"])
def test_a_folder_is_not_opened_as_a_file(workspace: Workspace, path: str) -> None:
    with pytest.raises(ToolFailure, match="is a folder"):
        workspace.open_file(workspace.locate(path))


def test_what_does_not_exist_is_said_without_a_path_of_the_machine(workspace: Workspace, root: Path) -> None:
    for path in ("nothing.txt", "no/such/folder", "a.txt/below", "x" * 300):
        with pytest.raises(ToolFailure) as caught:
            workspace.open_file(workspace.locate(path))
        assert str(root) not in caught.value.message
        assert caught.value.code == "TOOL_FAILED"


def test_a_workspace_that_is_gone_is_said_so_b_05(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "gone")
    for use in (lambda: workspace.locate("a"), lambda: workspace.open_folder(ROOT)):
        with pytest.raises(ToolFailure, match="not there any more"):
            use()


def test_a_relative_workspace_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="absolute"):
        Workspace(Path("here"))


def test_no_descriptor_is_left_open(workspace: Workspace) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in ("a.txt", "sub/x", "nothing", "sub/none/none", "sub", "."):
        try:
            os.close(workspace.open_file(workspace.locate(path)))
        except ToolFailure:
            continue
        finally:
            workspace.is_folder(workspace.locate("sub"))
    assert len(os.listdir("/dev/fd")) == before


def test_a_name_that_would_break_a_line_is_shown_with_marks() -> None:
    assert shown("a\nb\u2028c\udc80é🙂") == "a\ufffdb\ufffdc\ufffdé🙂"
    assert WorkspacePath(("a", "b\n")).shown == "a/b\ufffd"


_PARTS = st.sampled_from(["..", ".", "", "l", "in", "sub", "d", "a.txt", "x", "ws", "out", "s.txt", "new", "~", "/"])


@given(parts=st.lists(_PARTS | st.text(max_size=5), max_size=8))
def test_whatever_is_located_lies_inside(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    base = tmp_path_factory.getbasetemp() / "confined"
    if not base.exists():
        fill(base, {"ws/a.txt": "", "ws/sub/x": "", "out/s.txt": ""})
        (base / "ws/l").symlink_to("../out")
        (base / "ws/d").symlink_to("../out/new.txt")
        (base / "ws/in").symlink_to("sub")
    workspace = Workspace(base / "ws")
    try:
        place = workspace.locate("/".join(parts))
    except ToolFailure:
        return
    assert ".." not in place.parts
    real = PurePosixPath(os.path.realpath(base / "ws" / place.text))
    assert real.is_relative_to(os.path.realpath(base / "ws"))
