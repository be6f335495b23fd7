"""Room is made for a while: where header and tail come near the threshold, not each message is summed up by itself.

Invariant: Compactions do not follow each other at each message, however much of the window the header takes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from refold_protocol.session.events import CompactStart, CompactSummary, Replace, ToolResult
from refold_protocol.session.messages import Chunk, UsageChunk, text_of
from refold_protocol.session.request import Request
from refold_server.compaction.compaction_decision import is_summary
from refold_server.sessions.session import Session
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls
from tests.support.loop_host import says as says_with_usage
from tests.support.loops import assert_proven, end_of, scripted_session, turn
from tests.support.plugging import of_type

pytestmark = pytest.mark.anyio

WINDOW = 40_000
STORY = "It is a story. " * 40
SUMMARY = "Many stories. " * 60


def says(text: str) -> list[Chunk]:
    """A reply of a provider that counts no tokens."""
    return [chunk for chunk in says_with_usage(text) if not isinstance(chunk, UsageChunk)]


class Storyteller(ScriptedProvider):
    """Tells a story each time, and sums up when it is asked to."""

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        asked = text_of(request.history[-1].content)
        self.scripts = [says(SUMMARY if "replaced by a summary, and you write it now" in asked else STORY)]
        async for chunk in super().stream(request, body):
            yield chunk


def host(provider: ScriptedProvider) -> ScriptedHost:
    made = ScriptedHost(provider)
    made.window = WINDOW
    return made


def summaries(session: Session) -> list[CompactSummary]:
    return [event.data for event in of_type(session, CompactSummary) if isinstance(event.data, CompactSummary)]


@pytest.mark.parametrize("header", [23_000, 26_000, 28_000], ids=["below the threshold", "just above it", "near the brim"])
async def test_each_compaction_stands_for_much_that_is_new(header: int) -> None:
    """Header and tail (6,400 tokens) are just below the threshold of 32,000, or above it: at the brim (36,000) less stays."""
    around = host(Storyteller())
    async with scripted_session(around) as session:
        session.instance.model.system = "s" * header
        meter = around.meter("scripted/small")
        for _ in range(100):
            assert end_of(await turn(session)) == "completed"
            assert meter.measure(session.session_log).tokens <= WINDOW
        found = summaries(session)
        cost = meter.measure_surface(session.session_log).nodes[0].tokens
        assert is_summary(session.session_log.folds.request_state.surface.nodes[0])
        assert [one.shadowed_tokens - cost for one in found[1:] if one.shadowed_tokens - cost < WINDOW // 10] == []
        assert 2 <= len(found) <= 100 * (len(STORY) + 20) // (WINDOW // 10)
        assert_proven(session)


async def test_where_no_room_can_come_no_summary_is_asked_for() -> None:
    around = host(Storyteller())
    async with scripted_session(around) as session:
        session.instance.model.system = "s" * (WINDOW - 1_000)
        for _ in range(10):
            assert end_of(await turn(session)) == "completed"
        assert of_type(session, CompactStart) == []


async def test_a_result_that_the_model_has_not_read_yet_is_not_cut_while_the_request_fits() -> None:
    """The header takes two thirds of the window: with any result the threshold is near, and the model would never see one."""

    async def big(arguments: str) -> str:
        return "many words " * 400

    around = ScriptedHost(ScriptedProvider(says(STORY), calls(("a", "look", "{}")), says("Many words.")), {"look": big})
    around.window = WINDOW
    async with scripted_session(around) as session:
        session.instance.model.system = "s" * 27_500
        await turn(session, "one")
        await turn(session, "two")
        pressure = around.meter("scripted/small").measure(session.session_log)
        assert 32_000 < pressure.tokens < 36_000
        results = of_type(session, ToolResult)
        assert [event for event in results if isinstance(event.surface_op, Replace)] == []
        assert "many words " * 400 in str(around.scripted.requests[-1].history)
        assert of_type(session, CompactStart) == []
