"""A handler that cancels the task it runs in, as broken libraries do: its turn ends, and nothing besides."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from refold_server.plugins import OBSERVE, PRE_STEP, PROMPT_SUBMIT, TURN_STOP
from refold_server.plugins.hook_table import Hook
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import assert_proven, end_of, scripted_session, turn
from tests.support.plugging import plugin

pytestmark = pytest.mark.anyio


class Cancels:
    """Handlers that cancel the task they run in, once."""

    def __init__(self, *, waits: bool) -> None:
        self.armed = True
        self._waits = waits

    def __call__(self, seen: Any) -> None:
        """Look on."""
        task = asyncio.current_task()
        if self.armed and task is not None and seen.event.type == "step/start":
            self.armed = False
            task.cancel()

    async def decide(self, given: Any) -> None:
        """Decide nothing."""
        task = asyncio.current_task()
        if self.armed and task is not None:
            self.armed = False
            task.cancel()
            if self._waits:
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("seam", [PROMPT_SUBMIT, PRE_STEP, TURN_STOP, OBSERVE], ids=lambda seam: seam.name)
async def test_its_turn_ends_and_the_next_one_runs(seam: Hook[Any], waits: bool) -> None:
    cancels = Cancels(waits=waits)
    plugins = plugin((seam, cancels if seam is OBSERVE else cancels.decide))
    provider = ScriptedProvider(says("one"), says("two"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        with anyio.fail_after(20):
            assert end_of(await turn(session)) in ("aborted", "completed")  # it is felt at the next wait, wherever that is
            assert end_of(await turn(session)) == "completed"
        assert not cancels.armed
        assert_proven(session)
