"""How soon a follower in another process is told of a commit, and what following costs.

`python -m tests.bench.followers [--json] [--rounds N]` writes a session in this process and follows it through a daemon.
Times are from the return of the commit to the reading of the notification: the first after QUIET seconds of silence, and
those that come one after the other while there is news. The floor is a notification of the daemon's own session from its
acceptance on. The cost is CPU of the follower in silence and with 20 commits a second, and what a commit waits for when
nobody flushes, with and without a follower.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import random

from refold_client import Client
from refold_protocol.session.events import Draft, SessionTitle
from refold_protocol.session.messages import Source
from refold_server.clock import epoch_ms, new_session_id, uuid7
from refold_storage.interface import Handle, NewSession
from refold_storage.lmdb_store import open_store
from tests.bench.startup import cpu_ms
from tests.support.daemons import Place
from tests.support.notices import Notices, Wire

QUIET = 6.0
"""Seconds without a commit, after which followers look seldom."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Place(Path(folder)), options.rounds))
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:>58}: {value:8.2f}")


async def measure(place: Place, rounds: int) -> dict[str, float]:
    """Run all of it; milliseconds, but for what says otherwise."""
    store = await open_store(place.store, new_uuid=uuid7)
    handle = await store.create(NewSession(new_session_id(), str(place.workspace), epoch_ms()))
    await committed(handle)
    alone = [await unfollowed(handle) for _ in range(10)]
    async with place.daemon() as daemon:
        wire = Wire(daemon)
        notices = await wire.subscribe(handle.id, -1)
        first: list[float] = []
        for _ in range(rounds):
            await asyncio.sleep(QUIET + random() / 2)
            first.append(await told(handle, notices))
        lively = [await told(handle, notices) for _ in range(rounds * 20)]
        await asyncio.sleep(1.1)  # the owner asks once a second whether somebody follows
        await unfollowed(handle)
        followed = [await unfollowed(handle) for _ in range(10)]
        busy = await cpu_of(daemon, lambda: committed(handle), 20)
        own = await own_floor(daemon, wire, place)
        await asyncio.sleep(QUIET)
        silent = await cpu_of(daemon, None, 0)
    await store.close()
    return {
        "first news after silence, median": statistics.median(first),
        "first news after silence, most": max(first),
        "news while there is some, median": statistics.median(lively),
        "news while there is some, most": max(lively),
        "floor: the daemon's own session, median": own,
        "a commit that nobody asked for, without a follower": statistics.median(alone),
        "a commit that nobody asked for, with one": statistics.median(followed),
        "CPU of a silent follower, ms a second": silent,
        "CPU of a follower at 20 commits a second, ms a second": busy,
    }


async def committed(handle: Handle) -> int:
    """Write an event; give its seq once it is on disk."""
    handle.append([Draft(SessionTitle("A title", Source("cli")))])
    return await handle.flush()


async def told(handle: Handle, notices: Notices) -> float:
    """Give how long it takes from a commit until its event was told."""
    seq = await committed(handle)
    began = time.perf_counter()
    await notices.until(lambda seen: seen.last >= seq)
    return (time.perf_counter() - began) * 1000


async def unfollowed(handle: Handle) -> float:
    """Give how long an event waits for a commit when nobody flushes."""
    reached = asyncio.Event()
    stop = handle.watch_durable(lambda _: reached.set())
    began = time.perf_counter()
    handle.append([Draft(SessionTitle("A title", Source("cli")))])
    await reached.wait()
    stop()
    return (time.perf_counter() - began) * 1000


async def own_floor(daemon: Client, wire: Wire, place: Place) -> float:
    """Give how long the same takes in a session that the daemon writes itself, the request and its commit included."""
    session = (await daemon.open_session(cwd=place.workspace))["session"]
    notices = await wire.subscribe(session, -1)
    taken: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        seq = await daemon.rename(session, "A title")
        await notices.until(lambda seen, seq=seq: seen.last >= seq)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


async def cpu_of(daemon: Client, work: Callable[[], object] | None, times: int) -> float:
    """Give the CPU milliseconds a second of the daemon while `work` is done that often a second."""
    before, began = cpu_ms(daemon.pid), time.perf_counter()
    while (passed := time.perf_counter() - began) < 4:
        if work is not None:
            outcome = work()
            if asyncio.iscoroutine(outcome):
                await outcome
        await asyncio.sleep(1 / times if times else 4 - passed)
    return (cpu_ms(daemon.pid) - before) / passed


if __name__ == "__main__":
    main()
