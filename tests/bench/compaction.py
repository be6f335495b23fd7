"""CPU and memory of a compaction by the number of surface nodes, and of a step before and after it.

`python -m tests.bench.compaction [NODES]` puts turns of one step straight into a log in memory, has all of it summed up, and
runs a turn before and two after; at a quarter, a half and the whole of the nodes, with the exponents by which costs grow.
"""

from __future__ import annotations

import math
import sys
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.events import Draft, InstanceStart
from refold_protocol.session.messages import BlockEnd, BlockStart, FinishChunk, TextDelta, Usage
from refold_server.loop.instance import Instance
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import compact_session
from refold_storage.interface import NewSession
from tests.support.logs import HEADER, Log
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import turn
from tests.support.memory_store import MemoryStore

WORDS = "a few words of a turn " * 8


class Costs(Struct, frozen=True):
    """CPU seconds of a turn before, of the compaction, of the first turn after, in which others read the replace, and of the
    second; bytes that the compaction took at its peak."""

    before: float
    compaction: float
    first: float
    after: float
    peak: int


def written(nodes: int) -> Log:
    """Give a log whose surface has so many nodes."""
    log = Log()
    log.add(InstanceStart(1, "new"))
    for _ in range(nodes // 2):
        log.turn(WORDS)
        log.step(HEADER)
        log.stream(BlockStart(0, "text"), TextDelta(0, WORDS), BlockEnd(0), FinishChunk("stop"))
        log.reply(WORDS, usage=Usage(7, 3))
        log.end_step()
        log.end_turn()
    return log


async def measured(nodes: int, *, memory: bool) -> Costs:
    """Measure on a session of so many nodes."""
    store = MemoryStore(clock=lambda: 1_900_000_000_000)
    handle = await store.create(NewSession(SessionId("s1"), "/", 0))
    drafts = [Draft(one.data, one.surface_op, one.sources, one.ignorable) for one in written(nodes).events]
    for first in range(0, len(drafts), 1_000):
        handle.append(drafts[first : first + 1_000])
        await handle.flush()
    host = ScriptedHost(ScriptedProvider(*[says("A few words.")] * 5))
    host.window, host.checks = 100_000_000, "sampled"
    before = compaction = first = after = 0.0
    peak = 0
    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(work)

        session_log = SessionLog(handle)
        session = Session(session_log, Instance(session_log, host, SessionHooks(), "Be brief."), spawn)
        await turn(session)  # a header, an instance, and what is folded of the log
        before = await _cpu(lambda: turn(session))
        if memory:
            tracemalloc.start()
        compaction = await _cpu(lambda: compact_session(session))
        peak = tracemalloc.get_traced_memory()[1] if memory else 0
        tracemalloc.stop()
        first = await _cpu(lambda: turn(session))
        after = await _cpu(lambda: turn(session))
        await session.close()
    return Costs(before, compaction, first, after, peak)


async def _cpu(work: Callable[[], Coroutine[Any, Any, object]]) -> float:
    began = time.process_time()
    await work()
    return time.process_time() - began


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    sizes = [most // 4, most // 2, most]
    rows = [anyio.run(_row, size) for size in sizes]
    for size, row in zip(sizes, rows, strict=True):
        print(
            f"{size:>6} nodes: compaction {row.compaction * 1e3:6.0f} ms CPU, {row.peak / 2**20:5.1f} MiB at its peak; "
            f"a turn: before {row.before * 1e3:4.1f} ms, next {row.first * 1e3:4.1f} ms, then {row.after * 1e3:4.1f} ms"
        )
    grown = math.log(rows[-1].compaction / rows[0].compaction) / math.log(sizes[-1] / sizes[0])
    print(f"a compaction grows with the nodes to the power of {grown:.2f}")


async def _row(size: int) -> Costs:
    timed = await measured(size, memory=False)
    return Costs(timed.before, timed.compaction, timed.first, timed.after, (await measured(size, memory=True)).peak)


if __name__ == "__main__":
    main()
