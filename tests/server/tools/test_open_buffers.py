"""What a person typed and did not save is what file tools see, and they say so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from refold_server.tools.open_buffers import NO_BUFFERS, OpenBuffer, is_same_text
from refold_server.tools.session_tools import built_in_tools
from refold_server.tools.tool_runner import ToolAnswer, execute
from tests.support.tool_calls import code, context, fill, text

pytestmark = pytest.mark.anyio

READ_NOTE = "[this is the unsaved text of the editor in which the file is open; the disk has another]"


class Buffers:
    """An editor that has open what a test says."""

    def __init__(self, root: Path, **texts: str) -> None:
        self.open = tuple(OpenBuffer(str(root / name.replace("__", ".")), text, 3) for name, text in texts.items())

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        return self.open


async def ask(root: Path, buffers: Any, tool: str, **arguments: Any) -> ToolAnswer:
    return await execute(built_in_tools(), tool, json.dumps(arguments), context(root, buffers=buffers))


async def read(root: Path, buffers: Any, path: str, **arguments: Any) -> str:
    answer = await ask(root, buffers, "read_file", path=path, **arguments)
    assert code(answer) is None, text(answer)
    return text(answer)


async def test_unsaved_text_is_read_before_the_disk_and_the_answer_says_so(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "on disk\n"})
    assert await read(tmp_path, Buffers(tmp_path, a__txt="typed\nmore\n"), "a.txt") == f"1\ttyped\n2\tmore\n{READ_NOTE}"
    assert await read(tmp_path, NO_BUFFERS, "a.txt") == "1\ton disk"


async def test_a_range_of_unsaved_text_is_read_and_checked_like_one_on_disk(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "on disk\n"})
    buffers = Buffers(tmp_path, a__txt="one\r\ntwo\r\n")
    assert await read(tmp_path, buffers, "a.txt", startLine=2) == f"2\ttwo\n{READ_NOTE}"
    assert text(await ask(tmp_path, buffers, "read_file", path="a.txt", startLine=3)).startswith("a.txt has 2 lines")


@pytest.mark.parametrize("disk", ["same\n", "\ufeffsame\n", "same"])
async def test_an_open_file_without_changes_is_not_called_unsaved(tmp_path: Path, disk: str) -> None:
    fill(tmp_path, {"a.txt": disk})
    assert await read(tmp_path, Buffers(tmp_path, a__txt="same\n"), "a.txt") == "1\tsame"


@pytest.mark.parametrize(("text", "disk"), [("a\n", "a"), ("a\r\n", "a"), ("a", "\ufeffa"), ("a\nb\n", "a\r\nb\r\n"), ("", "")])
def test_what_editors_add_and_leave_out_is_no_change(text: str, disk: str) -> None:
    assert is_same_text(text.encode(), disk.encode())


@pytest.mark.parametrize(("text", "disk"), [("\n", ""), ("a", "a\n"), ("a\n\n", "a"), ("a\r", "a\r\n"), ("b", "a")])
def test_any_other_difference_is_a_change(text: str, disk: str) -> None:
    assert not is_same_text(text.encode(), disk.encode())


async def test_text_that_is_known_to_be_saved_is_read_from_the_disk_which_may_be_newer(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "newer\n"})
    buffers = Buffers(tmp_path)
    buffers.open = (OpenBuffer(str(tmp_path / "a.txt"), "older\n", 3, saved=True),)
    assert await read(tmp_path, buffers, "a.txt") == "1\tnewer"


async def test_a_file_that_was_never_saved_can_be_read(tmp_path: Path) -> None:
    buffers = Buffers(tmp_path, new__txt="first words\n")
    assert await read(tmp_path, buffers, "new.txt") == f"1\tfirst words\n{READ_NOTE}"
    assert await read(tmp_path, Buffers(tmp_path, new__txt=""), "new.txt") == f"[new.txt is empty]\n{READ_NOTE}"


async def test_an_open_file_is_known_by_every_path_that_leads_to_it(tmp_path: Path) -> None:
    fill(tmp_path, {"ws/real/a.txt": "on disk\n"})
    (tmp_path / "ws/link").symlink_to("real")
    (tmp_path / "door").symlink_to("ws")
    for opened, asked in (
        ("ws/link/a.txt", "real/a.txt"),
        ("door/real/a.txt", "link/a.txt"),
        ("ws/real/../link/a.txt", "real/a.txt"),
    ):
        buffers = Buffers(tmp_path)
        buffers.open = (OpenBuffer(str(tmp_path / opened), "typed\n", 1),)
        assert await read(tmp_path / "ws", buffers, asked) == f"1\ttyped\n{READ_NOTE}"


async def test_an_open_file_outside_of_the_workspace_stays_outside(tmp_path: Path) -> None:
    fill(tmp_path, {"ws/a.txt": "x\n", "secret.txt": "on disk\n"})
    buffers = Buffers(tmp_path, secret__txt="typed secret\n")
    assert code(await ask(tmp_path / "ws", buffers, "read_file", path="../secret.txt")) == "DENIED"
    assert "secret" not in text(await ask(tmp_path / "ws", buffers, "search_text", pattern="typed")).replace("'typed'", "")


async def test_unsaved_text_without_valid_unicode_is_read_all_the_same(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "x"})
    assert await read(tmp_path, Buffers(tmp_path, a__txt="half \ud83d"), "a.txt") == f"1\thalf \ufffd\n{READ_NOTE}"


async def test_unsaved_text_is_read_where_the_disk_refuses(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "x"})
    (tmp_path / "a.txt").unlink()
    os.mkfifo(tmp_path / "a.txt")
    assert await read(tmp_path, Buffers(tmp_path, a__txt="typed"), "a.txt") == f"1\ttyped\n{READ_NOTE}"


async def test_a_search_looks_into_unsaved_text_and_says_whose_it_is(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "needle on disk\n", "b.txt": "no\n", "c.txt": "needle\n"})
    buffers = Buffers(tmp_path, a__txt="gone\n", b__txt="no\nneedle typed\n", c__txt="needle\n")
    assert text(await ask(tmp_path, buffers, "search_text", pattern="needle")).split("\n") == [
        "b.txt:2: needle typed",
        "c.txt:1: needle",
        "[unsaved text of an editor, the disk has another: b.txt]",
    ]


@pytest.mark.parametrize("regex", [False, True])
async def test_a_search_finds_files_that_were_never_saved_last(tmp_path: Path, regex: bool) -> None:
    fill(tmp_path, {"z.txt": "needle\n", "sub/x": ""})
    buffers = Buffers(tmp_path, b__txt="needle b", a__txt="needle a\n")
    lines = ["z.txt:1: needle", "a.txt:1: needle a", "b.txt:1: needle b"]
    buffers.open = (*buffers.open, OpenBuffer(str(tmp_path / ".git/NEW"), "needle", 1))
    note = "[unsaved text of an editor, the disk has another: a.txt, b.txt]"
    assert text(await ask(tmp_path, buffers, "search_text", pattern="needle", regex=regex)).split("\n") == [*lines, note]
    assert text(await ask(tmp_path, buffers, "search_text", pattern="needle", path="b.txt", regex=regex)).startswith(lines[2])
    assert "no line of 0 files" in text(await ask(tmp_path, buffers, "search_text", pattern="needle", path="sub", regex=regex))


async def test_an_emptied_file_has_no_lines_to_find(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "needle\n"})
    assert "no line of 0 files" in text(
        await ask(tmp_path, Buffers(tmp_path, a__txt=""), "search_text", pattern="^", regex=True)
    )


async def test_only_the_first_names_of_many_unsaved_files_are_told(tmp_path: Path) -> None:
    buffers = Buffers(tmp_path, **{f"f{number}": "needle" for number in range(8)})
    last = text(await ask(tmp_path, buffers, "search_text", pattern="needle")).split("\n")[-1]
    assert last == "[unsaved text of an editor, the disk has another: f0, f1, f2, f3, f4 and 3 more]"
