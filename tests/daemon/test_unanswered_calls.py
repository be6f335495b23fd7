"""B-01: however a turn ends inside its calls, the next request has one result for each of them, the same before and after a
restart."""

from __future__ import annotations

import json

import pytest

from refold_client import Client
from tests.support.chat_stream import call, calls, chunk, reply
from tests.support.daemons import Json, Place, endless_search, kill, new_session, tool_process, until
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio

FAST = ("read_file", '{"path":"animals.txt"}')
STUCK = ("search_text", '{"pattern":"(a+)+$","regex":true}')

STOPPED = {"cancelled": "the turn was stopped", "killed": "was interrupted"}
"""What a stand-in says, by what came between."""


def asked(first: tuple[str, str], second: tuple[str, str]) -> bytes:
    """A reply that asks for the calls c1 and c2."""
    return calls(call(0, "c1", *first), call(1, "c2", *second)) + chunk({}, "tool_calls")


async def stuck(client: Client, place: Place, *, after_first: bool) -> str:
    """Begin a turn whose second call, or already whose first, takes for ever; what came before is durable."""
    session = await new_session(client, place)
    events = await client.subscribe(session)
    await client.start_turn(session, "run")
    await until(events, "tool/call")
    if after_first:
        await until(events, "tool/result", callId="c1")
    await tool_process(client)
    await client.request("session/flush", {"session": session})
    return session


def end_of(body: bytes) -> list[Json]:
    """Give the last five messages of a body: the prompt, the reply, two results, the next prompt."""
    return json.loads(body)["messages"][-5:]


@pytest.mark.parametrize("how", ["cancelled", "killed"])
@pytest.mark.parametrize("after_first", [True, False], ids=["after the first result", "no result at all"])
async def test_b01_the_next_request_answers_every_call_and_stays_so_after_a_restart(
    place: Place, how: str, after_first: bool
) -> None:
    """Invariant: However a turn ends inside its calls, the next request answers each of them once."""
    endless_search(place)
    wanted = asked(FAST, STUCK) if after_first else asked(STUCK, FAST)
    async with FakeProvider(answer(wanted), *(answer(reply(f"Answer {number}.")) for number in (1, 2))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await stuck(client, place, after_first=after_first)
            if how == "killed":
                await kill(client)
            else:
                await client.interrupt(session, 1)
                await client.prompt(session, "go on")
        async with place.daemon() as client:
            await client.open_session(session)
            if how == "killed":
                await client.prompt(session, "go on")
                await client.close_session(session)
                await client.open_session(session)
            await client.prompt(session, "and on")
    _, first, second = (request.body for request in provider.requests)
    run, reply_, one, two, go_on = end_of(first)
    assert [run["content"], go_on["content"]] == ["run", "go on"]
    assert [made["id"] for made in reply_["tool_calls"]] == ["c1", "c2"]
    assert [(result["role"], result["tool_call_id"]) for result in (one, two)] == [("tool", "c1"), ("tool", "c2")]
    assert ("the zebra sleeps" in one["content"]) == after_first
    assert STOPPED[how] in (two if after_first else one)["content"].lower()
    if not after_first:  # the quick call behind the stuck one may have its answer by the time of an interrupt
        known = how == "cancelled" and "the zebra sleeps" in two["content"]
        assert known or STOPPED[how] in two["content"].lower()
    assert second.startswith(first.removesuffix(b"]}"))
    assert (await place.verify(session))["equal"] == 3
