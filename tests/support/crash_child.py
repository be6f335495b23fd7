"""A real process over a real store that gets stuck where it is told to, so that a test can kill it there.

`python -m tests.support.crash_child STORE CWD PLACE` prints `session ID`, runs a turn, and prints `stuck SEQ` with the last
durable seq when it got to PLACE: `stream` (in the middle of a reply) or `tool` (a call is recorded, its tool hangs).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio

from refold_protocol.ids import CallId
from refold_protocol.session.events import SessionSettings
from refold_protocol.session.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    Source,
    TextDelta,
    ToolCallDelta,
    text_content,
)
from refold_protocol.session.request import Request
from refold_server.config_file import load_config
from refold_server.services import Services, SessionServices, open_configured_store
from refold_server.sessions.session_registry import Sessions
from refold_server.tools.tool_runner import ToolAnswer
from refold_server.tools.workspace_path import Workspace


class StuckProvider:
    """Streams some text or a call, then waits for ever where it is told to."""

    def __init__(self, place: str, stuck: Callable[[], Awaitable[None]]) -> None:
        self._place = place
        self._stuck = stuck

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        yield BlockStart(0, "text")
        yield TextDelta(0, "Half a sent")
        if self._place == "stream":
            await self._stuck()
        yield BlockEnd(0)
        yield BlockStart(1, "tool-call", "c0", "list_files")
        yield ToolCallDelta(1, "{}")
        yield BlockEnd(1)
        yield FinishChunk("tool-calls")


class StuckHost(SessionServices):
    """The real host of the real configuration, but for the provider and the tools."""

    def __init__(self, shared: Services, cwd: str, place: str, stuck: Callable[[], Awaitable[None]]) -> None:
        super().__init__(shared, Workspace(Path(cwd)))
        self._provider = StuckProvider(place, stuck)
        self._stuck = stuck

    def provider(self, name: str) -> StuckProvider:
        return self._provider

    async def run_tool(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        await self._stuck()
        raise AssertionError("unreachable")


async def main(store: str, cwd: str, place: str) -> None:
    config = load_config(None, {}, store=store)
    shared = Services(config)
    kept = await open_configured_store(config.store)

    async def stuck() -> None:
        durable = await session.session_log.flush() if place == "stream" else session.session_log.handle.durable
        print(f"stuck {durable}", flush=True)
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(work)

        sessions = Sessions(kept, lambda folder: StuckHost(shared, folder, place, stuck), spawn)
        session = await sessions.create(cwd, SessionSettings(model=config.model))
        print(f"session {session.id}", flush=True)
        await session.start(text_content("Where is the word zebra?"), Source("cli"))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
