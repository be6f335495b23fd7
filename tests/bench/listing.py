"""The list of sessions against their number: pages, rare texts, and the command, on a store made for it.

`python -m tests.bench.listing [SESSIONS]` (default 10000) makes a store of that many sessions of one turn each (one in
a hundred with 2,000 chunks), then prints medians of milliseconds in one process, and what a list adds to its memory.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from refold_protocol.ids import InputId
from refold_protocol.session.codec import chain, seal
from refold_protocol.session.events import (
    AssistantChunk,
    Draft,
    EncoderId,
    InputAccepted,
    InstanceStart,
    RequestHeader,
    RequestSent,
    StepStart,
    Trigger,
    TurnStart,
)
from refold_protocol.session.messages import Source, TextDelta, text_content
from refold_protocol.session.session_totals import EMPTY_SUMMARY
from refold_server.clock import epoch_ms, new_session_id, uuid7
from refold_server.sessions.session_list import SessionListParams, page_of_sessions, read_cursor
from refold_server.sessions.session_registry import Sessions
from refold_storage.interface import SessionRecord, Store
from refold_storage.lmdb_store import open_store
from tests.support.logs import HEADER

ROUNDS = 15


def lines(number: int) -> list[bytes]:
    """A session's events."""
    asked = text_content(f"Where is animal number {number}, and why?")
    drafts = [
        Draft(InstanceStart(1, "new")),
        Draft(InputAccepted(InputId(f"i{number}"), "prompt", asked, Source("cli"))),
        Draft(TurnStart(1, Trigger("message", Source("cli"), InputId(f"i{number}")))),
        Draft(StepStart(1, 1)),
        Draft(RequestHeader(HEADER, "initial")),
        Draft(RequestSent("step", 1, EncoderId("no-such-dialect", 1), 0, "", "", 1, 1)),
        *[Draft(AssistantChunk(1, 1, 1, TextDelta(0, f" word {one}"))) for one in range(20 if number % 100 else 2_000)],
        Draft(InputAccepted(InputId(f"j{number}"), "prompt", text_content(f"second question {number}"), Source("cli"))),
    ]
    return [seal(draft, seq, 1_700_000_000_000 + number).line for seq, draft in enumerate(drafts)]


async def fill(store: Store, count: int) -> None:
    """Put that many sessions into a store."""
    for number in range(count):
        made = lines(number)
        record = SessionRecord(
            new_session_id(), f"/home/me/{number % 10}", 1_700_000_000_000, len(made) - 1, chain(made).hex(), (), EMPTY_SUMMARY
        )
        await store.import_session(record, iter(made))


async def timed(name: str, work: Callable[[], Awaitable[Any]], rounds: int = ROUNDS) -> None:
    """Print how long something takes."""
    taken: list[float] = []
    said: Any = None
    for _ in range(rounds):
        began = time.perf_counter()
        said = await work()
        taken.append((time.perf_counter() - began) * 1000)
    print(f"{name:>44}: {statistics.median(taken):8.2f} ms (first {taken[0]:.2f}, least {min(taken):.2f})  {said}")


async def everything(sessions: Sessions, **filters: Any) -> str:
    """Go through all pages."""
    pages, rows, cursor = 0, 0, None
    while True:
        page = await page_of_sessions(sessions, SessionListParams(200, **filters), cursor)
        pages, rows = pages + 1, rows + len(page.sessions)
        if page.next is None:
            return f"{rows} rows on {pages} pages"
        cursor = read_cursor(page.next)


def no_host(cwd: str) -> Any:
    """A list needs none."""
    raise AssertionError(cwd)


def no_work(work: Any) -> None:
    """A list starts nothing."""
    raise AssertionError(work)


async def measure(path: Path, count: int) -> None:
    store = await open_store(path, new_uuid=uuid7, clock=epoch_ms)
    sessions = Sessions(store, no_host, no_work)

    async def first(limit: int) -> str:
        page = await page_of_sessions(sessions, SessionListParams(limit), None)
        return f"{len(page.sessions)} rows"

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await timed("first page of 50", lambda: first(50))
    await timed("first page of 200", lambda: first(200))
    await timed("all pages of 200", lambda: everything(sessions), 3)
    print(f"{'memory that this added':>44}: {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.1f} MiB")
    await timed("all, one text in a title", lambda: everything(sessions, text=f"number {count // 2},"), 3)
    sessions = Sessions(store, no_host, no_work)
    await timed("all, one text in a prompt, nothing kept", lambda: everything(sessions, text=f"second question {count - 1}"), 1)
    await timed("the same again, as one types", lambda: everything(sessions, text=f"second question {count // 2}"), 3)
    print(f"{'memory with prompts':>44}: {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.1f} MiB")
    await store.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"

        async def prepare() -> None:
            store = await open_store(path, new_uuid=uuid7, clock=epoch_ms)
            began = time.perf_counter()
            await fill(store, count)
            print(f"{count} sessions made in {time.perf_counter() - began:.1f} s")
            await store.close()

        asyncio.run(prepare())
        asyncio.run(measure(path, count))
        command = [sys.executable, "-m", "refold_server", "sessions", "--all", "--store", str(path)]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(f"{'`refold sessions --all`, a process':>44}: {(time.perf_counter() - began) * 1000:8.2f} ms")


if __name__ == "__main__":
    main()
