"""A disk that is full under a running daemon (C-04): who is told what, what stops, and that it goes on when there is space.

The disk is real; what makes it full is the limit on the size of files, set for the running process and taken away again.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import call, calls, reply, text
from tests.support.daemons import Json, Place, new_session, text_so_far, until
from tests.support.fake_provider import FakeProvider, Gate, answer

pytestmark = pytest.mark.anyio

NOISE = "".join(chr(33 + byte % 94) for byte in os.urandom(300_000)).replace("\\", "/").replace('"', "'")
"""Text that hardly deflates."""


@contextmanager
def full_disk(client: Client, place: Place) -> Generator[None]:
    """Let the daemon's files not grow any more."""
    before = resource.prlimit(client.pid, resource.RLIMIT_FSIZE)
    size = (place.store / "data.mdb").stat().st_size
    resource.prlimit(client.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(client.pid, resource.RLIMIT_FSIZE, before)


async def test_c_04_a_full_disk_stops_the_turn_and_is_told_and_the_same_daemon_goes_on_when_there_is_space(
    place: Place,
) -> None:
    gate = Gate()
    wanted = calls(call(0, "c0", "read_file", '{"path":"animals.txt"}'))
    answers = answer(text("Kept. "), gate, text(NOISE), wanted, end="hang"), answer(reply("Two.")), answer(reply("Three."))
    async with FakeProvider(*answers) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            troubles, changes = client.listen("session/trouble"), client.listen("sessions/changed")
            events = await client.subscribe(session)
            turn = (await client.start_turn(session, "go"))["turn"]
            told = await text_so_far(events, "Kept. ")
            await events.wait_durable(told[-1]["seq"])
            with full_disk(client, place):
                gate.open()
                trouble = await anext(troubles)
                assert (trouble["session"], trouble["kind"], "subscription" in trouble) == (session, "log.full", False)
                assert trouble["durable"] >= told[-1]["seq"]
                await asyncio.to_thread(provider.requests[0].left.wait)
                with pytest.raises(RpcError) as raised:
                    await client.wait_turn(session, turn=turn)
                assert raised.value.kind == "log.full"
                assert [word["status"] for word in (await anext(changes), await anext(changes))] == ["running", "broken"]
                health = (await client.health())["sessions"][0]
                assert health["status"] == "broken"
                assert (await client.read(session, "status"))["status"]["status"] == "broken"
                assert (await client.read(session, "status", at=0))["status"]["status"] == "idle"
                assert "no space" in health.get("trouble", "")
                with pytest.raises(RpcError) as raised:
                    await client.start_turn(session, NOISE)
                assert raised.value.kind == "log.full"
                assert len(provider.requests) == 1
            cleared = await anext(troubles)
            assert (cleared["kind"], cleared["session"]) == ("cleared", session)
            told += await until(events, "turn/end")
            assert told[-1]["data"]["reason"]["error"]["kind"] == "log.full"
            assert not [event for event in told if event["type"] == "tool/call"]
            end = await client.prompt(session, "and now?")
            assert end["data"]["reason"] == {"kind": "completed"}
            told += await until(events, "turn/end")
            assert told == (await client.read(session, "events"))["events"]
            assert [event["data"]["how"] for event in told if event["type"] == "input/settled"] == ["withdrawn"]
        assert await place.recorded(session) == told
        await place.verify(session)


async def test_a_full_disk_under_one_session_is_told_for_each_that_could_not_be_written(place: Place) -> None:
    gates = [Gate(), Gate()]
    answers = [answer(text("Kept. "), gate, text(NOISE), end="hang") for gate in gates]
    async with FakeProvider(*answers) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            sessions = [await new_session(client, place), await new_session(client, place)]
            troubles = client.listen("session/trouble")
            for session in sessions:
                await client.start_turn(session, "go")
            with full_disk(client, place):
                for gate in gates:
                    gate.open()
                said: dict[str, Json] = {}
                while set(said) != set(sessions):
                    trouble = await anext(troubles)
                    said[trouble["session"]] = trouble
                assert {trouble["kind"] for trouble in said.values()} == {"log.full"}
            for session in sessions:
                await client.request("session/flush", {"session": session})
            assert {(await anext(troubles))["session"] for _ in sessions} == set(sessions)
