"""Random requests that overlap, from two daemons on one store: each is answered or refused for a reason that a client can
understand, no input runs twice, subscriptions tell exactly what is in the log and nothing after their end, a fork begins with
its parent's events, and every request can be proven.

`REFOLD_SEEDS=1000 python -m pytest -n 3 tests/daemon/test_random_requests.py` draws a thousand courses.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from refold_client import Client, RpcError
from tests.support.daemons import Place, new_session, types
from tests.support.notices import Notices, Wire

pytestmark = pytest.mark.anyio

REQUESTS = 120
IN_FLIGHT = 20
SEEDS = range(1, 1 + int(os.environ.get("REFOLD_SEEDS", "2")))
MOST_SESSIONS = 6

REFUSALS = {"session.busy", "session.owned", "session.readOnly", "session.unknown", "input.unknown", "turn.mismatch"}
"""What a request may be answered with when another one was quicker."""

CONSUMED = ("user/message", "steering/message", "context/message", "input/settled")


class Crowd:
    """Clients of two daemons that act on the same sessions."""

    def __init__(self, place: Place, draw: random.Random, clients: tuple[Client, ...], sessions: list[str]) -> None:
        self.place = place
        self.draw = draw
        self.wires = {client: Wire(client) for client in clients}
        self.sessions = sessions
        self.subscriptions: list[tuple[Client, str, Notices]] = []
        self.answers: Counter[str] = Counter()

    async def act(self) -> None:
        """Send one random request."""
        client, session, action = self.draw.choice(list(self.wires)), self.draw.choice(self.sessions), self.draw.choice(ACTIONS)
        try:
            await action(self, client, session)
            self.answers["done"] += 1
        except RpcError as error:
            if error.kind not in REFUSALS:
                raise AssertionError(action.__name__) from error
            self.answers[error.kind] += 1

    async def finish(self) -> None:
        """Close every session wherever it is open, and let what was told catch up with what is on disk."""
        for client in self.wires:
            for session in self.sessions:
                try:
                    await client.close_session(session, cancel=True)
                except RpcError as error:
                    if error.kind not in ("session.readOnly", "session.unknown"):
                        raise
        assert [notice for wire in self.wires.values() for notice in wire.late] == []
        for _, session, notices in self.subscriptions:
            events = await self.place.recorded(session)
            await notices.until(lambda told, tail=events[-1]["seq"]: told.durable >= tail)
            told = {event["seq"] for event in notices.events}
            missing = [event for event in events if event["seq"] > notices.first and event["seq"] not in told]
            assert notices.events == [events[seq] for seq in sorted(told)]
            assert {event["type"] for event in missing} <= (set() if notices.whole else {"assistant/chunk"})


async def start(crowd: Crowd, client: Client, session: str) -> None:
    await client.start_turn(session, "Go on.", if_running=crowd.draw.choice(("error", "queue", "steer")))


async def interrupt(crowd: Crowd, client: Client, session: str) -> None:
    turn = (await client.read(session, "status"))["status"].get("turn", 1)
    await client.interrupt(session, turn, withdraw_queued=crowd.draw.random() < 0.3)


async def wait(crowd: Crowd, client: Client, session: str) -> None:
    await client.wait_turn(session, (await client.read(session, "status"))["status"].get("turn", 1))


async def begin(crowd: Crowd, client: Client, session: str) -> None:
    await client.open_session(session)


async def close(crowd: Crowd, client: Client, session: str) -> None:
    await client.close_session(session, cancel=crowd.draw.random() < 0.5)


async def inject(crowd: Crowd, client: Client, session: str) -> None:
    await client.inject(session, "A note.")


async def rename(crowd: Crowd, client: Client, session: str) -> None:
    await client.rename(session, "A title")


async def subscribe(crowd: Crowd, client: Client, session: str) -> None:
    after, chunks = crowd.draw.choice((-1, "tail")), crowd.draw.choice(("all", "live", "none"))
    crowd.subscriptions.append((client, session, await crowd.wires[client].subscribe(session, after, chunks=chunks)))


async def unsubscribe(crowd: Crowd, client: Client, session: str) -> None:
    if crowd.subscriptions:
        whose, _, notices = crowd.subscriptions.pop(crowd.draw.randrange(len(crowd.subscriptions)))
        await crowd.wires[whose].unsubscribe(notices)


async def fork(crowd: Crowd, client: Client, session: str) -> None:
    if len(crowd.sessions) < MOST_SESSIONS:
        made = await client.fork(session)
        inherited = (await client.read(made["session"], "events", at=made["tail"]))["events"]
        assert inherited == (await client.read(session, "events", at=made["tail"]))["events"]
        crowd.sessions.append(made["session"])


async def archive(crowd: Crowd, client: Client, session: str) -> None:
    await client.archive(session, archived=crowd.draw.random() < 0.5)


async def configure(crowd: Crowd, client: Client, session: str) -> None:
    await client.configure(session, permissions={"mode": crowd.draw.choice(("ask", "allow", "deny"))})


async def read(crowd: Crowd, client: Client, session: str) -> None:
    await client.read(session, crowd.draw.choice(("events", "surface", "transcript", "header", "status")))


async def verify(crowd: Crowd, client: Client, session: str) -> None:
    report = await client.request("log/verify", {"session": session})
    assert report["requests"] == report["equal"]


async def start_waiting(crowd: Crowd, client: Client, session: str) -> None:
    for waiting in (await client.open_session(session))["pendingInputs"][:1]:
        await client.start_pending(session, waiting["input"])


async def withdraw(crowd: Crowd, client: Client, session: str) -> None:
    for waiting in (await client.open_session(session))["pendingInputs"][:1]:
        await client.withdraw(session, waiting["input"])


RARE = (
    *(inject, subscribe, wait, read, verify, rename, start_waiting, withdraw),
    *(unsubscribe, fork, archive, configure),
)
ACTIONS: Sequence[Callable[[Crowd, Client, str], Coroutine[Any, Any, None]]] = (
    *(start,) * 6,
    *(interrupt, begin, close) * 2,
    *RARE,
)
"""What is sent, by how often it is drawn."""


@pytest.mark.parametrize("seed", SEEDS)
async def test_requests_that_overlap_at_random_leave_whole_logs(place: Place, seed: int) -> None:
    place.script(
        *[
            {"text": "I look. " * 3, "calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}}], "delayMs": 1},
            {"text": "And say what I saw. " * 2, "delayMs": 1},
            {"text": "Good. " * 4, "delayMs": 1},
        ]
        * REQUESTS
    )
    async with place.daemon() as one, place.daemon() as other:
        sessions = [await new_session(one, place) for _ in range(2)]
        for session in sessions:
            await one.prompt(session, "Begin.")
        crowd = Crowd(place, random.Random(seed), (one, other), sessions)
        running: set[asyncio.Task[None]] = set()
        for _ in range(REQUESTS):
            running.add(asyncio.create_task(crowd.act()))
            if len(running) > IN_FLIGHT:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.gather(*done)
        await asyncio.gather(*running)
        await crowd.finish()
        for session in sessions:  # what was cut in a fork is closed when it is opened
            await one.open_session(session)
            await one.close_session(session)
        assert crowd.answers["done"] > REQUESTS / 3
    for session in sessions:
        events = await place.recorded(session)
        assert types(events).count("turn/start") == types(events).count("turn/end")
        used = Counter(event["data"].get("input") for event in events if event["type"] in CONSUMED)
        assert {count for given, count in used.items() if given is not None} <= {1}
        report = await place.verify(session)
        assert report["requests"] == report["equal"] == types(events).count("request/sent")
    assert place.errors.read_bytes() == b""
