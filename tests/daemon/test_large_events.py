"""Events of 64 MiB. A prompt is bounded by the largest message that the daemon takes, and refused above it with the bound;
what a tool gives is recorded as the model sees it, which is bounded too. What is in the log can be told, read, exported,
verified and sent.

Invariant: An event of 64 MiB is kept, told, read, exported, proven and sent, or refused with the bound.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import call, calls, chunk, reply
from tests.support.daemons import Json, Place, new_session, until
from tests.support.fake_provider import FakeProvider, answer
from tests.support.plugin_files import named, write_plugin

pytestmark = pytest.mark.anyio

LARGEST = 64 << 20
"""The largest message that a client may send, as `initialize` says."""

PLUGIN = """
from msgspec import Struct
from refold_server.plugins import tool

class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    pass

async def run(context, params):
    return "x" * (64 << 20)

def register(registry):
    registry.tool(tool("much", "Gives 64 MiB.", Nothing, run, read_only=True))
"""


async def check_readable(place: Place, client: Client, session: str, large: Json) -> None:
    """Check that the event can be read, exported and proven, beside its writer."""
    page = {"after": large["seq"] - 1, "limit": 1}
    read = await client.request("session/read", {"session": session, "view": "events", "page": page})
    told = read["events"] == [large]  # compared apart: no difference of this size is to be printed
    assert told
    entries = (await client.read(session, "transcript"))["entries"]
    assert [entry["seq"] for entry in entries if len(str(entry["content"])) > LARGEST // 2] == [large["seq"]]
    assert (await place.verify(session))["events"] > large["seq"]
    done = await asyncio.to_thread(place.refold, "export", session)
    assert (done.returncode, done.stderr) == (0, "")
    seq: int = large["seq"]
    exported = json.loads(done.stdout.split("\n")[seq + 1]) == large
    assert exported


async def test_c_08_a_prompt_of_nearly_64_mib_is_kept_told_read_sent_and_proven(place: Place) -> None:
    text = "x" * (LARGEST - 1_000)
    async with FakeProvider(answer(reply("Long."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, text)
            told = await until(events, "turn/end")
            assert told[-1]["data"]["reason"] == {"kind": "completed"}
            (message,) = [event for event in told if event["type"] == "user/message"]
            same = message["data"]["content"] == [{"type": "text", "text": text}]  # no difference of this size is printed
            assert same
            await check_readable(place, client, session, message)
        assert provider.requests[0].body.count(b"x") >= len(text)


async def test_a_prompt_above_the_stated_limit_is_refused_with_it_and_the_connection_goes_on(place: Place) -> None:
    async with FakeProvider(answer(reply("Short."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            with pytest.raises(RpcError, match=f"above the limit of {LARGEST}"):
                await client.start_turn(session, "x" * LARGEST)
            await client.prompt(session, "go")
    assert len([event for event in await place.recorded(session) if event["type"] == "input/accepted"]) == 1


async def test_c_08_a_tool_result_of_64_mib_is_recorded_as_the_head_and_tail_that_the_model_sees(place: Place) -> None:
    listing = calls(call(0, "c1", "much", "{}")) + chunk({}, "tool_calls")
    async with FakeProvider(answer(listing), answer(reply("Much."))) as provider:
        place.provider(provider.base_url, named(write_plugin(place, "much", PLUGIN)))
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "go")
        assert len(provider.requests[1].body) < LARGEST // 100
    events = await place.recorded(session)
    (result,) = [event for event in events if event["type"] == "tool/result"]
    text = result["data"]["content"][0]["text"]
    assert text.strip("x")
    assert len(text) < 100_000
    assert events[-1]["data"]["reason"] == {"kind": "completed"}
