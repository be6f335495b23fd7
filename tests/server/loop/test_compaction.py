"""Compaction on request: what lands, what the next request is, and how all of it is proved."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from refold_protocol.errors import ProviderError
from refold_protocol.ids import SessionId
from refold_protocol.session.events import CompactEnd, CompactStart, CompactSummary, RequestSent, SessionSettings, UserMessage
from refold_protocol.session.messages import CallConfig, Usage, text_of
from refold_protocol.session.request import Request, rebuild_summary
from refold_protocol.session.surface import fold_surface
from refold_server.compaction.compaction_decision import COMPACTION
from refold_server.config import CompactionConfig
from refold_server.sessions.session_registry import compact_session
from refold_server.sessions.session_settings import SettingsPatch
from refold_storage.interface import NewSession
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import NAME, assert_proven, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

LONG = "It is a long story. " * 60


def host(*scripts: object, window: int = 100_000) -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(*scripts))  # type: ignore[arg-type]
    made.window = window
    return made


async def test_a_compaction_on_request_puts_a_summary_in_place_of_the_history() -> None:
    around = host(says(LONG), says(LONG), says("Two long stories."), says("fine"))
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        tail = session.session_log.handle.tail
        seq = (await compact_session(session)).seq
        assert types(session, tail + 1) == ["compact/start", "request/sent", "compact/summary", "user/message", "compact/end"]
        (node,) = session.session_log.folds.request_state.surface.nodes
        assert node.seq == seq
        assert isinstance(node.data, UserMessage)
        assert node.data.source == COMPACTION
        assert "Two long stories." in text_of(node.data.content)
        await turn(session, "three")
        assert [message.role for message in around.scripted.requests[-1].history] == ["user", "user"]
        assert_proven(session)


async def test_the_summary_call_replays_header_and_region_and_puts_its_instructions_last() -> None:
    around = host(says(LONG), says(LONG), says("Two long stories."))
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        before = around.scripted.requests[-1]
        start = session.session_log.handle.tail + 1
        await compact_session(session, "Keep the names.")
        asked = around.scripted.requests[-1]
        assert tuple(asked.history)[: len(before.history)] == tuple(before.history)
        assert len(asked.history) == len(before.history) + 2
        assert asked.history[-1].role == "user"
        assert "Keep the names." in text_of(asked.history[-1].content)
        assert (asked.header.system, asked.header.tools) == (before.header.system, before.header.tools)
        assert asked.header.config.max_tokens == 8192
        assert rebuild_summary(session.session_log.handle.read(), start) == asked


async def test_a_compaction_records_what_it_shadowed_by_the_session_models_meter() -> None:
    around = host(says(LONG), says("A story."))
    async with scripted_session(around) as session:
        await turn(session, "one")
        nodes = [node.seq for node in session.session_log.folds.request_state.surface.nodes]
        meter = around.meter("scripted/small")
        price = meter.measure_surface(session.session_log).tokens
        await compact_session(session)
        summary = last(session, CompactSummary)
        assert isinstance(summary, CompactSummary)
        assert summary.shadowed_tokens == price
        assert [seq for first, end in summary.shadowed for seq in range(first, end + 1)] == nodes
        assert (summary.model, summary.max_tokens, summary.usage) == ("scripted/small", 8192, Usage(7, 3))
        start = last(session, CompactStart)
        assert isinstance(start, CompactStart)
        assert (start.trigger, start.range, start.turn) == ("user", (nodes[0], nodes[-1]), None)
        sent = last(session, RequestSent)
        assert isinstance(sent, RequestSent)
        assert (sent.purpose, sent.attempt, sent.turn, sent.step) == ("summary", 1, None, None)
        assert last(session, CompactEnd) == CompactEnd()


async def test_a_model_that_the_settings_name_sums_up_within_its_own_window() -> None:
    """Figures are the session model's all the same."""
    around = host(says(LONG), says("A story."), says("fine"))
    around.policy = CompactionConfig(summary_model="tall", summary_max_tokens=6_000)
    around.windows["scripted/tall"] = 5_000
    async with scripted_session(around) as session:
        await turn(session, "one")
        price = around.meter("scripted/small").measure_surface(session.session_log).tokens
        landed = await compact_session(session)
        assert landed.shadowed == price
        asked = around.scripted.requests[-1]
        assert asked.header.config.model == "tall"
        left = 5_000 - price - around.meter("scripted/small").measure(session.session_log).header
        instructions = len(text_of(asked.history[-1].content)) + 8
        assert asked.header.config.max_tokens == left - instructions
        summary = last(session, CompactSummary)
        assert isinstance(summary, CompactSummary)
        assert (summary.model, summary.max_tokens) == ("scripted/tall", left - instructions)
        await turn(session, "two")
        assert around.scripted.requests[-1].header.config.model == "small"
        assert around.scripted.requests[-1].header.config.max_tokens is None
        assert_proven(session)


