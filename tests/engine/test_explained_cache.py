"""Issue 4 on a real engine: what breaks the provider's cache is one event of the log, and `refold cache` names it."""

from __future__ import annotations

import asyncio
import json

import pytest

from refold_client import Client
from tests.support.daemons import Json, Place, new_session
from tests.support.engine import random_engine

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

PLUGIN = '''
from pathlib import Path

from refold_server.plugins import ASSEMBLE, PROMPT_SUBMIT, Assembled, PluginRegistry, Submit, context

NAME = "weather"


async def submit(prompt):
    """Something new each turn: paid once, behind what is cached."""
    return Submit(context=(context(f"It is turn {prompt.place.turn}, and it rains."),))


async def assemble(assembling, rest):
    """A system text that follows a file, line by line."""
    offered = await rest()
    more = (Path(__file__).parent / "more.txt").read_text()
    return Assembled(offered.system + more, offered.tools)


def register(registry: PluginRegistry) -> None:
    registry.on(PROMPT_SUBMIT, submit)
    registry.on(ASSEMBLE, assemble)
'''


async def prompts(client: Client, session: str, count: int) -> None:
    """Run that many prompts one after the other."""
    for _ in range(count):
        end = await client.prompt(session, "Tell me more.")
        assert end["data"]["reason"]["kind"] in ("completed", "max-tokens")


async def explained(place: Place, session: str) -> list[Json]:
    """What `refold cache` says of each request, in a process of its own."""
    done = await asyncio.to_thread(place.refold, "cache", session, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.strip().split("\n")]


def covers(rows: list[Json], place: int) -> bool:
    """Whether a request found the whole prompt of the one before it in the engine's cache."""
    return rows[place]["cachedTokens"] >= rows[place - 1]["promptTokens"]


async def test_each_lost_cache_hit_is_traced_to_the_one_event_that_caused_it(place: Place) -> None:
    """30 requests with new context each turn; one change of the system text; a restart; a restart with other instructions."""
    plugin = place.root / "weather.py"
    plugin.write_text(PLUGIN)
    more = place.root / "more.txt"
    more.write_text("")
    (place.workspace / "AGENTS.md").write_text("Be kind to the zebra.\n" * 20)
    with random_engine(place.root) as base_url:
        settings = (
            f'[models."engine/small"]\nmax_output = 20\n[tools]\nenabled = []\n[plugins]\npaths = [{json.dumps(str(plugin))}]\n'
        )
        place.provider(base_url, settings, name="engine")
        async with place.daemon() as client:
            session = await new_session(client, place)
            await prompts(client, session, 30)
            more.write_text("\nThe user is in a hurry.")
            await prompts(client, session, 2)
        async with place.daemon() as client:
            await client.open_session(session)
            await prompts(client, session, 2)
        (place.workspace / "AGENTS.md").write_text("Be kind to the horse.\n" * 20)
        async with place.daemon() as client:
            await client.open_session(session)
            await prompts(client, session, 2)
    recorded = await place.recorded(session)
    rows = await explained(place, session)
    assert len(rows) == 36
    assert [number for number in range(1, 36) if not covers(rows, number)] == [30, 34]
    assert [row["verdict"] for row in rows] == ["first", *["kept"] * 29, "break", *["kept"] * 3, "break", "kept"]
    (delta,) = rows[30]["causes"]
    assert (delta["kind"], delta["type"], delta["seq"]) == ("header", "request/header-delta", delta["seq"])
    assert recorded[delta["seq"]]["data"] == {"system": recorded[delta["seq"]]["data"]["system"]}
    assert rows[30]["parting"]["segment"] == "system"
    (drift,) = rows[34]["causes"]
    assert (drift["kind"], drift["type"], drift["instance"]) == ("instance", "request/header", 3)
    assert recorded[drift["seq"]]["data"]["reason"] == "resume"
    assert rows[34]["parting"]["segment"] == "prefix"
    assert (await place.verify(session))["equal"] == 36
