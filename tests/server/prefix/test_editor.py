"""The contributor `editor`: what the person has open, as far as it is of the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_server.config import PrefixConfig
from refold_server.tools.open_buffers import OpenBuffer
from tests.support.prefixes import composed
from tests.support.tool_calls import fill

pytestmark = pytest.mark.anyio

ONLY = PrefixConfig(instructions=False, skills=False, baseline=False)


class Opened:
    """An editor with these files open."""

    def __init__(self, *opened: OpenBuffer) -> None:
        self.opened = opened

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        return self.opened


def opened(path: Path, language: str = "", version: int = 1) -> OpenBuffer:
    return OpenBuffer(str(path), f"text {version}", version, language=language)


async def said(cwd: Path, *files: OpenBuffer) -> str | None:
    return (await composed(cwd, ONLY, buffers=Opened(*files))).get("editor")


async def test_open_files_are_named_by_their_path_in_the_workspace_and_their_language(tmp_path: Path) -> None:
    ws = fill(tmp_path / "ws", {"src/b.py": ""})
    given = (opened(ws / "src/b.py", "python"), opened(ws / "a.txt"), opened(tmp_path / "private.txt", "plaintext"))
    text = await said(ws, *given)
    assert text == "Open in the person's editor when this session was opened:\n- a.txt\n- src/b.py (python)"
    assert await said(ws, *reversed(given)) == text, "the order in which files were opened does not matter"


async def test_neither_text_nor_version_is_told(tmp_path: Path) -> None:
    assert await said(tmp_path, opened(tmp_path / "a", version=1)) == await said(tmp_path, opened(tmp_path / "a", version=9))


async def test_without_an_editor_or_with_nothing_of_the_workspace_open_there_is_no_message(tmp_path: Path) -> None:
    ws = fill(tmp_path / "ws", {"a": ""})
    assert await composed(ws, ONLY) == {}
    assert await said(ws) is None
    assert await said(ws, opened(tmp_path / "elsewhere"), opened(ws)) is None


async def test_many_files_are_counted_and_odd_names_break_no_line(tmp_path: Path) -> None:
    text = await said(
        tmp_path, *(opened(tmp_path / f"f{number:03}", "x\ny" if number == 0 else "z" * 99) for number in range(60))
    )
    assert text is not None
    told = text.split("\n")
    assert told[1:3] == ["- f000 (x\ufffdy)", "- f001"]
    assert told[-1] == "… and 10 more"
    assert len(told) == 52


async def test_files_are_sorted_by_where_they_are_by_whatever_links_the_editor_names_them(tmp_path: Path) -> None:
    ws = fill(tmp_path / "ws", {"b": "", "y": ""})
    (tmp_path / "a link").symlink_to(ws)
    text = await said(ws, opened(tmp_path / "a link/y"), opened(ws / "b"))
    assert text is not None
    assert text.split("\n")[1:] == ["- b", "- y"]
