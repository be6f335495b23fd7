"""E-06 as a model meets it: through the tools, on a workspace that is full of ways out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.tool_calls import call, code, fill, text

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["ws", "link-to-ws"])
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The tree of E-06, its workspace once by its own path and once through a symbolic link."""
    fill(
        tmp_path,
        {"ws/sub/x": "xylophone\n", "ws-evil/s.txt": "zygote evil\n", "out/s.txt": "zygote secret\n"},
    )
    (tmp_path / "ws/l").symlink_to("../out")
    (tmp_path / "ws/f").symlink_to("../out/s.txt")
    (tmp_path / "ws/d").symlink_to("../out/new.txt")
    (tmp_path / "ws/in").symlink_to("sub")
    (tmp_path / "link-to-ws").symlink_to("ws")
    return tmp_path / str(request.param)


@pytest.mark.parametrize("path", ["../ws-evil/s.txt", "l/s.txt", "f", "d", "sub/../../out/s.txt"])
async def test_reading_outside_gives_a_refusal_as_result_e_06(workspace: Path, path: str) -> None:
    for name, arguments in (("read_file", {}), ("list_files", {}), ("search_text", {"pattern": "zygote"})):
        answer = await call(workspace, name, path=path, **arguments)
        assert code(answer) == "DENIED"
        assert "secret" not in text(answer)
        assert "evil\n" not in text(answer)


async def test_a_nul_character_gives_a_refusal_as_result_e_06(workspace: Path) -> None:
    for name, arguments in (("read_file", {}), ("list_files", {}), ("search_text", {"pattern": "x"})):
        assert code(await call(workspace, name, path="a\0b", **arguments)) == "INVALID_ARGUMENTS"


@pytest.mark.parametrize("regex", [False, True])
async def test_a_search_does_not_leave_the_tree_e_06(workspace: Path, regex: bool) -> None:
    answer = await call(workspace, "search_text", pattern="zygote", regex=regex)
    assert code(answer) is None
    assert text(answer) == "[no line of 1 files holds 'zygote']"


async def test_links_that_stay_inside_can_be_read_and_searched_e_06(workspace: Path) -> None:
    assert text(await call(workspace, "read_file", path="in/x")) == "1\txylophone"
    assert text(await call(workspace, "search_text", pattern="xylo", path="in")) == "sub/x:1: xylophone"


async def test_a_listing_tells_links_and_does_not_go_through_them_e_06(workspace: Path) -> None:
    lines = text(await call(workspace, "list_files")).split("\n")
    assert lines == ["d -> ../out/new.txt", "f -> ../out/s.txt", "in -> sub", "l -> ../out", "sub/x"]


async def test_a_session_whose_folder_is_gone_is_told_so_b_05(tmp_path: Path) -> None:
    for name, arguments in (
        ("read_file", {"path": "a"}),
        ("list_files", {}),
        ("search_text", {"pattern": "x"}),
    ):
        answer = await call(tmp_path / "gone", name, **arguments)
        assert code(answer) == "TOOL_FAILED"
        assert "not there any more" in text(answer), json.dumps(arguments)
