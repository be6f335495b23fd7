"""A script makes the rehearsal provider say exactly what a test needs, and no more than it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import FinishChunk, TextDelta, ToolCallBlock
from refold_server.providers.offline_provider import OfflineProvider
from tests.support.asking import ask, error_of
from tests.support.chat_stream import chunk, reasoning_in, reply, text, text_in
from tests.support.offline_asking import body_of
from tests.support.requests import user

pytestmark = pytest.mark.anyio


class Scripted:
    """A provider and bodies that name its script."""

    def __init__(self, folder: Path, *replies: dict[str, Any] | str) -> None:
        path = folder / "script.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in replies) + "\n")
        self.provider = OfflineProvider()
        self.body = body_of(user("hi"), script=str(path))


async def test_replies_come_one_a_request_in_order(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, {"text": "one"}, "", {"text": "two", "reasoning": "hm"})
    first, second = [(await ask(scripted.provider, scripted.body)).chunks for _ in range(2)]
    assert (text_in(first), text_in(second), reasoning_in(second)) == ("one", "two", "hm")
    assert second[-1] == FinishChunk("stop")


async def test_running_out_is_an_error_that_counts(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, {"text": "one"})
    await ask(scripted.provider, scripted.body)
    error = await error_of(scripted.provider, scripted.body)
    assert error.error_kind == "provider.rejected"
    assert "has 1 replies, and this is request 2" in error.message


async def test_calls_take_objects_texts_and_ids(tmp_path: Path) -> None:
    calls = [{"name": "a"}, {"name": "b", "arguments": {"x": 1}, "id": "c9"}, {"name": "c", "arguments": '{"half'}]
    scripted = Scripted(tmp_path, {"calls": calls})
    reply = assemble((await ask(scripted.provider, scripted.body)).chunks)
    found = [block for block in reply.content if isinstance(block, ToolCallBlock)]
    assert [(block.name, block.arguments) for block in found] == [("a", "{}"), ("b", '{"x":1}'), ("c", '{"half')]
    assert found[1].id == "c9"
    assert reply.finish == "tool-calls"


async def test_pieces_have_the_size_that_is_asked_for(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, {"text": "abcdef", "chunk": 4, "delayMs": 1, "finish": "length"})
    chunks = (await ask(scripted.provider, scripted.body)).chunks
    assert [part.text for part in chunks if isinstance(part, TextDelta)] == ["abcd", "ef"]
    assert chunks[-1] == FinishChunk("length")


@pytest.mark.parametrize(("cut", "said"), [(0, ""), (1, "abcd"), (2, "abcdef")])
async def test_a_cut_breaks_the_stream_after_so_many_events(tmp_path: Path, cut: int, said: str) -> None:
    scripted = Scripted(tmp_path, {"text": "abcdef", "chunk": 4, "cut": cut})
    asked = await ask(scripted.provider, scripted.body)
    assert text_in(asked.chunks) == said
    assert asked.error is not None
    assert asked.error.error_kind == "provider.badStream"


async def test_a_status_is_an_answer_that_is_no_stream(tmp_path: Path) -> None:
    body = '{"error":{"message":"too fast","code":"rate_limit_exceeded"}}'
    scripted = Scripted(tmp_path, {"status": 429, "raw": body}, {"status": 500, "text": "on fire"})
    errors = [await error_of(scripted.provider, scripted.body) for _ in range(2)]
    assert [(error.error_kind, error.status) for error in errors] == [
        ("provider.rateLimited", 429),
        ("provider.overloaded", 500),
    ]
    assert "on fire" in errors[1].message


async def test_raw_text_is_the_stream(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, {"raw": reply("那").decode()}, {"raw": "data: rubbish\n\n"})
    assert text_in((await ask(scripted.provider, scripted.body)).chunks) == "那"
    assert "rubbish" in (await error_of(scripted.provider, scripted.body)).message


async def test_a_cut_in_the_middle_of_a_line_takes_that_line_away(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, {"raw": (text("ok") + chunk({}, "stop")).decode() + "data: {", "cut": 1})
    asked = await ask(scripted.provider, scripted.body)
    assert (asked.error, asked.chunks[-1]) == (None, FinishChunk("stop"))


@pytest.mark.parametrize(
    ("line", "words"),
    [("{", "line 1"), ('{"texts":"x"}', "texts"), ('{"chunk":0}', "chunk"), ('{"calls":[{}]}', "name")],
)
async def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: str, words: str) -> None:
    scripted = Scripted(tmp_path, line)
    error = await error_of(scripted.provider, scripted.body)
    assert words in error.message
    assert "script.jsonl" in error.message


async def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    error = await error_of(OfflineProvider(), body_of(user("x"), script=str(tmp_path / "none")))
    assert "none cannot be read" in error.message
