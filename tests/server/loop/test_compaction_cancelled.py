"""A compaction that is cancelled at any of its awaits: it landed or changed nothing, and nothing stays open or locked."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from refold_protocol.session.events import AbortCause, CompactEnd, CompactSummary
from refold_protocol.session.messages import text_content
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, assert_proven, end_of, fill, scripted_session, turn
from tests.support.plugging import of_type

pytestmark = pytest.mark.anyio

STORY = "It is a long story. " * 60
MOST = 60
"""More switches of tasks than a compaction makes."""


def assert_whole(session: Session, before: list[int]) -> bool:
    """Nothing is open, and the surface is what it was or begins with a summary; tell whether it does."""
    landed = bool(of_type(session, CompactSummary))
    nodes = [node.seq for node in session.session_log.folds.request_state.surface.nodes]
    assert session.session_log.folds.work.compaction is None
    assert not session.turns.held
    assert landed or nodes[: len(before)] == before
    assert len(of_type(session, CompactEnd)) <= 1
    assert_proven(session)
    return landed


async def test_by_request_at_each_await() -> None:
    outcomes: list[bool] = []
    for switches in range(MOST):
        around = ScriptedHost(ScriptedProvider(says(STORY), says("A story.")))
        around.window = 100_000
        async with scripted_session(around) as session:
            await turn(session)
            before = [node.seq for node in session.session_log.folds.request_state.surface.nodes]
            done: list[bool] = []

            async def compact(session: Session = session, done: list[bool] = done) -> None:
                await compact_session(session)
                done.append(True)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compact)
                for _ in range(switches):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            landed = assert_whole(session, before)
            outcomes.append(landed)
            assert landed or not done
            assert session.status().status == "idle"
            around.scripted.scripts[:] = [says("fine")]
            assert end_of(await turn(session)) == "completed"
            assert_proven(session)
        if done:
            break
    assert {True, False} == set(outcomes), "early ones change nothing, and late ones come too late"


async def test_inside_a_turn_at_each_await() -> None:
    outcomes: list[bool] = []
    for switches in range(MOST):
        around = ScriptedHost(ScriptedProvider(says("fine")))
        async with scripted_session(around) as session:
            await fill(session, around)
            before = [node.seq for node in session.session_log.folds.request_state.surface.nodes]
            _, number, _ = await session.start(text_content("three"), CLIENT)
            for _ in range(switches):
                await anyio.lowlevel.checkpoint()
            reason = await session.interrupt(number, AbortCause("user"))
            assert reason is not None
            outcomes.append(assert_whole(session, before))
            around.scripted.scripts[:] = [says("A story."), says("fine"), says("fine")]
            assert end_of(await turn(session, "four")) == "completed"
            assert_proven(session)
        if reason.kind == "completed":
            break
    assert {True, False} == set(outcomes)
