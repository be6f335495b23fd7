"""A session lives through what happens to servers: nothing is doubled, all is told, and the log still proves each request."""

from __future__ import annotations

from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.support.chat_stream import DONE, call, calls, chunk, reply
from tests.support.daemons import Json, Place, kill, new_session, types, until
from tests.support.fake_provider import Answer, FakeProvider, answer

pytestmark = pytest.mark.anyio

JSON = (("content-type", "application/json"),)
LIMITED = Answer((b'{"error":{"message":"slow down"}}',), 429, (*JSON, ("retry-after", "0")))
PAGE = Answer((b"<html><title>Bad Gateway</title></html>",), 502, (("content-type", "text/html"), ("via", "1.1 proxy.corp")))
EXPIRED = Answer((b'{"error":{"message":"the key has expired"}}',), 401, JSON)
READ = answer(calls(call(0, "c0", "read_file", '{"path":"animals.txt"}')) + chunk({}, "tool_calls") + DONE)

SOON = "[retry]\nattempts = 10\nbase_ms = 20\ncap_ms = 100\n"
"""Retries that a test need not wait for."""


def retries(events: list[Json]) -> list[tuple[int, str]]:
    return [(event["data"]["attempt"], event["data"]["code"]) for event in events if event["type"] == "llm/retry"]


async def test_a_session_lives_through_a_bad_day(place: Place) -> None:
    """Through a proxy that fails; requests beyond a limit; a kept connection that died; a key that expires."""
    runs = place.root / "runs"
    key = f'key_command = ["sh", "-c", "echo x >> {runs}; echo sk-number-$(wc -l < {runs})"]\n'
    first = (LIMITED, READ, Answer(end="drop"), answer(reply("one")))
    played = (*first, PAGE, answer(reply("two")), EXPIRED, answer(reply("three")))
    with FakeProvider(*played) as proxy:
        place.provider("http://models.invalid/v1", f"{SOON}", retry="")
        place.config.write_text(place.config.read_text() + f'proxy = "{proxy.base_url.removesuffix("/v1")}"\n{key}')
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            told: list[Json] = []
            for prompt in ("first", "second", "third"):
                await client.start_turn(session, prompt)
                told += await until(events, "turn/end")
            verified = await client.verify(session)
    ends = [event["data"]["reason"]["kind"] for event in told if event["type"] == "turn/end"]
    assert ends == ["completed"] * 3
    assert retries(told) == [(1, "provider.rateLimited"), (1, "provider.overloaded"), (1, "provider.auth")]
    assert types(told).count("tool/result") == 1
    assert len([event for event in told if event["type"] == "request/sent"]) == 7
    assert len(proxy.requests) == 8  # the one on the dead connection went out once more, before anything came
    assert proxy.requests[2].body == proxy.requests[3].body
    assert [one.headers["authorization"] for one in proxy.requests[-2:]] == ["Bearer sk-number-1", "Bearer sk-number-2"]
    assert (verified["requests"], verified["equal"], "mismatch" in verified) == (7, 7, False)


async def test_a_server_that_restarts_is_waited_for(place: Place) -> None:
    with ExitStack() as life:
        server = life.enter_context(FakeProvider(answer(reply("before"))))
        port = urlsplit(server.base_url).port or 0
        place.provider(server.base_url, SOON, retry="")
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "first")
            told = await until(events, "turn/end")
            life.close()
            await client.start_turn(session, "second")
            told += await until(events, "llm/retry")
            with FakeProvider(answer(reply("after")), port=port) as again:
                told += await until(events, "turn/end")
                assert len(again.requests) == 1
            verified = await client.verify(session)
    assert [event["data"]["reason"]["kind"] for event in told if event["type"] == "turn/end"] == ["completed"] * 2
    assert {code for _, code in retries(told)} == {"provider.unreachable"}
    assert verified["requests"] == verified["equal"] == retries(told)[-1][0] + 2


async def test_a_retry_is_shown_as_progress(place: Place) -> None:
    with FakeProvider(LIMITED, answer(reply("fine"))) as server:
        place.provider(server.base_url, SOON, retry="")
        async with place.daemon() as client:
            session = await new_session(client, place)
            told = client.listen("$/progress")
            await client.start_turn(session, "go", token="t")
            shown: list[str] = []
            while not any("attempt 2 in" in one for one in shown):
                shown.append((await anext(told))["value"]["message"])
    assert shown[-1].startswith("step 1: provider.rateLimited; attempt 2 in 0.0 s")


async def test_a_daemon_that_dies_in_a_wait_leaves_a_turn_that_was_interrupted_and_a_session_that_goes_on(place: Place) -> None:
    later = Answer((b'{"error":{"message":"slow down"}}',), 429, (*JSON, ("retry-after", "60")))
    with FakeProvider(later, answer(reply("fine"))) as server:
        place.provider(server.base_url, SOON, retry="")
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "first")
            await until(events, "llm/retry")
            await kill(client)
        async with place.daemon() as client:
            await client.open_session(session)
            end = await client.prompt(session, "second")
            verified = await client.verify(session)
    kinds = [event["data"]["reason"]["kind"] for event in await place.recorded(session) if event["type"] == "turn/end"]
    assert kinds == ["interrupted", "completed"], end
    assert (verified["requests"], verified["equal"]) == (2, 2)
