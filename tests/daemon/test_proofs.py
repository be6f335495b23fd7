"""What was sent can be rebuilt, over the wire and by another process, to the byte; and a log that was changed is found out."""

from __future__ import annotations

import asyncio
import hashlib
from itertools import pairwise

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import Place, new_session, text_so_far, types, until
from tests.support.fake_provider import FakeProvider, Gate, answer

pytestmark = pytest.mark.anyio

PLAYED = (
    answer(text("I look."), calls(call(0, "c0", "read_file", '{"path":"animals.txt"}')), chunk({}, "tool_calls")),
    answer(reply("It sleeps.")),
    answer(text("Half a"), end="hang"),
    answer(reply("Yes. 那🙂")),
)


async def played_session(client: Client, place: Place) -> str:
    """A session with three turns, the second interrupted: four requests."""
    session = await new_session(client, place)
    await client.prompt(session, 'Which "animal" sleeps? 那\u2028🙂')
    events = await client.subscribe(session, after="tail")
    await client.start_turn(session, "Really?")
    await text_so_far(events, "Half a")
    await client.interrupt(session, 2)
    await client.prompt(session, "Really?")
    return session


async def test_each_request_is_rebuilt_to_the_byte_that_the_provider_got(place: Place) -> None:
    async with FakeProvider(*PLAYED) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client, place.daemon() as other:
            session = await played_session(client, place)
            sent = [event["data"] for event in await place.recorded(session) if event["type"] == "request/sent"]
            assert len(sent) == len(provider.requests) == 4
            for data, request in zip(sent, provider.requests, strict=True):
                params = {"session": session, "turn": data["turn"], "step": data["step"]}
                rebuilt = await client.request("request/rebuild", params)
                assert rebuilt["body"].encode() == request.body
                assert rebuilt["sha256"] == data["sha256"] == hashlib.sha256(request.body).hexdigest()
                assert (rebuilt["requestSha256"], rebuilt["verdict"]) == (data["requestSha256"], "equal")
                assert await other.request("request/rebuild", params) == rebuilt
            shown = await asyncio.to_thread(place.refold, "rebuild", session, "1.2")
            assert shown.stdout.encode() == provider.requests[1].body
            with pytest.raises(RpcError) as raised:
                await client.request("request/rebuild", {"session": session, "turn": 1, "step": 3})
            assert raised.value.kind == "turn.mismatch"


async def test_a_body_extends_the_one_before_up_to_its_closing_brackets(place: Place) -> None:
    async with FakeProvider(*PLAYED) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            await played_session(client, place)
    bodies = [request.body for request in provider.requests]
    for before, after in pairwise(bodies):
        assert after.startswith(before.rstrip(b"]}"))


async def test_daemons_and_commands_verify_the_same_log_and_agree(place: Place) -> None:
    async with FakeProvider(*PLAYED) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client, place.daemon() as other:
            session = await played_session(client, place)
            here, there, command = await asyncio.gather(
                client.request("log/verify", {"session": session}),
                other.request("log/verify", {"session": session}),
                place.verify(session),
            )
            assert here == there == {"events": here["events"], "requests": 4, "equal": 4, "unshipped": 0}
            assert (command["events"], command["requests"], command["equal"]) == (here["events"], 4, 4)
            assert command["differences"] == []


async def test_a_running_turn_can_be_verified_from_within_and_from_beside(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Half"), gate, reply("."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            told = await text_so_far(events, "Half")
            report = await client.request("log/verify", {"session": session})
            assert (report["requests"], report["equal"]) == (1, 1)
            assert report["events"] >= len(told)
            assert (await place.verify(session))["equal"] == 1
            rebuilt = await client.request("request/rebuild", {"session": session, "turn": 1, "step": 1})
            assert (rebuilt["body"].encode(), rebuilt["verdict"]) == (provider.requests[0].body, "equal")
            gate.open()
            await until(events, "turn/end")


async def test_a_changed_configuration_leaves_old_requests_provable(place: Place) -> None:
    """Every setting that can change a byte of a body is in the recorded header."""
    async with FakeProvider(answer(reply("One.")), answer(reply("Two."))) as provider:
        place.provider(provider.base_url, '[models."fake/small"]\ntemperature = 0.5\nmax_output = 100\nextra = { seed = 7 }\n')
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "go")
        place.provider(provider.base_url, '[tools]\nenabled = ["list_files"]\n[models."fake/small"]\nstop = ["x"]\n')
        async with place.daemon() as client:
            await client.open_session(session)
            await client.prompt(session, "again")
    assert b'"seed":7' in provider.requests[0].body
    assert b'"seed":7' not in provider.requests[1].body
    assert types(await place.recorded(session)).count("request/header") == 2
    assert (await place.verify(session))["equal"] == 2
