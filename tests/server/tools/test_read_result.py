"""`read_result`: the whole of a result that was cut, in pieces where it is long."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from refold_server.tools.read_result import ReadResult, ReadResultParams
from refold_server.tools.tool import ToolContext
from refold_server.tools.tool_failure import ToolFailure
from tests.support.tool_calls import PlayedResults, context

pytestmark = pytest.mark.anyio


def around(root: Path, most: int | None = None, **results: str) -> ToolContext:
    """A call in a session with these results; at most 1,000 characters are given at a time, and `most` by the window."""
    played = PlayedResults({int(seq[1:]): text for seq, text in results.items()}, most)
    return replace(context(root), results=played, output_limit=1_000)


async def read(place: ToolContext, seq: int, offset: int = 0) -> str:
    (block,) = (await ReadResult().run(place, ReadResultParams(seq, offset))).content
    return getattr(block, "text", "")


async def test_a_result_is_given_as_it_is(tmp_path: Path) -> None:
    assert await read(around(tmp_path, s7="汉字\n", s8="other"), 7) == "汉字\n"


@pytest.mark.parametrize("most", [None, 500, 1], ids=["as many as a result holds", "what the window holds", "hardly any"])
async def test_a_long_result_is_given_in_pieces_that_make_up_the_whole(tmp_path: Path, most: int | None) -> None:
    text = "".join(f"{number:05} " for number in range(500 if most != 1 else 20))
    place, offset, found = around(tmp_path, most, s7=text), 0, ""
    for _ in range(len(text)):
        piece = await read(place, 7, offset)
        assert len(piece.partition("\n[characters ")[0]) <= min(1_000, most or 1_000)
        body, mark, note = piece.partition("\n[characters ")
        found += body
        if not mark:
            break
        offset = int(note.rstrip("]").rpartition(" ")[2])
    assert found == text


async def test_a_seq_without_a_result_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match="no tool result with seq 9"):
        await read(around(tmp_path, s7="x"), 9)
    with pytest.raises(ToolFailure, match="no tool result with seq 9"):
        await read(context(tmp_path), 9)


async def test_an_offset_behind_the_end_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match="has 1 characters"):
        await read(around(tmp_path, s7="x"), 7, 1)
