"""Plugins at `compaction/summarise`: they may write the summary; whatever else they do, the history is kept or summed up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from refold_protocol.session.events import CompactEnd, CompactSummary, RequestSent, UserMessage
from refold_protocol.session.messages import Usage, text_of
from refold_server.compaction.compaction_decision import CompactionError
from refold_server.plugins import SUMMARISE, Summarising, Summary
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import assert_proven, last, scripted_session, turn
from tests.support.plugging import failures, of_type, plugin

pytestmark = pytest.mark.anyio

STORY = "It is a long story. " * 60


def host() -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(says(STORY), says("A story.")))
    made.window = 100_000
    return made


def asked(session: Session) -> int:
    """How many requests for a summary were sent."""
    sent = [event.data for event in of_type(session, RequestSent)]
    return sum(isinstance(data, RequestSent) and data.purpose == "summary" for data in sent)


async def test_a_plugin_may_write_the_summary_and_no_provider_is_asked() -> None:
    async def mine(asked: Summarising, rest: Callable[[], Awaitable[Summary]]) -> Summary:
        return Summary(f"{len(asked.request.history)} messages", "plugin/counting")

    around = host()
    async with scripted_session(around, plugins=plugin((SUMMARISE, mine))) as session:
        await turn(session)
        await compact_session(session)
        summary = last(session, CompactSummary)
        assert isinstance(summary, CompactSummary)
        assert (summary.summary, summary.model, summary.usage) == ("3 messages", "plugin/counting", None)
        assert asked(session) == 0
        (node,) = session.session_log.folds.request_state.surface.nodes
        assert isinstance(node.data, UserMessage)
        assert "3 messages" in text_of(node.data.content)
        assert_proven(session)


async def test_a_plugin_that_fails_leaves_the_summary_to_the_model() -> None:
    async def broken(asked: Summarising, rest: Callable[[], Awaitable[Summary]]) -> Summary:
        raise ValueError("no")

    async with scripted_session(host(), plugins=plugin((SUMMARISE, broken))) as session:
        await turn(session)
        await compact_session(session)
        assert failures(session) == [("p", "compaction/summarise")]
        assert_proven(session)


NONSENSE: dict[str, object] = {
    "nothing": None,
    "a text": "A story.",
    "a blank summary": Summary(" ", "plugin/x"),
    "a summary of nobody": Summary("Short.", " "),
    "half a character": Summary("Sh\ud800ort.", "plugin/x"),
    "tokens below none": Summary("Short.", "plugin/x", Usage(-5, 7)),
    "tokens beyond what JSON keeps": Summary("Short.", "plugin/x", Usage(5, 2**53)),
    "cached tokens below none": Summary("Short.", "plugin/x", Usage(5, 7, cache_read_tokens=-1)),
}


@pytest.mark.parametrize("given", NONSENSE.values(), ids=NONSENSE.keys())
async def test_nonsense_of_a_plugin_leaves_the_summary_to_the_model(given: object) -> None:
    async def odd(asked: Summarising, rest: Callable[[], Awaitable[Summary]]) -> object:
        return given

    async with scripted_session(host(), plugins=plugin((SUMMARISE, odd))) as session:
        await turn(session)
        await compact_session(session)
        assert failures(session) == [("p", "compaction/summarise")]
        summary = last(session, CompactSummary)
        assert isinstance(summary, CompactSummary)
        assert (summary.summary, summary.usage) == ("A story.", Usage(7, 3))
        assert asked(session) == 1
        assert_proven(session)


async def test_a_plugin_that_fails_behind_the_model_costs_no_second_request() -> None:
    async def late(asked: Summarising, rest: Callable[[], Awaitable[Summary]]) -> Summary:
        await rest()
        raise ValueError("no")

    async with scripted_session(host(), plugins=plugin((SUMMARISE, late))) as session:
        await turn(session)
        await compact_session(session)
        assert failures(session) == [("p", "compaction/summarise")]
        assert asked(session) == 1
        assert_proven(session)


async def test_a_plugin_whose_summary_is_longer_is_refused_each_time_and_nothing_changes() -> None:
    async def longer(asked: Summarising, rest: Callable[[], Awaitable[Summary]]) -> Summary:
        return Summary(STORY * 2, "plugin/x")

    async with scripted_session(host(), plugins=plugin((SUMMARISE, longer))) as session:
        await turn(session)
        before = session.session_log.folds.request_state.surface.nodes[:]
        with pytest.raises(CompactionError, match="would not make the history shorter"):
            await compact_session(session)
        assert session.session_log.folds.request_state.surface.nodes[:] == before
        end = last(session, CompactEnd)
        assert isinstance(end, CompactEnd)
        assert end.error is not None
        assert asked(session) == 0
