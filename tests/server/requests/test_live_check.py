"""The live check: nothing leaves that a fresh reading of the log does not give, whatever the loop's caches say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from msgspec.structs import force_setattr, replace

from refold_protocol.session.events import TurnEnd
from refold_protocol.session.messages import CallConfig, Chunk, TextBlock
from refold_protocol.session.request import NO_REQUESTS, horizon_step
from refold_server.plugins import STREAM, Outgoing, PluginRegistry
from refold_server.plugins.hook_table import NextStream
from refold_server.plugins.plugin_registry import Plugins, registered
from refold_server.requests.live_check import EVERY, SHAPELESS, CheckMode, LiveCheck
from refold_server.sessions.session_registry import compact_session
from tests.support.log_strategies import logs
from tests.support.logs import Log
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import assert_proven, end_of, scripted_session, turn

pytestmark = pytest.mark.anyio


def sending(change: Callable[[Outgoing], Outgoing]) -> Plugins:
    """A plugin that sends what `change` makes of each request."""

    async def swap(outgoing: Outgoing, send: NextStream) -> AsyncIterator[Chunk]:
        async for chunk in send(change(outgoing)):
            yield chunk

    def register(registry: PluginRegistry) -> None:
        registry.on(STREAM, swap)

    return registered("swap", register)


def reason_of(event: object) -> tuple[str, str]:
    """Kind and message of the error that ended a turn."""
    data = getattr(event, "data", None)
    assert isinstance(data, TurnEnd)
    assert data.reason.error is not None
    return data.reason.error.kind, data.reason.error.message


@pytest.mark.parametrize("mode", ["always", "sampled"])
async def test_other_bytes_than_the_recorded_ones_never_leave(mode: CheckMode) -> None:
    """Invariant: Nothing leaves that a fresh reading of the log does not give."""
    provider = ScriptedProvider(says("hello"), says("never"))
    host = ScriptedHost(provider)
    host.checks = mode
    asked: list[int] = []

    def swap(outgoing: Outgoing) -> Outgoing:
        asked.append(1)
        return outgoing if len(asked) == 1 else replace(outgoing, body=outgoing.body.replace(b"second", b"zecond"))

    async with scripted_session(host, plugins=sending(swap)) as session:
        assert end_of(await turn(session, "first")) == "completed"
        kind, message = reason_of(await turn(session, "second"))
        assert kind == "invariant"
        assert "history message 3" in message
        assert "zecond" in message
        assert len(provider.bodies) == 1
        assert_proven(session)


@pytest.mark.parametrize("mode", ["always", "sampled"])
async def test_another_request_with_the_right_bytes_is_refused_as_well(mode: CheckMode) -> None:
    provider = ScriptedProvider(says("never"))
    host = ScriptedHost(provider)
    host.checks = mode

    def swap(outgoing: Outgoing) -> Outgoing:
        header = replace(outgoing.request.header, config=CallConfig("other", "m", "chat-completions"))
        return replace(outgoing, request=replace(outgoing.request, header=header))

    async with scripted_session(host, plugins=sending(swap)) as session:
        kind, message = reason_of(await turn(session))
        assert (kind, provider.bodies) == ("invariant", [])
        assert "header" in message


async def test_what_was_bent_in_the_caches_of_the_loop_is_caught_on_the_first_request_after_a_header() -> None:
    """Ordinary code cannot change a message; this one forces it, below what Python guards."""
    provider = ScriptedProvider(says("one"), says("never"))
    host = ScriptedHost(provider)
    host.checks = "sampled"
    async with scripted_session(host) as session:
        await turn(session, "the truth")
        force_setattr(session.session_log.folds.request_state.history[0], "content", (TextBlock("a lie"),))
        host.model = "another"
        session.instance.model.anchored = False  # as after a change of settings: the config is resolved anew
        kind, message = reason_of(await turn(session, "go on"))
        assert kind == "invariant"
        assert "history message 1" in message
        assert "a lie" in message
        assert len(provider.bodies) == 1


async def test_sampling_looks_at_a_summary_request_and_at_the_first_request_behind_the_replace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = says("It is a long story. " * 85)
    provider = ScriptedProvider(story, story, says("A story."), says("on"), says("and on"))
    host = ScriptedHost(provider)
    host.checks, host.window = "sampled", 100_000
    checked: list[int] = []
    real = LiveCheck.check

    async def noted(self: LiveCheck, *given: object) -> None:
        checked.append(len(provider.bodies) + 1)
        await real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveCheck, "check", noted)
    async with scripted_session(host) as session:
        await turn(session)
        await turn(session)
        await compact_session(session)
        await turn(session)
        await turn(session)
        assert_proven(session)
    assert (checked, len(provider.bodies)) == ([1, 3, 4], 5)


async def test_sampling_looks_at_the_first_request_and_then_at_each_of_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ScriptedProvider(*(says("ok") for _ in range(EVERY * 2)))
    host = ScriptedHost(provider)
    host.checks = "sampled"
    checked: list[int] = []
    real = LiveCheck.check

    async def noted(self: LiveCheck, *given: object) -> None:
        checked.append(len(provider.bodies) + 1)
        await real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveCheck, "check", noted)
    async with scripted_session(host) as session:
        for _ in range(EVERY * 2):
            await turn(session)
        assert_proven(session)
    assert checked == [1, EVERY, EVERY * 2]


@given(logs())
def test_the_events_that_the_check_passes_by_shape_no_request(log: Log) -> None:
    state = NO_REQUESTS
    for event in log.events:
        after = horizon_step(state, event)
        assert event.type not in SHAPELESS or after == state
        state = after
