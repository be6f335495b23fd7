"""An input that was accepted and never joined the history: it waits, runs only when asked to, and runs once. Case E-04."""

from __future__ import annotations

import sys

import pytest

from refold_client import RpcError
from tests.support.daemons import Json, Place, kill, new_session, types, until

pytestmark = pytest.mark.anyio


async def waiting_session(place: Place, at: str) -> tuple[str, Json]:
    """A session whose daemon was killed with its first input accepted; the session's id and the reply to turn/start."""
    async with place.daemon((sys.executable, "-m", "tests.support.stuck_daemon", at)) as client:
        session = await new_session(client, place)
        started = await client.start_turn(session, "Which animal sleeps?")
        if at == "started":
            events = await client.subscribe(session)
            begun = await until(events, "turn/start")
            await events.wait_durable(begun[-1]["seq"])
        await kill(client)
    return session, started


@pytest.mark.parametrize(
    ("at", "recorded"),
    [
        ("accepted", ["instance/start", "input/accepted"]),
        ("started", ["instance/start", "input/accepted", "turn/start", "turn/end"]),
    ],
)
async def test_e04_an_input_that_a_kill_left_behind_is_listed_and_can_be_started(
    place: Place, at: str, recorded: list[str]
) -> None:
    session, started = await waiting_session(place, at)
    place.script({"text": "The zebra."})
    async with place.daemon() as client:
        opened = await client.open_session(session)
        (waiting,) = opened["pendingInputs"]
        assert (waiting["input"], waiting["seq"], waiting["mode"]) == (started["input"], started["seq"], "prompt")
        assert waiting["content"] == [{"type": "text", "text": "Which animal sleeps?"}]
        assert opened["status"] == {"status": "idle"}, "after a resume nothing runs by itself"
        assert types(await place.recorded(session)) == recorded

        again = await client.request("turn/start", {"session": session, "input": started["input"]})
        assert again == {"input": started["input"], "seq": started["seq"], "turn": recorded.count("turn/start") + 1}
        end = await client.wait_turn(session, input_id=started["input"])
        assert end["data"] == {"turn": again["turn"], "reason": {"kind": "completed"}}
        with pytest.raises(RpcError) as raised:
            await client.request("turn/start", {"session": session, "input": started["input"]})
        assert raised.value.kind == "input.unknown"
        assert (await client.open_session(session))["pendingInputs"] == []
    events = await place.recorded(session)
    assert types(events).count("user/message") == 1
    assert events[-1]["type"] == "turn/end"
    assert types(events)[len(recorded) : len(recorded) + 3] == ["instance/start", "turn/start", "user/message"]
    assert (await place.verify(session))["equal"] == 1


async def test_a_new_prompt_leaves_what_waits_alone(place: Place) -> None:
    session, started = await waiting_session(place, "accepted")
    place.script({"text": "ok"}, {"text": "The zebra."})
    async with place.daemon() as client:
        await client.open_session(session)
        await client.prompt(session, "Something else first.")
        (waiting,) = (await client.open_session(session))["pendingInputs"]
        assert waiting["input"] == started["input"]
        await client.request("turn/start", {"session": session, "input": started["input"]})
        await client.wait_turn(session, input_id=started["input"])
        surface = (await client.read(session, "surface"))["nodes"]
    said = [node["message"]["content"][0]["text"] for node in surface]
    assert said == ["Something else first.", "ok", "Which animal sleeps?", "The zebra."]


async def test_a_reader_lists_what_waits_too(place: Place) -> None:
    session, started = await waiting_session(place, "started")
    async with place.daemon() as client:
        opened = await client.open_session(session, mode="read")
        assert [waiting["input"] for waiting in opened["pendingInputs"]] == [started["input"]]
        assert types(await place.recorded(session))[-1] == "turn/start", "a reader writes nothing"
