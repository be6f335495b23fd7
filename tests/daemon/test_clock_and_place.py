"""B-05: no clock, date or directory of a process gets into a request; tools run in the session's folder, or say it is gone."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from refold_client import Client, spawn
from tests.support.chat_stream import DONE, call, calls, chunk, reply, text
from tests.support.daemons import Json, Place, kill, new_session, text_so_far
from tests.support.fake_provider import Answer, FakeProvider, answer

pytestmark = pytest.mark.anyio

REPO = Path(__file__).parents[2]

BEFORE_MIDNIGHT = datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC)
AFTER_MIDNIGHT = datetime(2026, 4, 1, 0, 0, 1, tzinfo=UTC)
A_YEAR_BEFORE = datetime(2025, 4, 1, tzinfo=UTC)
NEXT_YEAR = datetime(2027, 1, 15, 12, 0, 0, tzinfo=UTC)

ELSEWHERE = {"TZ": "Pacific/Auckland", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "tr"}


def looks(number: int) -> tuple[Answer, Answer]:
    """A reply that reads the file, and one that says something."""
    looked = calls(call(0, f"c{number}", "read_file", '{"path":"animals.txt"}')) + chunk({}, "tool_calls") + DONE
    return answer(looked), answer(reply(f"Answer {number}."))


class ClockedPlace:
    """A place whose daemons have a clock that the test sets, and may start anywhere."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.clock = place.root / "clock"
        self.elsewhere = place.root / "elsewhere"
        self.elsewhere.mkdir()
        (self.elsewhere / "animals.txt").write_text("another folder's file\n")
        (self.elsewhere / "AGENTS.md").write_text("Another folder's instructions.\n")
        (place.workspace / "AGENTS.md").write_text("Say little.\n")

    def set(self, now: datetime) -> None:
        """Set the clock."""
        self.clock.write_text(str(int(now.timestamp() * 1_000)))

    @asynccontextmanager
    async def daemon(self, cwd: Path, **env: str) -> AsyncGenerator[Client]:
        """Start a daemon in a folder and an environment."""
        command = (sys.executable, "-m", "tests.support.clock_daemon", str(self.clock))
        settings = self.place.daemon_env | {"PYTHONPATH": str(REPO), "PWD": str(cwd)} | env
        with self.place.errors.open("ab") as errors:
            async with spawn(command, env=settings, cwd=cwd, stderr=errors, options={"store": str(self.place.store)}) as client:
                yield client


def messages(body: bytes) -> list[Json]:
    """Give the messages of a body."""
    return json.loads(body)["messages"]


async def test_b05_midnight_and_a_restart_elsewhere_leave_the_prefix_as_it_was(place: Place) -> None:
    """Invariant: No clock, zone, locale or folder of a process gets into a request."""
    clocked = ClockedPlace(place)
    async with FakeProvider(*looks(1), *looks(2), *looks(3)) as provider:
        place.provider(provider.base_url)
        clocked.set(BEFORE_MIDNIGHT)
        async with clocked.daemon(place.workspace, TZ="UTC", LC_ALL="C.UTF-8") as client:
            session = await new_session(client, place)
            await client.prompt(session, "One?")
            clocked.set(AFTER_MIDNIGHT)
            await client.prompt(session, "Two?")
        clocked.set(NEXT_YEAR)
        async with clocked.daemon(clocked.elsewhere, **ELSEWHERE) as client:
            await client.open_session(session)
            await client.prompt(session, "Three?")
    bodies = [request.body for request in provider.requests]
    assert len(bodies) == 6
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}")), (before, after)
    times = [event["time"] for event in await place.recorded(session) if event["type"] == "request/sent"]
    assert times[::2] == [int(when.timestamp() * 1_000) for when in (BEFORE_MIDNIGHT, AFTER_MIDNIGHT, NEXT_YEAR)]
    results = [message["content"] for message in messages(bodies[-1]) if message["role"] == "tool"]
    assert len(results) == 3
    assert all("the zebra sleeps" in result for result in results)
    for word in (b"2026", b"2027", b"Auckland", str(place.root).encode(), b"nother folder"):
        assert word not in bodies[-1]
    assert (await place.verify(session))["equal"] == 6


async def test_time_in_the_log_never_goes_back_though_the_clock_does_in_a_turn_over_a_kill_and_in_a_fork(place: Place) -> None:
    clocked = ClockedPlace(place)
    async with FakeProvider(*looks(1), answer(text("Half"), end="hang"), *looks(2), *looks(3)) as provider:
        place.provider(provider.base_url)
        clocked.set(AFTER_MIDNIGHT)
        async with clocked.daemon(place.workspace) as client:
            session = await new_session(client, place)
            await client.prompt(session, "One?")
            clocked.set(BEFORE_MIDNIGHT)
            events = await client.subscribe(session, after="tail")
            await client.start_turn(session, "Two?")
            await text_so_far(events, "Half")
            await client.request("session/flush", {"session": session})
            await kill(client)
        clocked.set(A_YEAR_BEFORE)
        async with clocked.daemon(place.workspace) as client:
            await client.open_session(session)
            await client.prompt(session, "Three?")
            child = (await client.fork(session))["session"]
            await client.open_session(child)
            await client.prompt(child, "Four?")
    for one in (session, child):
        times = [event["time"] for event in await place.recorded(one)]
        assert set(times) == {int(AFTER_MIDNIGHT.timestamp() * 1_000)}
        await place.verify(one)


async def test_b05_a_folder_that_is_gone_is_told_and_no_other_takes_its_place(place: Place) -> None:
    clocked = ClockedPlace(place)
    async with FakeProvider(*looks(1), *looks(2)) as provider:
        place.provider(provider.base_url)
        clocked.set(BEFORE_MIDNIGHT)
        async with clocked.daemon(place.workspace) as client:
            session = await new_session(client, place)
            await client.prompt(session, "One?")
        place.workspace.rename(place.root / "moved")
        async with clocked.daemon(clocked.elsewhere, **ELSEWHERE) as client:
            opened = await client.open_session(session)
            assert opened["info"]["cwd"] == str(place.workspace)
            await client.prompt(session, "Two?")
    results = [event["data"] for event in await place.recorded(session) if event["type"] == "tool/result"]
    assert [result["isError"] for result in results] == [False, True]
    told = results[1]["content"][0]["text"]
    assert str(place.workspace) in told
    assert "nother folder" not in provider.requests[-1].body.decode()
    place.workspace = place.root / "moved"
    assert (await place.verify(session))["equal"] == 4
