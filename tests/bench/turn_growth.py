"""CPU of a turn by its number, without HTTP: what a turn costs must not grow with what is old.

`python -m tests.bench.turn_growth [TURNS]` runs short turns of one session over LMDB and prints medians of CPU microseconds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from refold_protocol.ids import SessionId
from refold_protocol.session.messages import Source, text_content
from refold_server.clock import epoch_ms, uuid7
from refold_server.loop.instance import Instance
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.session import Session
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import open_store
from tests.bench.chunk_cost import BytesProvider, stream_bytes
from tests.support.loop_host import ScriptedHost

MARKS = (25, 100, 500, 1_000, 5_000)


async def measure(folder: str, turns: int) -> list[float]:
    """CPU seconds of each turn."""
    store = await open_store(folder, new_uuid=uuid7, clock=epoch_ms)
    provider = BytesProvider([b"".join(stream_bytes(5))])
    taken: list[float] = []
    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(work)

        session_log = SessionLog(await store.create(NewSession(SessionId(uuid7()), "/", epoch_ms())))
        host = ScriptedHost(provider)
        host.checks = "sampled"  # as outside of tests
        session = Session(session_log, Instance(session_log, host, SessionHooks(), "Be brief."), spawn)
        for _ in range(turns):
            began = time.process_time()
            _, turn, _ = await session.start(text_content("short"), Source("cli"))
            await session.turns.wait(turn)
            taken.append(time.process_time() - began)
        await session.close()
    await store.close()
    return taken


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory() as folder:
        taken = anyio.run(measure, folder, turns)
    for mark in (mark for mark in MARKS if mark <= turns):
        print(f"turn {mark:>5}: {statistics.median(taken[mark - 20 : mark]) * 1e6:7.0f} CPU µs")


if __name__ == "__main__":
    main()
