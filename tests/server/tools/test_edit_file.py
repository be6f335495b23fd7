"""`edit_file`: one passage, found in the text as it is now, replaced there and nowhere else."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import tracemalloc
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.tools.text_file import BYTE_ORDER_MARK
from refold_server.tools.tool_runner import Proposed
from tests.support.changes import Changing
from tests.support.patching import patched
from tests.support.tool_calls import code, fill, text

pytestmark = pytest.mark.anyio

NUMBERS = "".join(f"{number}\n" for number in range(1, 10))


async def test_a_passage_is_replaced_and_the_lines_are_told(tmp_path: Path) -> None:
    session = Changing(fill(tmp_path, {"sub/a.txt": NUMBERS}))
    proposed = await session.proposed("edit_file", path="sub/a.txt", old="4\n5\n", new="four\nfive\nmore\n")
    assert proposed.subject.kind == "diff"
    assert proposed.subject.text.split("\n")[:3] == ["--- a/sub/a.txt", "+++ b/sub/a.txt", "@@ -1,8 +1,9 @@"]
    assert (tmp_path / "sub/a.txt").read_text() == NUMBERS
    answer = await proposed.run()
    after = NUMBERS.replace("4\n5\n", "four\nfive\nmore\n")
    assert text(answer) == "edited sub/a.txt: lines 4-6"
    assert (tmp_path / "sub/a.txt").read_text() == after == patched(NUMBERS, proposed.subject.text)
    assert json.loads(answer.meta or "") == {
        "path": "sub/a.txt",
        "before": hashlib.sha256(NUMBERS.encode()).hexdigest(),
        "after": hashlib.sha256(after.encode()).hexdigest(),
        "unsaved": False,
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("4", "four", "line 4"),
        ("4\n", "", "1 line removed behind line 3"),
        ("1\n2\n", "", "2 lines removed behind line 0"),
        ("9\n", "9", "line 9"),
        ("", "", None),
    ],
)
async def test_what_changed_is_told_by_lines(tmp_path: Path, old: str, new: str, said: str | None) -> None:
    session = Changing(fill(tmp_path, {"a.txt": NUMBERS}))
    answer = await session.edit(old, new)
    assert text(answer) == (
        f"edited a.txt: {said}" if said else "old is empty; to make a file or to write a whole one, use write_file"
    )


async def test_every_place_is_replaced_when_asked_and_the_first_ten_are_told(tmp_path: Path) -> None:
    session = Changing(fill(tmp_path, {"a.txt": "x\ny\n" * 12}))
    answer = await session.edit("x", "z", replaceAll=True)
    assert text(answer) == f"edited a.txt: {', '.join(f'line {number}' for number in range(1, 20, 2))} and 2 more places"
    assert (tmp_path / "a.txt").read_text() == "z\ny\n" * 12


async def test_e_05_d_a_passage_that_is_there_several_times_is_refused(tmp_path: Path) -> None:
    session = Changing(fill(tmp_path, {"a.txt": "2\n" * 12}))
    answer = await session.refused("edit_file", path="a.txt", old="2", new="4")
    assert text(answer) == (
        "a.txt holds that text more than once, beginning on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more; "
        "give more of what surrounds the one you mean, or set replaceAll to true"
    )
    assert (tmp_path / "a.txt").read_text() == "2\n" * 12
    assert "on lines 1, 1;" in text(await Changing(fill(tmp_path, {"b": "aaa"})).edit("aa", "b", "b")), "overlapping ones too"
    many = await Changing(fill(tmp_path, {"c": "a" * 100_000})).edit("a" * 1_000, "b", "c")
    assert "1, 1 and 90 more;" in text(many), "of the others one pass counts those that lie beside each other"


async def test_more_places_than_one_edit_may_change_are_refused(tmp_path: Path) -> None:
    answer = await Changing(fill(tmp_path, {"a.txt": "a" * 100_001})).refused(
        "edit_file", path="a.txt", old="a", new="b", replaceAll=True
    )
    assert text(answer) == "old stands at 100,001 places, more than the 100,000 that one edit may change"


@pytest.mark.parametrize(
    ("path", "old", "new", "kind", "said"),
    [
        ("a.txt", "same", "same", "INVALID_ARGUMENTS", "old and new are the same; nothing would change"),
        ("a.txt", "\t5\n", "x", "TOOL_FAILED", "a.txt does not hold that text. Its first line is like line 5; look at"),
        ("a.txt", "0", "x", "TOOL_FAILED", "a.txt does not hold that text."),
        ("a.txt", "1", "a\0b", "INVALID_ARGUMENTS", "a text file holds no NUL character"),
        ("b.txt", "1", "x", "TOOL_FAILED", "b.txt does not exist; write_file makes new files"),
        (".", "1", "x", "TOOL_FAILED", ". is a folder, not a file"),
        ("a.txt/", "1", "x", "INVALID_ARGUMENTS", "a.txt/ names a folder, not a file"),
        (".git/config", "a", "b", "DENIED", ".git/config belongs to git itself"),
        ("git/config", "a", "b", "DENIED", ".git/config belongs to git itself"),
        (".GIT/hooks/x", "a", "b", "DENIED", ".GIT/hooks/x belongs to git itself"),
        ("bin", "a", "b", "TOOL_FAILED", "bin is a binary file; it is not changed"),
        ("latin", "a", "b", "TOOL_FAILED", "latin is not UTF-8 text (see line 2); it is not changed"),
        ("long", "a", "b", "TOOL_FAILED", "long is longer than 16 MiB; it is not changed"),
    ],
)
async def test_a_call_that_cannot_be_done_is_refused_before_anybody_is_asked(
    tmp_path: Path, path: str, old: str, new: str, kind: str, said: str
) -> None:
    files = {
        "a.txt": NUMBERS,
        ".git/config": "a\n",
        "bin": b"x" * 9000 + b"\0a",
        "latin": b"a\n\xe9",
        "long": "a" * ((16 << 20) + 1),
    }
    fill(tmp_path, files)
    (tmp_path / "git").symlink_to(".git")
    answer = await Changing(tmp_path).refused("edit_file", path=path, old=old, new=new)
    assert code(answer) == kind
    assert text(answer).startswith(said)


@pytest.mark.parametrize("line_end", ["", "\r\n"])
async def test_a_text_that_would_be_too_long_is_refused_without_being_made(tmp_path: Path, line_end: str) -> None:
    """100 places times 1 MB here; a model can ask for more than any machine has."""
    session = Changing(fill(tmp_path, {"a.txt": f"a{line_end}".encode() * 100}))
    tracemalloc.start()
    try:
        answer = await session.refused("edit_file", path="a.txt", old="a", new="x\n" * 500_000, replaceAll=True)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (code(answer), text(answer)) == ("INVALID_ARGUMENTS", "the new text is longer than 16 MiB; nothing was changed")
    assert most < 20_000_000


PIECES = st.lists(st.sampled_from(["a", "b", "\n", "é", "😀", "\t", "\u2028"]), max_size=12).map("".join)


@given(PIECES, PIECES.filter(bool), PIECES, st.booleans(), st.booleans(), st.booleans())
async def test_what_is_written_is_what_str_replace_gives_and_what_was_shown(
    before: str, old: str, new: str, crlf: bool, marked: bool, every: bool
) -> None:
    """Invariant: A tool changes a file to what was shown, from the text that it was shown for, or not at all.

    Line ends, byte order mark and a last line without an end stay, whatever the edit is.
    """
    expected = before.replace(old, new)
    fits = before.find(old) >= 0 and old != new and (every or before.find(old, before.find(old) + 1) < 0)
    if crlf:
        before, expected = before.replace("\n", "\r\n"), expected.replace("\n", "\r\n") if "\n" in before else expected
    mark = BYTE_ORDER_MARK if marked else b""
    with tempfile.TemporaryDirectory() as folder:
        session = Changing(fill(Path(folder), {"a.txt": mark + before.encode()}))
        proposed = await session.ask("edit_file", path="a.txt", old=old, new=new, replaceAll=every)
        assert isinstance(proposed, Proposed) is fits
        if isinstance(proposed, Proposed):
            await proposed.run()
            assert patched(before, proposed.subject.text) == expected
        else:
            expected = before
        assert (Path(folder) / "a.txt").read_bytes() == mark + expected.encode()


async def test_e_05_an_edit_after_a_change_of_somebody_else_keeps_both(tmp_path: Path) -> None:
    """(a): with the modification time put back. An edit is worked out from the text as it is, never from what was read."""
    file = fill(tmp_path, {"a.txt": "1\n2\n3\n"}) / "a.txt"
    session = Changing(tmp_path)
    await session.read()
    times = file.stat()
    file.write_text("1\n2\n3\nU\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert text(await session.edit("2", "4")) == "edited a.txt: line 2"
    assert file.read_text() == "1\n4\n3\nU\n"


async def test_e_05_a_file_that_changes_between_the_question_and_the_answer_is_not_written(tmp_path: Path) -> None:
    file = fill(tmp_path, {"a.txt": "1\n2\n3\n"}) / "a.txt"
    session = Changing(tmp_path)
    proposed = await session.proposed("edit_file", path="a.txt", old="2", new="4")
    file.write_text("1\n2\n3\nU\n")
    answer = await proposed.run()
    assert code(answer) == "STALE"
    assert text(answer) == "a.txt was changed meanwhile; nothing was written; read it again"
    assert file.read_text() == "1\n2\n3\nU\n"
    assert text(await session.edit("2", "4")) == "edited a.txt: line 2"
    assert file.read_text() == "1\n4\n3\nU\n"


async def test_e_05_c_two_calls_on_one_file_each_see_what_the_other_did(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "1\n2\n3\n"})
    session = Changing(tmp_path)
    one = await session.proposed("edit_file", path="a.txt", old="1", new="one")
    other = await session.proposed("edit_file", path="a.txt", old="3", new="three")
    assert code(await one.run()) is None
    assert code(await other.run()) == "STALE"
    await session.edit("3", "three")
    assert (tmp_path / "a.txt").read_text() == "one\n2\nthree\n"


async def test_a_file_that_is_gone_or_became_a_link_by_then_is_not_written(tmp_path: Path) -> None:
    fill(tmp_path, {"ws/a.txt": "1\n", "out.txt": "1\n"})
    session = Changing(tmp_path / "ws")
    proposed = await session.proposed("edit_file", path="a.txt", old="1", new="2")
    (tmp_path / "ws/a.txt").unlink()
    assert code(await proposed.run()) == "STALE"
    (tmp_path / "ws/a.txt").symlink_to("../out.txt")
    assert code(await proposed.run()) == "TOOL_FAILED"
    assert (tmp_path / "out.txt").read_text() == "1\n"


async def test_a_cancelled_call_has_done_all_or_nothing(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "1\n"})
    proposed = await Changing(tmp_path).proposed("edit_file", path="a.txt", old="1", new="2")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await proposed.run()
    assert (tmp_path / "a.txt").read_text() == "1\n"
