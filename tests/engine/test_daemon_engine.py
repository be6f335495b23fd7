"""A whole daemon over stdio with a real inference engine behind it: real calls of real tools, and a prefix that holds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from refold_client import Client
from tests.support.daemons import Json, Place, kill, new_session, text_so_far, types, until
from tests.support.engine import chain_engine, random_engine
from tests.support.engine_models import SPOKEN

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SHORT = '[models."engine/small"]\nmax_output = 40\n'
"""A limit for models that never stop by themselves."""

BABBLE = '[models."engine/small"]\nmax_output = 40\n[tools]\nenabled = []\n'
"""For the random model: never offer it tools."""


def usages(events: list[Json]) -> list[Json]:
    """The token usage of each reply, in order."""
    return [event["data"]["usage"] for event in events if event["type"] == "assistant/message"]


def check_prefix(events: list[Json]) -> None:
    """Hold that each request after the first found the whole prompt of the one before in the engine's cache."""
    replies = usages(events)
    for before, after in pairwise(replies):
        prompt = before["inputTokens"] + before.get("cacheReadTokens", 0)
        assert after["cacheReadTokens"] >= prompt, (before, after)


async def prompts(client: Client, session: str, count: int) -> None:
    """Run that many prompts one after the other."""
    for number in range(count):
        end = await client.prompt(session, f"Tell me more about number {number}.")
        assert end["data"]["reason"]["kind"] in ("completed", "max-tokens")


async def test_a_prompt_makes_the_model_call_a_real_tool_and_reply(place: Place) -> None:
    with chain_engine(place.root, "read_file", {"path": "animals.txt"}) as base_url:
        place.provider(base_url, name="engine")
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            for turn in (1, 2):
                await client.start_turn(session, "Which animal sleeps?")
                told = await until(events, "turn/end")
                assert told[-1]["data"] == {"turn": turn, "reason": {"kind": "completed"}}
                (call,) = [event["data"] for event in told if event["type"] == "tool/call"]
                assert (call["name"], call["arguments"]) == ("read_file", '{"path": "animals.txt"}')
                (result,) = [event["data"] for event in told if event["type"] == "tool/result"]
                assert (result["callId"], result["isError"]) == (call["callId"], False)
                assert "the zebra sleeps" in result["content"][0]["text"]
                (reply,) = [event["data"] for event in told if event["type"] == "assistant/message"][1:]
                assert (reply["content"], reply["finish"]) == ([{"type": "text", "text": SPOKEN}], "stop")
                said = "".join(event["data"].get("chunk", {}).get("text", "") for event in told)
                assert said == SPOKEN
            here = await client.request("log/verify", {"session": session})
            assert (here["requests"], here["equal"]) == (4, 4)
            assert (await place.verify(session))["equal"] == 4
            recorded = await place.recorded(session)
    assert recorded[-1] == told[-1]
    check_prefix(recorded)
    assert (await place.verify(session))["equal"] == 4, "without an engine there is nothing that it could ask"


async def test_ten_prompts_each_read_the_whole_prompt_before_from_the_cache(place: Place) -> None:
    with random_engine(place.root) as base_url:
        place.provider(base_url, BABBLE, name="engine")
        async with place.daemon() as client:
            session = await new_session(client, place)
            await prompts(client, session, 10)
    recorded = await place.recorded(session)
    assert len(usages(recorded)) == 10
    assert all("tools" not in event["data"]["header"] for event in recorded if event["type"] == "request/header")
    check_prefix(recorded)
    report: Any = await place.verify(session)
    assert (report["requests"], report["equal"], report["differences"]) == (10, 10, [])


@pytest.mark.parametrize("by", ["close", "kill"])
async def test_a_session_that_goes_on_in_a_new_process_keeps_its_prefix(place: Place, by: str) -> None:
    with random_engine(place.root) as base_url:
        place.provider(base_url, BABBLE, name="engine")
        async with place.daemon() as client:
            session = await new_session(client, place)
            await prompts(client, session, 2)
            if by == "kill":
                await kill(client)
        async with place.daemon() as client:
            assert (await client.open_session(session))["instance"] == 2
            await prompts(client, session, 2)
    recorded = await place.recorded(session)
    assert [event["data"]["reason"] for event in recorded if event["type"] == "request/header"] == ["initial", "resume"]
    assert len(usages(recorded)) == 4
    check_prefix(recorded)
    assert (await place.verify(session))["equal"] == 4


async def test_an_interrupted_reply_of_the_engine_leaves_a_session_that_goes_on(place: Place) -> None:
    with chain_engine(place.root, endless=True) as base_url:
        place.provider(base_url, '[models."engine/small"]\nmax_output = 2000\n[tools]\nenabled = []\n', name="engine")
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            await text_so_far(events, SPOKEN)
            reason = await client.interrupt(session, 1)
            assert reason == {"kind": "aborted", "cause": {"kind": "user"}}
            told = await until(events, "turn/end")
            (reply,) = [event["data"] for event in told if event["type"] == "assistant/message"]
            assert reply["interrupted"]
            assert reply["content"][0]["text"].startswith(SPOKEN)
        place.provider(base_url, SHORT, name="engine")
        async with place.daemon() as client:
            await client.open_session(session)
            assert (await client.prompt(session, "again"))["data"]["reason"]["kind"] in ("completed", "max-tokens")
    assert types(await place.recorded(session)).count("turn/end") == 2
    await place.verify(session)