async def test_texts_that_end_replies_do_not_end_a_summary() -> None:
    """It would look whole, and what was to come behind them would be lost."""

    class Stopping(ScriptedHost):
        def call_config(self, settings: SessionSettings) -> CallConfig:
            return replace(super().call_config(settings), stop=("\n\n",))

    around = Stopping(ScriptedProvider(says(LONG), says("A story."), says("fine")))
    around.window = 100_000
    async with scripted_session(around) as session:
        await turn(session, "one")
        await compact_session(session)
        await turn(session, "two")
        stops = [request.header.config.stop for request in around.scripted.requests]
        assert stops == [("\n\n",), None, ("\n\n",)]
        assert_proven(session)


async def test_where_the_provider_that_was_asked_last_is_gone_the_next_model_sums_up() -> None:
    class Moved(ScriptedHost):
        def __init__(self, provider: ScriptedProvider, old: bool) -> None:
            super().__init__(provider)
            self.window, self.old = 100_000, old

        def call_config(self, settings: SessionSettings) -> CallConfig:
            config = super().call_config(settings)
            return replace(config, provider="old") if self.old else config

        def provider(self, name: str) -> ScriptedProvider:
            if name == "old" and not self.old:
                raise ProviderError("model.unconfigured", "no provider 'old' is configured any more")
            return self.scripted

    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(Moved(ScriptedProvider(says(LONG)), True), store=store) as session:
        await turn(session, "one")
    around = Moved(ScriptedProvider(says("A story."), says("fine")), False)
    async with scripted_session(around, store=store) as session:
        await compact_session(session)
        assert around.scripted.requests[-1].header.config.provider == "scripted"
        await turn(session, "two")
        assert_proven(session)


async def test_a_second_compaction_sums_up_the_first_one_with_what_came_since() -> None:
    around = host(says(LONG), says("One story."), says(LONG), says("Two stories."), says("fine"))
    async with scripted_session(around) as session:
        await turn(session, "one")
        first = await compact_session(session)
        await turn(session, "two")
        second = await compact_session(session)
        start = last(session, CompactStart)
        assert isinstance(start, CompactStart)
        assert start.range[0] == first.seq
        assert "One story." in text_of(around.scripted.requests[-1].history[0].content)
        await turn(session, "three")
        assert session.session_log.folds.request_state.surface.nodes[0].seq == second.seq
        assert_proven(session)


async def test_a_fork_of_a_compacted_session_begins_with_the_summary() -> None:
    """The region stays where it was for whoever forks before it."""
    store = MemoryStore(clock=lambda: 1_000)
    around = host(says(LONG), says("A story."))
    async with scripted_session(around, store=store) as session:
        await turn(session, "one")
        before = session.session_log.handle.tail
        await compact_session(session)
        tail = session.session_log.handle.tail
    for at, first in ((before, "one"), (tail, "The earlier part")):
        name = SessionId(f"fork{at}")
        await store.fork(NAME, at, NewSession(name, "/work", 1_000))
        handle = await store.open(name, "read")
        surface = fold_surface(handle.read())
        data = surface.nodes[0].data
        assert isinstance(data, UserMessage)
        assert text_of(data.content).startswith(first)
        await handle.close()


async def test_a_request_for_a_summary_is_compared_with_the_log_also_where_only_samples_are() -> None:
    around = host(says(LONG), says("fine"), says("A story."))
    around.checks = "sampled"
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        checked: list[bytes] = []
        check = session.instance.model.live_check.check

        async def counting(request: Request, body: bytes) -> None:
            checked.append(body)
            await check(request, body)

        session.instance.model.live_check.check = counting  # type: ignore[method-assign]
        await compact_session(session)
        assert checked == [around.scripted.bodies[-1]]
        assert not around.results.are_shortened, "a summary is no shortened result"


async def test_settings_are_resolved_once_for_the_requests_that_follow_them() -> None:
    """Measuring before a step looks at the next config and must not count as its use, nor make it be resolved again."""
    around = host(says("a"), says("b"), says("c"))
    async with scripted_session(around) as session:
        await turn(session, "one")
        await session.configure(SettingsPatch(effort="low"))
        await turn(session, "two")
        around.trouble = ProviderError("model.unconfigured", "no provider of that name is configured any more")
        assert end_of(await turn(session, "three")) == "completed"
