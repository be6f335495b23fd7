"""What every provider promises, whoever it is: one suite over the real way and over the embedded one."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from refold_protocol.session.messages import BlockStart, FinishChunk
from refold_server.providers.offline_provider import OfflineProvider
from refold_server.providers.provider_registry import Provider
from tests.support.asking import ask, http_provider
from tests.support.chat_stream import DONE, chunk, event, text, text_in
from tests.support.fake_provider import EVENT_STREAM, Answer, FakeProvider
from tests.support.offline_asking import body_of
from tests.support.requests import request, user

pytestmark = pytest.mark.anyio

WHOLE = text("a") + text("b") + chunk({}, "stop") + DONE


class Opened(Struct, frozen=True):
    """A provider that will answer with what the test asked for, and a body for it."""

    provider: Provider
    body: bytes


Playing = Callable[[bytes, int], AbstractAsyncContextManager[Opened]]
"""Opens a provider that answers with this stream, or with this status and the stream as its body."""


@pytest.fixture(params=["http", "rehearsal"])
def playing(request: pytest.FixtureRequest, tmp_path: Path) -> Playing:
    @asynccontextmanager
    async def over_http(stream: bytes, status: int) -> AsyncGenerator[Opened, None]:
        headers = EVENT_STREAM if status == 200 else (("content-type", "application/json"),)
        played = Answer((stream,), status=status, headers=headers)
        with FakeProvider(played) as server:
            async with http_provider(server.base_url) as provider:
                yield Opened(provider, body_of(user("hi")))

    @asynccontextmanager
    async def rehearsed(stream: bytes, status: int) -> AsyncGenerator[Opened, None]:
        script = tmp_path / "script.jsonl"
        script.write_text(json.dumps({"raw": stream.decode(), "status": status}))
        yield Opened(OfflineProvider(), body_of(user("hi"), script=str(script)))

    return over_http if request.param == "http" else rehearsed


async def test_chunks_come_in_order_and_a_finish_is_the_last(playing: Playing) -> None:
    async with playing(WHOLE, 200) as opened:
        asked = await ask(opened.provider, opened.body)
    assert asked.error is None
    assert (asked.chunks[0], text_in(asked.chunks)) == (BlockStart(0, "text"), "ab")
    assert [isinstance(part, FinishChunk) for part in asked.chunks].index(True) == len(asked.chunks) - 1


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (text("a"), "provider.badStream"),
        (text("a").rstrip(), "provider.badStream"),
        (text("a") + b"data: rubbish\n\n", "provider.badStream"),
        (text("a") + event({"error": {"message": "busy", "type": "overloaded_error"}}), "provider.overloaded"),
    ],
    ids=["A-04b", "A-02h", "A-15b", "A-05c"],
)
async def test_chunks_before_a_failure_come_before_it(playing: Playing, stream: bytes, kind: str) -> None:
    async with playing(stream, 200) as opened:
        asked = await ask(opened.provider, opened.body)
    assert text_in(asked.chunks) == "a"
    assert asked.error is not None
    assert asked.error.error_kind == kind


async def test_a_status_that_is_no_success_is_an_error_with_it(playing: Playing) -> None:
    async with playing(b'{"error":{"message":"no"}}', 401) as opened:
        asked = await ask(opened.provider, opened.body)
    assert asked.error is not None
    assert (asked.chunks, asked.error.error_kind, asked.error.status) == ([], "provider.auth", 401)


async def test_a_stream_that_nobody_wants_any_more_can_be_closed(playing: Playing) -> None:
    async with playing(WHOLE, 200) as opened:
        stream = opened.provider.stream(request(user("hi")), opened.body)
        assert await anext(stream) == BlockStart(0, "text")
        await stream.aclose()
        assert [part async for part in stream] == []
