"""A compaction whose log cannot be written any more: its call is stopped, its failure recorded when there is space again."""

from __future__ import annotations

import anyio
import pytest

from refold_protocol.errors import LogError, StorageFullError
from refold_protocol.session.events import CompactEnd
from refold_protocol.session.messages import BlockStart, TextDelta
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, assert_proven, last, scripted_session, turn
from tests.support.memory_store import MemoryStore
from tests.support.stores import Faults

pytestmark = pytest.mark.anyio


async def test_a_summary_that_streams_is_cut_at_once_and_the_history_is_what_it_was() -> None:
    faults, pause = Faults(), Pause()
    store = MemoryStore(clock=lambda: 1_000, fail_point=faults)
    story = "It is a long story. " * 60
    provider = ScriptedProvider(says(story), [BlockStart(0, "text"), TextDelta(0, "A story."), pause], says("Again."))
    host = ScriptedHost(provider)
    host.window = 100_000
    async with scripted_session(host, store=store) as session:
        await turn(session)
        before = session.session_log.folds.request_state.surface.nodes[:]
        refused: list[LogError] = []

        async def compact() -> None:
            try:
                await compact_session(session)
            except LogError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact)
            await pause.reached.wait()
            faults.full = True
            with pytest.raises(StorageFullError):
                await session.rename("A title", CLIENT)
        assert [error.error_kind for error in refused] == ["log.full"]
        assert provider.closed == 2
        assert session.session_log.folds.request_state.surface.nodes[:] == before
        end = last(session, CompactEnd)
        assert isinstance(end, CompactEnd)
        assert end.error is not None
        assert end.error.kind == "log.full"
        faults.full = False
        await compact_session(session)
        assert_proven(session)
