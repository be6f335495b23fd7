"""Case C-01: kill −9 at random moments of a streaming turn with tools, again and again in one session.

After each kill all that was told as durable is there, without a gap and to the byte; the next open closes what was open,
once; the next prompt works; in the end every request can be rebuilt. The moments are drawn from a seed, counted in events.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys

import pytest

from refold_client import ConnectionEndedError, Subscription
from tests.support.daemons import Json, Place, kill, new_session, types
from tests.support.notices import TOLD_WHEN_DURABLE

pytestmark = pytest.mark.anyio

KILLS = 10
"""Of a daemon; and as many of `refold run`."""

TURN: list[Json] = [
    {
        "text": "I look at the file, word by word. " * 2,
        "calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}}, {"name": "list_files"}],
        "chunk": 2,
        "delayMs": 1,
    },
    {"text": "And what I find I tell you, word by word. " * 3, "chunk": 2, "delayMs": 1},
]
"""About 120 events; the wait between two of them is what a kill falls into."""

EVENTS = 120
"""Moments are drawn below this; from the second event on, which is the prompt, so that there is a session to go on with."""


async def check_after_kill(place: Place, session: str, told: list[Json], durable: int, before: list[bytes]) -> list[bytes]:
    """Hold what must be on disk after a kill; give the lines."""
    lines = await place.lines(session)
    recorded = [json.loads(line) for line in lines]
    assert [event["seq"] for event in recorded] == list(range(len(recorded)))
    assert lines[: len(before)] == before, "what was on disk once never changes"
    kept = [event for event in told if event["seq"] <= durable]
    assert recorded[told[0]["seq"] :][: len(kept)] == kept
    return lines


async def rest(events: Subscription) -> list[Json]:
    """Take what came of a subscription before its daemon was gone."""
    taken: list[Json] = []
    try:
        async for event in events:
            taken.append(event)
    except ConnectionEndedError:
        return taken
    raise AssertionError("a subscription that nobody stopped has ended")


async def follow_and_kill(place: Place, session: str | None, moment: int) -> tuple[str, list[Json], int]:
    """Run a turn in a daemon, kill it when `moment` events were told; give the session, what was told, what of it as
    durable."""
    async with place.daemon() as client:
        if session is None:
            session = await new_session(client, place)
        else:
            opened = await client.open_session(session)
            assert (opened["tail"], opened["status"]) == (opened["durable"], {"status": "idle"})
        events = await client.subscribe(session, after="tail")
        await client.start_turn(session, "Go on.")
        told = [await anext(events) for _ in range(moment)]
        await kill(client)
        return session, told + await rest(events), events.durable


async def test_c01_a_daemon_killed_at_random_moments_keeps_all_that_it_told_as_durable(place: Place) -> None:
    place.script(*TURN)
    draw, session, lines = random.Random(1), None, list[bytes]()
    for _ in range(KILLS):
        session, told, durable = await follow_and_kill(place, session, draw.randrange(2, EVENTS))
        lines = await check_after_kill(place, session, told, durable, lines)
    assert session is not None
    async with place.daemon() as client:
        await client.open_session(session)
        assert (await client.prompt(session, "Are you there?"))["data"]["reason"] == {"kind": "completed"}
    await check_the_whole(place, session)


async def test_c01_a_command_killed_at_random_moments_goes_on_with_its_session(place: Place) -> None:
    place.script(*TURN)
    draw, session, lines = random.Random(2), None, list[bytes]()
    for _ in range(KILLS):
        session, told = await asyncio.to_thread(run_and_kill, place, session, draw.randrange(2, EVENTS))
        effects = [event["seq"] for event in told if event["type"] in TOLD_WHEN_DURABLE]
        lines = await check_after_kill(place, session, told, effects[-1], lines)
    assert session is not None
    ran = await asyncio.to_thread(place.refold, "run", "Are you there?", "--session", session)
    assert ran.returncode == 0, ran.stderr
    await check_the_whole(place, session)


def run_and_kill(place: Place, session: str | None, moment: int) -> tuple[str, list[Json]]:
    """Run a turn by `refold run --json`, kill it when it has printed `moment` events; give the session and the events."""
    command = [sys.executable, "-m", "refold_server", "run", "Go on.", "--json", "--store", str(place.store)]
    more = [] if session is None else ["--session", session]
    with subprocess.Popen(
        [*command, "--config", str(place.config), *more], cwd=place.workspace, env=place.env, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        session = json.loads(child.stdout.readline())["session"]
        told = [json.loads(child.stdout.readline()) for _ in range(moment)]
        os.kill(child.pid, 9)
        rest = child.stdout.read().split(b"\n")
        told += [json.loads(line) for line in rest[:-1]]
    assert session is not None
    return session, told


async def check_the_whole(place: Place, session: str) -> None:
    """Hold what is true of the log after all kills: every turn ended once, and another process can prove each request."""
    recorded = await place.recorded(session)
    names = types(recorded)
    assert names.count("turn/start") == names.count("turn/end") == KILLS + 1
    assert names.count("step/start") == names.count("step/end")
    assert names.count("tool/call") <= names.count("tool/result")
    report = await place.verify(session)
    assert report["requests"] == report["equal"] == names.count("request/sent") > KILLS
