"""A session that is configured, restarted and changed on the way: each lost cache hit is traced to what caused it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from refold_client import Client, RpcError
from tests.support.daemons import Json, Place, new_session

pytestmark = pytest.mark.anyio

PLAIN = 'model = "rehearsal/workspace"\n'
CAPPED = f'{PLAIN}\n[models."rehearsal/workspace"]\nmax_output = 777\n'


async def explain(client: Client, session: str, turn: int, step: int = 1, **against: Any) -> Json:
    return await client.request("request/explain", {"session": session, "turn": turn, "step": step, **against})


async def reopened(client: Client, session: str) -> None:
    await client.request("session/open", {"session": session})


async def test_configure_restart_and_a_changed_configuration_are_told_apart(place: Place) -> None:
    """Invariant: Each lost cache hit is traced to the event that caused it."""
    place.configure(PLAIN)
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "Where is the zebra?")
        await client.request("session/configure", {"session": session, "patch": {"effort": "high"}})
        await client.prompt(session, "And now?")
        first, grown, configured = [await explain(client, session, *at) for at in ((1, 1), (1, 2), (2, 1))]
    async with place.daemon() as client:
        await reopened(client, session)
        await client.prompt(session, "Still there?")
        restarted = await explain(client, session, 3)
    place.configure(CAPPED)
    async with place.daemon() as client:
        await reopened(client, session)
        await client.prompt(session, "And now?")
        changed = await explain(client, session, 4)
        across = await explain(client, session, 4, against={"turn": 2, "step": 1})
    recorded = {event["seq"]: event for event in await place.recorded(session)}

    assert (first["verdict"], first["cachedTokens"], first["causes"]) == ("first", 0, [])
    assert "against" not in first
    assert (grown["verdict"], grown["causes"]) == ("kept", [])
    assert grown["common"] == grown["against"]["bytes"] - 2
    assert grown["cachedTokens"] >= grown["common"] // 5, "the rehearsal provider counts what two bodies share"

    (cause,) = configured["causes"]
    assert (configured["verdict"], cause["kind"]) == ("break", "header")
    assert recorded[cause["seq"]]["type"] == cause["type"] == "request/header-delta"
    assert "config reasoningEffort added: “high”" in cause["sentence"]
    assert (configured["parting"]["segment"], configured["parting"]["name"]) == ("config", "reasoning_effort")

    assert (restarted["verdict"], restarted["causes"], restarted["cachedTokens"]) == ("provider", [], 0)
    assert restarted["common"] == restarted["against"]["bytes"] - 2

    (cause,) = changed["causes"]
    assert (changed["verdict"], cause["kind"], cause["instance"]) == ("break", "instance", 3)
    assert recorded[cause["seq"]]["data"]["reason"] == "resume"
    assert "config maxTokens" in cause["sentence"]
    assert across["causes"] == changed["causes"]
    assert across["against"]["turn"] == 2


async def test_the_command_tells_the_same_and_so_does_another_daemon(place: Place) -> None:
    place.configure(PLAIN)
    async with place.daemon() as client, place.daemon() as other:
        session = await new_session(client, place)
        await client.prompt(session, "Where is the zebra?")
        await client.request("session/configure", {"session": session, "patch": {"effort": "low"}})
        await client.prompt(session, "And now?")
        told = await explain(client, session, 2)
        assert await explain(other, session, 2) == told
        shown = await asyncio.to_thread(place.refold, "cache", session)
        assert told["reasons"][0] in shown.stdout
        assert "1 broken" in shown.stdout.split("\n")[-2]


async def test_a_session_without_a_request_has_no_table(place: Place) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.request("session/rename", {"session": session, "title": "Quiet"})
        shown = await asyncio.to_thread(place.refold, "cache", session)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "(no request was sent yet)\n")


async def test_a_step_without_a_request_is_an_error(place: Place) -> None:
    place.configure(PLAIN)
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "Where?")
        with pytest.raises(RpcError) as raised:
            await explain(client, session, 7)
        assert raised.value.kind == "turn.mismatch"
        with pytest.raises(RpcError) as raised:
            await explain(client, session, 1, against={"turn": 1, "step": 1})
        assert raised.value.kind == "turn.mismatch"
        with pytest.raises(RpcError) as raised:
            await explain(client, session, 0)
        assert raised.value.code == -32602
