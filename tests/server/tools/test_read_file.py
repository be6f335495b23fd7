"""The tool `read_file`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.tools import read_file
from refold_server.tools.session_tools import built_in_tools
from refold_server.tools.tool_runner import execute
from tests.support.tool_calls import call, code, context, fill, text


async def _read(root: Path, content: str | bytes, **arguments: Any) -> str:
    answer = await call(fill(root, {"a.txt": content}), "read_file", path="a.txt", **arguments)
    assert code(answer) is None
    return text(answer)


async def _refusal(root: Path, content: str | bytes, **arguments: Any) -> str:
    answer = await call(fill(root, {"a.txt": content}), "read_file", path="a.txt", **arguments)
    assert code(answer) == "INVALID_ARGUMENTS"
    return text(answer)


@pytest.mark.anyio
async def test_lines_are_numbered_from_one(tmp_path: Path) -> None:
    assert await _read(tmp_path, "one\n\n  three\n") == "1\tone\n2\t\n3\t  three"
    assert await _read(tmp_path, "no break at the end") == "1\tno break at the end"
    assert await _read(tmp_path, "\n") == "1\t"


@pytest.mark.anyio
async def test_a_range_has_both_its_ends(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 10))
    assert await _read(tmp_path, lines, startLine=3, endLine=4) == "3\tline 3\n4\tline 4"
    assert await _read(tmp_path, lines, startLine=9) == "9\tline 9"
    assert await _read(tmp_path, lines, endLine=1) == "1\tline 1"
    assert await _read(tmp_path, lines, startLine=8, endLine=10**12) == "8\tline 8\n9\tline 9"


@pytest.mark.anyio
async def test_a_wrong_range_says_what_is_right(tmp_path: Path) -> None:
    assert await _refusal(tmp_path, "a\nb\n", startLine=3) == "a.txt has 2 lines; startLine 3 is past its end"
    assert await _refusal(tmp_path, "", startLine=2) == "a.txt is empty; startLine 2 is past its end"
    assert await _refusal(tmp_path, "a\n", startLine=5, endLine=4) == "endLine 4 comes before startLine 5"
    assert "`int` >= 1 - at `$.startLine`" in await _refusal(tmp_path, "a\n", startLine=0)
    assert "`int` >= 1 - at `$.endLine`" in await _refusal(tmp_path, "a\n", endLine=-1)


@pytest.mark.anyio
async def test_crlf_ends_lines_as_lf_does_and_a_lone_cr_does_not(tmp_path: Path) -> None:
    assert await _read(tmp_path, "one\r\ntwo\r\n\r\nx\ry\r") == "1\tone\n2\ttwo\n3\t\n4\tx\ry\r"


@pytest.mark.anyio
async def test_unicode_line_separators_end_no_line(tmp_path: Path) -> None:
    assert await _read(tmp_path, "a\u2028b\u0085c\x0bd\n") == "1\ta\u2028b\u0085c\x0bd"


@pytest.mark.anyio
async def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert await _read(tmp_path, b"\xef\xbb\xbfone\n") == "1\tone"
    assert await _read(tmp_path, b"\xef\xbb\xbf") == "[a.txt is empty]"


@pytest.mark.anyio
async def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    assert await _read(tmp_path, "") == "[a.txt is empty]"


@pytest.mark.anyio
async def test_a_binary_file_is_named_and_not_shown_e_03(tmp_path: Path) -> None:
    assert await _read(tmp_path, b"a\0b") == "[a.txt is a binary file of 3 bytes; its content is not shown]"


@pytest.mark.anyio
async def test_bad_bytes_become_marks_e_03(tmp_path: Path) -> None:
    assert await _read(tmp_path, b"a\360\050\377b\nc\xe9\nd\n") == "1\ta\ufffd(\ufffdb\n2\tc\ufffd\n3\td"


@pytest.mark.anyio
@pytest.mark.parametrize("unit", ["y", "🙂", "汉字 and more\n"])
async def test_ten_megabytes_keep_head_and_tail_e_03(tmp_path: Path, unit: str) -> None:
    content = "HEAD" + unit * ((10 << 20) // len(unit.encode())) + "TAIL"
    shown = await _read(tmp_path, content)
    assert 49_000 < len(shown) <= 50_000
    assert shown.startswith("1\tHEAD")
    assert "characters left out here" in shown
    lines = content.count("\n") + 1
    body, note = shown.rsplit("\n", 1)
    assert body.endswith("TAIL")
    assert note == f"[lines 1 to {lines}: too long to show whole; ask for a part with startLine and endLine]"
    assert "\ufffd" not in shown


@pytest.mark.anyio
async def test_a_long_line_in_a_range_is_cut_within_itself(tmp_path: Path) -> None:
    shown = await _read(tmp_path, "first\n" + "y" * 200_000 + "END\nlast\n", startLine=2, endLine=2)
    assert shown.startswith("2\tyyy")
    assert re.search(r"yEND\n\[lines 2 to 2: too long", shown)


@pytest.mark.anyio
async def test_reading_stops_in_a_very_long_file_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_file, "MAX_BYTES", 1 << 20)
    content = "x\n" * (1 << 20)
    shown = await _read(tmp_path, content)
    found = re.search(r"\[lines 1 to (\d+): reading stopped after 1 MiB", shown)
    assert found is not None
    assert int(found[1]) <= (1 << 19) + read_file.PIECE
    assert await _read(tmp_path, content, startLine=1_000_000, endLine=1_000_000) == "1000000\tx", "what precedes is free"


@pytest.mark.anyio
async def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path, said in (("folder", "is a folder"), ("pipe", "a pipe"), ("none", "does not exist")):
        answer = await call(tmp_path, "read_file", path=path)
        assert code(answer) == "TOOL_FAILED"
        assert said in text(answer)


@pytest.mark.anyio
async def test_a_small_limit_holds_too(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "y" * 10_000})
    answer = await execute(built_in_tools(), "read_file", '{"path":"a.txt"}', context(tmp_path, output_limit=1_000))
    assert len(text(answer)) <= 1_000
    assert "left out here" in text(answer)


_CONTENT = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", "é".encode(), "🙂".encode(), b"\xff", b"\xe2\x82"]))


@given(content=_CONTENT.map(b"".join), piece=st.integers(1, 7), first=st.integers(1, 6), length=st.integers(0, 6))
def test_a_file_in_pieces_reads_like_a_whole_one(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, piece: int, first: int, length: int
) -> None:
    """A-01's rule for files: no border between two reads shows in the text."""
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    wanted = lines[first - 1 : first + length]
    texts = [line.removesuffix(b"\r") if content.endswith(b"\n") or n < len(lines) else line for n, line in enumerate(lines, 1)]
    expected = "\n".join(
        f"{number}\t{line.decode('utf-8', 'replace')}" for number, line in list(enumerate(texts, 1))[first - 1 : first + length]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_file, "PIECE", piece)
        root = fill(tmp_path_factory.getbasetemp() / "pieces", {"a.txt": content})
        answer = anyio.run(
            execute,
            built_in_tools(),
            "read_file",
            f'{{"path":"a.txt","startLine":{first},"endLine":{first + length}}}',
            context(root),
        )
    if wanted:
        assert text(answer) == expected
    else:
        assert answer.is_error == (first > 1)
