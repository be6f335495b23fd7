"""A turn that is interrupted while a plugin works, at any seam: it ends aborted, whatever the plugin makes of that."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from refold_protocol.session.events import AbortCause, InputSettled
from refold_protocol.session.messages import BlockEnd, BlockStart, FinishChunk, TextDelta, text_content
from refold_server.plugins import (
    ASSEMBLE,
    EXECUTE,
    HOOKS,
    POST_EXECUTE,
    PRE_EXECUTE,
    PRE_STEP,
    PROMPT_SUBMIT,
    REQUEST,
    SESSION_PREFIX,
    STREAM,
    SUMMARISE,
    TURN_STOP,
    Accept,
    Assembled,
    Block,
    Deny,
    GoOn,
    Stop,
    Summary,
    context,
)
from refold_server.plugins.hook_table import Hook
from refold_server.tools.tool_runner import ToolAnswer
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, fill, scripted_session, turn
from tests.support.plugging import failures, of_type, plugin, said, user

pytestmark = pytest.mark.anyio

DEGRADED: dict[Hook[Any], Any] = {
    PROMPT_SUBMIT: Block("degraded"),
    ASSEMBLE: Assembled("degraded", ()),
    SESSION_PREFIX: [user("degraded")],
    PRE_STEP: [context("degraded")],
    REQUEST: None,
    STREAM: None,
    SUMMARISE: Summary("degraded", "a plugin"),
    PRE_EXECUTE: Deny("degraded"),
    EXECUTE: ToolAnswer(text_content("degraded"), False),
    POST_EXECUTE: Accept(ToolAnswer(text_content("degraded"), False), (context("degraded"),)),
    TURN_STOP: GoOn((context("degraded"),)),
}
"""What a handler gives once it was cancelled: valid, and not to be taken."""

WAYS = ("is cancelled", "gives something", "raises something", "stops")


class Waiting:
    """Handlers that wait to be interrupted, once, and then go on in one of `WAYS`."""

    def __init__(self, seam: Hook[Any], way: str) -> None:
        self.reached = anyio.Event()
        self._seam = seam
        self._way = way

    async def _wait(self) -> bool:
        """Tell whether this call was the one that was interrupted."""
        if self.reached.is_set():
            return False
        self.reached.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as error:
            if self._way == "is cancelled":
                raise
            if self._way == "raises something":
                raise ValueError("I was interrupted") from error
        return True

    async def decide(self, payload: object) -> object:
        interrupted = await self._wait()
        if interrupted and self._way == "stops" and self._seam is TURN_STOP:
            return Stop("degraded")
        return DEGRADED[self._seam] if interrupted else None

    async def around(self, payload: object, rest: Any) -> object:
        given = await rest()
        return DEGRADED[self._seam] or given if await self._wait() else given

    async def stream(self, outgoing: Any, rest: Any) -> Any:
        if not await self._wait():
            async for chunk in rest(outgoing):
                yield chunk
            return
        for chunk in (BlockStart(0, "text"), TextDelta(0, "degraded"), BlockEnd(0), FinishChunk("stop")):
            yield chunk

    @property
    def handler(self) -> Any:
        """The handler for the seam."""
        if self._seam is STREAM:
            return self.stream
        return self.around if self._seam.mode == "waterfall" else self.decide


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seam", DEGRADED, ids=lambda seam: seam.name)
async def test_it_ends_aborted_and_nothing_of_the_plugin_is_left(seam: Hook[Any], way: str) -> None:
    waiting = Waiting(seam, way)
    provider = ScriptedProvider(calls(("a", "look", "{}")), says("ok"))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host, plugins=plugin((seam, waiting.handler))) as session:
        if seam is SUMMARISE:
            await fill(session, host)
        _, number, _ = await session.start(text_content("go"), CLIENT)
        with anyio.fail_after(20):
            await waiting.reached.wait()
            reason = await session.turns.interrupt(number, AbortCause("user", "enough"))
        assert reason is not None
        assert (reason.kind, reason.cause) == ("aborted", AbortCause("user", "enough"))
        assert failures(session) == []
        assert said(session) == []
        lines = b"".join(session.session_log.handle.lines(0))
        assert b"degraded" not in lines
        assert session.session_log.folds.pending == ()
        assert len(of_type(session, InputSettled)) == (1 if seam is PROMPT_SUBMIT else 0)
        assert_proven(session)
        again = [says("Two stories.")] if seam is SUMMARISE else []
        provider.scripts[:] = [*again, calls(("b", "look", "{}")), says("ok")]
        assert end_of(await turn(session, "again")) == "completed"
        assert failures(session) == []
        assert_proven(session)


def test_no_seam_that_waits_is_left_out() -> None:
    assert set(DEGRADED) == {seam for seam in HOOKS if seam.limit_s is not None}
