"""Compaction on a real engine (issue 6, must show 2): 60 prompts in a small window, nothing overflows, the cache is used."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.daemons import Place, new_session
from tests.support.engine import engine
from tests.support.engine_models import write_chain_model

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

WINDOW = 8_192
SETTINGS = f"""
[models."engine/small"]
context_window = {WINDOW}
chars_per_token = 1
max_output = 600
[tools]
enabled = []
[checks]
live = "always"
"""
STORY = "The zebra of this story walks on and on, and stops at no river. " * 5


async def test_sixty_prompts_pass_through_several_compactions_and_every_request_is_proved(place: Place) -> None:
    model = write_chain_model(place.root / "chain.gguf", "list_files", {})
    with engine(model, context=WINDOW) as base_url:
        place.provider(base_url, SETTINGS, name="engine")
        async with place.daemon() as client:
            session = await new_session(client, place)
            for number in range(60):
                end = await client.prompt(session, f"{number}: {STORY}")
                assert end["data"]["reason"] == {"kind": "completed"}, number
            first = (await client.read(session, "transcript"))["entries"][0]
    recorded = await place.recorded(session)
    of = {kind: [event for event in recorded if event["type"] == kind] for kind in {event["type"] for event in recorded}}
    starts, summaries, ends = of["compact/start"], of["compact/summary"], of["compact/end"]
    assert len(starts) == len(summaries) == len(ends) >= 3, "each compaction landed at its first attempt"
    assert {start["data"]["trigger"] for start in starts} == {"pressure"}
    assert {event["data"].get("outcome", "ok") for event in of["step/end"]} == {"ok"}, "nothing overflowed"
    report = await place.verify(session)
    assert report["requests"] == report["equal"] == len(of["request/sent"]) == 60 + len(starts)
    for start, summary in zip(starts, summaries, strict=True):
        usage, instructions = summary["data"]["usage"], start["data"]["instructions"]
        prompt = usage["inputTokens"] + usage["cacheReadTokens"]
        replayed = prompt - len(instructions) - 64  # the instructions, and what a chat template puts around a message
        assert usage["cacheReadTokens"] >= replayed > 3_000, "what was sent before is read from the cache"
    replies = [event["data"]["usage"] for event in of["assistant/message"]]
    assert max(usage["inputTokens"] + usage.get("cacheReadTokens", 0) for usage in replies) < WINDOW
    assert first["content"][0]["text"].startswith("0: "), "people see all of it"
    shown = await asyncio.to_thread(place.refold, "cache", session)
    assert shown.stdout.count("compaction") >= len(starts)
