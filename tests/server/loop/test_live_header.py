"""Compaction where the header of the next request is another one than the last request had."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import CompactEnd, CompactStart, CompactSummary
from refold_protocol.session.messages import Chunk, Message, UsageChunk, text_content, text_of
from refold_protocol.session.request import Request
from refold_server.config import CompactionConfig
from refold_server.plugins import SESSION_PREFIX, SUMMARISE, PluginRegistry, PrefixRequest, Summarising, Summary
from refold_server.plugins.hook_table import NextPrefix, NextSummary
from refold_server.plugins.plugin_registry import Plugins, registered
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import Script, ScriptedHost, ScriptedProvider
from tests.support.loop_host import says as says_with_usage
from tests.support.loops import CLIENT, assert_proven, end_of, scripted_session, turn
from tests.support.memory_store import MemoryStore
from tests.support.plugging import of_type

pytestmark = pytest.mark.anyio

WINDOW = 8_000
STORY = "It is a long story. " * 54
OVERFLOW = ProviderError("provider.contextOverflow", "too large", status=400)


def says(text: str) -> list[Chunk]:
    """A reply of a provider that counts no tokens."""
    return [chunk for chunk in says_with_usage(text) if not isinstance(chunk, UsageChunk)]


def host(*scripts: Script) -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(*scripts))
    made.window = WINDOW
    return made


def prefixed(characters: int, seen: list[Summarising] | None = None) -> Plugins:
    """A plugin with a prefix of so many characters, which are as many tokens here; `seen` gets what it is asked to sum up."""

    async def grow(composing: PrefixRequest, following: NextPrefix) -> Sequence[Message]:
        return [Message("user", text_content("p" * characters)), *await following()]

    async def look(asked: Summarising, following: NextSummary) -> Summary:
        if seen is not None:
            seen.append(asked)
        return await following()

    def register(registry: PluginRegistry) -> None:
        registry.on(SESSION_PREFIX, grow)
        registry.on(SUMMARISE, look)

    return registered("grown", register)


def cost(around: ScriptedHost, request: Request) -> int:
    """What a request and its reply may take of the window, by estimate."""
    meter = around.meter("scripted/small")
    prompt = meter.estimate_header(request.header) + sum(map(meter.estimate_message, request.history))
    return prompt + (request.header.config.max_tokens or 0)


async def test_a_prefix_that_grew_is_no_part_of_the_call_for_a_summary_and_the_first_request_fits() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(host(*[says(STORY)] * 5), store=store) as session:
        for _ in range(5):
            await turn(session)
    around, seen = host(says("Five stories."), says("fine")), list[Summarising]()
    async with scripted_session(around, store=store, plugins=prefixed(4_600, seen)) as session:
        assert end_of(await turn(session)) == "completed"
        assert len(of_type(session, CompactSummary)) == 1
        summary, step = around.scripted.requests
        assert summary.header.message_prefix is None
        assert cost(around, summary) <= WINDOW
        assert cost(around, step) <= WINDOW
        assert [len(text_of(message.content)) for message in seen[0].prefix] == [4_600], "who sums up sees what comes after"
        assert_proven(session)


async def test_a_recorded_prefix_that_is_gone_counts_in_the_call_for_a_summary() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(host(says(STORY)), store=store, plugins=prefixed(4_600)) as session:
        await turn(session)
    around = host(says("A story."), says("fine"))
    async with scripted_session(around, store=store) as session:
        assert end_of(await turn(session, "x" * 5_600)) == "completed"
        summary, step = around.scripted.requests
        assert summary.header.message_prefix is not None
        assert cost(around, summary) <= WINDOW
        assert step.header.message_prefix is None
        assert_proven(session)


async def test_the_very_first_request_of_a_session_is_compacted_where_it_would_not_fit() -> None:
    around = host(says("Eight notes."), says("fine"))
    async with scripted_session(around, plugins=prefixed(4_000)) as session:
        for _ in range(8):
            await session.inject(text_content("n" * 500), CLIENT)
        assert end_of(await turn(session)) == "completed"
        (start,) = [event.data for event in of_type(session, CompactStart)]
        assert isinstance(start, CompactStart)
        assert start.trigger == "pressure"
        summary, step = around.scripted.requests
        assert summary.header.message_prefix is None, "nothing was sent before that it could repeat"
        assert cost(around, step) < WINDOW * 0.8
        assert_proven(session)


async def test_a_session_without_a_request_is_summed_up_by_its_own_model() -> None:
    around = host(says("Notes."), says("fine"))
    async with scripted_session(around) as session:
        for _ in range(4):
            await session.inject(text_content("n" * 500), CLIENT)
        await compact_session(session)
        (start,) = [event.data for event in of_type(session, CompactStart)]
        assert isinstance(start, CompactStart)
        assert (start.config.provider, start.config.model) == ("scripted", "small")
        assert end_of(await turn(session)) == "completed"
        assert_proven(session)


async def test_after_an_answer_that_it_did_not_fit_a_session_with_a_large_prefix_is_still_compacted() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(host(*[says(STORY[:700])] * 3), store=store) as session:
        for _ in range(3):
            await turn(session)
    around = host(says(" "), [OVERFLOW], says("A story."), says("fine"))
    around.policy = CompactionConfig(attempts=1)
    async with scripted_session(around, store=store, plugins=prefixed(5_500)) as session:
        assert end_of(await turn(session)) == "completed"
        ends = [event.data for event in of_type(session, CompactEnd)]
        assert [end.error and end.error.kind for end in ends if isinstance(end, CompactEnd)] == ["compaction.failed", None]
        assert_proven(session)
