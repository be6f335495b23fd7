"""Issue 5 on a real engine: a fork's first request reads its parent's cache, as if the parent had gone on itself.

Invariant: A fork's first request reads its parent's cache on a real engine.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.daemons import Json, Place, new_session
from tests.support.engine import random_engine

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SETTINGS = '[models."engine/small"]\nmax_output = 20\n[tools]\nenabled = []\n'


async def explained(place: Place, session: str) -> list[Json]:
    """What `refold cache` says of each request, in a process of its own."""
    done = await asyncio.to_thread(place.refold, "cache", session, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.strip().split("\n")]


async def test_a_fork_reads_the_cache_of_its_parent_also_from_another_process(place: Place) -> None:
    """Whole, and cut in the middle of a reply: all that both share was read before, and the engine says so."""
    (place.workspace / "AGENTS.md").write_text("Be kind to the zebra.\n" * 20)
    with random_engine(place.root) as base_url:
        place.provider(base_url, SETTINGS, name="engine")
        async with place.daemon() as client:
            session = await new_session(client, place)
            for _ in range(5):
                await client.prompt(session, "Tell me more.")
            events = await place.recorded(session)
            chunks = [event["seq"] for event in events if event["type"] == "assistant/chunk"]
            whole = (await client.fork(session))["session"]
            await client.open_session(whole)
            await client.prompt(whole, "And now?")
        async with place.daemon() as client:
            cut = (await client.fork(session, at=chunks[-3]))["session"]
            await client.open_session(cut)
            await client.prompt(cut, "What else?")
    asked = (await explained(place, session))[4]["promptTokens"]
    for child in (whole, cut):
        rows = await explained(place, child)
        assert len(rows) == 6
        assert rows[5]["verdict"] == "kept"
        assert rows[5]["cachedTokens"] >= asked, "all that the parent's last request had"
        assert (await place.verify(child))["equal"] == 6
