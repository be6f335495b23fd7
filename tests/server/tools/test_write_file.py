"""`write_file`: a whole file, never over a text that the model did not see."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from refold_server.tools.session_tools import built_in_tools
from refold_server.tools.tool_runner import execute
from tests.support.changes import Changing
from tests.support.patching import patched
from tests.support.tool_calls import code, fill, text

pytestmark = pytest.mark.anyio


def tree(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


async def test_a_new_file_is_made_with_its_folders(tmp_path: Path) -> None:
    session = Changing(tmp_path)
    proposed = await session.proposed("write_file", path="x/y/a.txt", content="one\ntwo")
    assert (
        proposed.subject.text == "--- /dev/null\n+++ b/x/y/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"
    )
    assert tree(tmp_path) == []
    answer = await proposed.run()
    assert text(answer) == "made x/y/a.txt, 2 lines"
    assert (tmp_path / "x/y/a.txt").read_text() == "one\ntwo"
    assert json.loads(answer.meta or "")["before"] is None


async def test_an_empty_file_can_be_made_and_is_shown(tmp_path: Path) -> None:
    proposed = await Changing(tmp_path).proposed("write_file", path="a", content="")
    assert proposed.subject.text == "--- /dev/null\n+++ b/a\n"
    assert text(await proposed.run()) == "made a, 0 lines"
    assert (tmp_path / "a").read_bytes() == b""


async def test_a_file_that_was_read_is_written_over_and_may_be_again(tmp_path: Path) -> None:
    session = Changing(fill(tmp_path, {"a.txt": "1\n2\n3\n"}))
    await session.read()
    proposed = await session.proposed("write_file", path="a.txt", content="1\n4\n3\n")
    assert patched("1\n2\n3\n", proposed.subject.text) == "1\n4\n3\n"
    assert text(await proposed.run()) == "wrote a.txt: line 2"
    assert text(await session.write("all new\n")) == "wrote a.txt: line 1"
    assert text(await session.edit("new", "old")) == "edited a.txt: line 1"
    assert text(await session.write("x\n")) == "wrote a.txt: line 1"
    assert (tmp_path / "a.txt").read_text() == "x\n"


async def test_a_file_that_was_never_read_is_not_written_over(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "theirs\n", "empty": ""})
    session = Changing(tmp_path)
    answer = await session.refused("write_file", path="a.txt", content="mine\n")
    assert code(answer) == "STALE"
    assert text(answer) == "a.txt is there already; read it with read_file before you write over it"
    assert text(await session.write("x", "empty")) == "wrote empty: line 1"
    await Changing(tmp_path).read()
    assert code(await session.write("mine\n")) == "STALE", "another session's reading does not count"
    assert (tmp_path / "a.txt").read_text() == "theirs\n"


async def test_a_file_of_which_a_passage_was_edited_and_nothing_read_is_not_written_over(tmp_path: Path) -> None:
    session = Changing(fill(tmp_path, {"a.txt": "1\n2\n"}))
    assert text(await session.edit("1", "one")) == "edited a.txt: line 1"
    assert code(await session.write("all\n")) == "STALE"
    await session.read()
    await session.edit("2", "two")
    assert text(await session.write("all\n")) == "wrote a.txt: line 1", "what was read is known, and what it became"


async def test_e_05_a_whole_file_write_after_a_change_of_somebody_else_is_refused_until_it_was_read_again(
    tmp_path: Path,
) -> None:
    """(a): with the modification time put back."""
    file = fill(tmp_path, {"a.txt": "1\n2\n3\n"}) / "a.txt"
    session = Changing(tmp_path)
    await session.read()
    times = file.stat()
    file.write_text("1\nU\n3\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    answer = await session.refused("write_file", path="a.txt", content="1\n4\n3\n")
    assert code(answer) == "STALE"
    assert text(answer) == "a.txt was changed by somebody since you read it; read it again and keep what they changed"
    assert text(await session.read()) == "1\t1\n2\tU\n3\t3"
    assert text(await session.write("1\n4\n3\nU\n")) == "wrote a.txt: lines 2-3, 1 line removed behind line 4"
    assert file.read_text() == "1\n4\n3\nU\n"


async def test_a_file_that_is_made_by_somebody_between_the_question_and_the_answer_stays(tmp_path: Path) -> None:
    session = Changing(tmp_path)
    proposed = await session.proposed("write_file", path="x/a.txt", content="mine\n")
    fill(tmp_path, {"x/a.txt": "theirs\n"})
    assert code(await proposed.run()) == "STALE"
    assert (tmp_path / "x/a.txt").read_text() == "theirs\n"


async def test_what_is_there_already_needs_no_question(tmp_path: Path) -> None:
    session = Changing(fill(tmp_path, {"a.txt": "1\r\n2\r\n"}))
    await session.read()
    answer = await session.refused("write_file", path="a.txt", content="1\n2\n")
    assert text(answer) == "a.txt has exactly that text already; nothing was changed"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "x\ny", b"x\r\ny"),
        (b"a\r\nb\n", "x\ny\n", b"x\ny\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\n"),
        (b"a", "x\r\n", b"x\r\n"),
        (b"\xef\xbb\xbfa\r\n", "x\ny\n", b"\xef\xbb\xbfx\r\ny\r\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\n", "", b"\xef\xbb\xbf"),
    ],
)
async def test_line_ends_and_byte_order_mark_of_the_file_stay(
    tmp_path: Path, before: bytes, content: str, after: bytes
) -> None:
    session = Changing(fill(tmp_path, {"a.txt": before}))
    await session.read()
    assert code(await session.write(content)) is None
    assert (tmp_path / "a.txt").read_bytes() == after


@pytest.mark.parametrize("path", ["../ws-evil/n.txt", "l/n.txt", "d", "sub/../../out/n.txt", ".git/hooks/x", "sub/.git"])
async def test_e_06_nothing_is_made_outside_or_inside_of_git(tmp_path: Path, path: str) -> None:
    fill(tmp_path, {"ws/sub/x": "", "ws-evil/s.txt": "", "out/s.txt": "", "ws/.git/config": ""})
    (tmp_path / "ws/l").symlink_to("../out")
    (tmp_path / "ws/d").symlink_to("../out/new.txt")
    before = tree(tmp_path)
    assert code(await Changing(tmp_path / "ws").refused("write_file", path=path, content="x")) == "DENIED"
    assert tree(tmp_path) == before


async def test_e_06_links_that_stay_inside_are_written_through(tmp_path: Path) -> None:
    fill(tmp_path, {"ws/sub/x": ""})
    (tmp_path / "ws/in").symlink_to("sub")
    (tmp_path / "door").symlink_to("ws")
    session = Changing(tmp_path / "door")
    assert text(await session.write("new\n", "in/n.txt")) == "made sub/n.txt, 1 line"
    assert (tmp_path / "ws/sub/n.txt").read_text() == "new\n"
    assert (tmp_path / "ws/in").is_symlink()


async def test_a_large_file_is_read_whole_but_cannot_be_written_over(tmp_path: Path) -> None:
    session = Changing(fill(tmp_path, {"a.txt": ("line" * 1_000 + "\n") * 5_000}))
    assert text(await session.read()).startswith("1\tline")
    last = await execute(built_in_tools(), "read_file", '{"path":"a.txt","startLine":5000}', session.context)
    assert text(last) == "5000\t" + "line" * 1_000
    assert text(await session.write("x")) == "a.txt is longer than 16 MiB; it is not changed"
