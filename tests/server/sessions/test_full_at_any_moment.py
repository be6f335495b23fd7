"""A disk that is full for a while, from any stage of any commit on: nothing told is lost, nothing runs unrecorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from refold_protocol.errors import InputUnknownError, StorageFullError
from refold_protocol.ids import CallId
from refold_protocol.session.events import Event
from refold_protocol.session.messages import Chunk, text_content
from refold_protocol.session.request import Request
from refold_server.sessions.event_tail import Tail
from refold_server.sessions.session import Session
from refold_server.tools.tool_runner import ToolAnswer
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, NAME, assert_proven, echo, end_of, scripted_session, turn
from tests.support.stores import DiskFaults, Faults, StoreKind, until

pytestmark = pytest.mark.anyio

MOMENTS = 40
ROUNDS = 6
"""How often the story is told at most until the moment has come."""

TIMES = 3
"""How many attempts fail."""


class Moment:
    """A fail point: from the stage number `first` on, a few commits fail where `faults` says how."""

    def __init__(self, faults: Faults, first: int) -> None:
        self.faults = faults
        self.first = first
        self.stages = 0
        self.failed = 0

    def __call__(self, stage: str) -> None:
        if stage == "committed":  # that one is over
            return
        self.stages += 1
        if self.stages >= self.first and self.failed < TIMES:
            self.failed += 1
            self.faults.full = True
            try:
                self.faults("written")
            finally:
                self.faults.full = False


class Watched:
    """Whether all that has an effect outside the log is in it, durably, when it begins. `session` comes later."""

    session: Session

    def durable(self, kind: str, **data: Any) -> bool:
        """Tell whether there is a durable event of this type with these data."""
        handle = self.session.session_log.handle
        events = [event for event in handle.read(0, handle.durable) if event.type == kind]
        return any(all(getattr(event.data, name) == value for name, value in data.items()) for event in events)


class WatchedProvider(ScriptedProvider):
    """A provider that checks that what it is asked is on disk."""

    watched: Watched

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        work = self.watched.session.session_log.folds.work
        assert self.watched.durable("request/sent", turn=work.turn, step=work.step)
        async for chunk in super().stream(request, body):
            yield chunk


class WatchedHost(ScriptedHost):
    """A host that checks that the calls that it runs are on disk, and what allowed them."""

    watched: Watched

    async def run_tool(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        assert self.watched.durable("tool/call", call_id=call_id)
        assert name != "edit" or self.watched.durable("approval/decided", outcome="allowed")
        return await super().run_tool(call_id, name, arguments)


class Story:
    """One course of a session with all that clients do; `told` is what they were told, by seq, and that it is durable;
    `early` what they were told before it was."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.told: dict[int, bytes] = {}
        self.early: dict[int, bytes] = {}
        self.tail = Tail(session.session_log.handle, -1)
        self.retries: set[asyncio.Task[None]] = set()
        handle = session.session_log.handle
        handle.watch_durable(lambda _: self.collect())
        handle.watch_trouble(lambda trouble: None if trouble is None else self.try_again())
        session.instance.approvals.watch(lambda question: self.answer(question.id), lambda _: None)

    def collect(self) -> None:
        """Take in what a subscription would be told, as far as it is said to be durable."""
        while (batch := self.tail.take()) is not None:
            first = batch.last - len(batch.lines) + 1
            assert batch.durable <= self.session.session_log.handle.durable
            self.early |= {first + place: line for place, line in enumerate(batch.lines)}
            for seq in [seq for seq in self.early if seq <= batch.durable]:
                self.told[seq] = self.early.pop(seq)

    def try_again(self) -> None:
        """Commit once more, as the background does after a pause."""

        async def flush() -> None:
            with suppress(StorageFullError):
                await self.session.session_log.flush()

        task = asyncio.ensure_future(flush())
        self.retries.add(task)
        task.add_done_callback(self.retries.discard)

    def answer(self, approval: Any) -> None:
        """Allow what is asked for."""
        self.session.instance.approvals.answer(approval, "allowed", "once", CLIENT)

    def fact(self, event: Event) -> None:
        """Note an event that a reply named."""
        assert event.seq <= self.session.session_log.handle.durable
        self.told[event.seq] = event.line

    async def reply(self, asked: Callable[[], Awaitable[Any]]) -> Any:
        """Give what is answered, None for an error that a full disk explains."""
        try:
            return await asked()
        except (StorageFullError, InputUnknownError):
            return None

    async def run(self) -> None:
        """All of it."""
        session = self.session
        first = await self.reply(lambda: session.start(text_content("one"), CLIENT))
        second = await self.reply(lambda: session.start_or_wait(text_content("two"), CLIENT, "queue"))
        given = await self.reply(lambda: session.inject(text_content("by the way"), CLIENT))
        title = await self.reply(lambda: session.rename("A title", CLIENT))
        seqs = [first and first[2], second and second.seq, given and given.seq, title]
        for seq in seqs:
            if seq is not None:
                self.fact(next(session.session_log.handle.read(seq)))
        for end in (
            first and await self.reply(lambda: session.turns.wait(first[1])),
            second and await self.reply(lambda: session.turns.wait_input(second.input)),
        ):
            if end is not None:
                self.fact(end)
        while self.retries:
            await asyncio.wait(self.retries)


@pytest.mark.parametrize("first", range(1, MOMENTS + 1))
@pytest.mark.parametrize("where", ["memory", "lmdb"])
async def test_c_04_nothing_told_is_lost_and_nothing_runs_unrecorded_whenever_the_disk_is_full(
    tmp_path: Path, where: str, first: int
) -> None:
    """Must show 3."""
    kind = StoreKind(None if where == "memory" else tmp_path / "store")
    moment = Moment(kind.faults, first)
    kind.faults, faults = moment, kind.faults  # type: ignore[assignment]
    assert isinstance(faults, DiskFaults) == (where == "lmdb")
    store, watched = await kind.open(), Watched()
    wanted = calls(("a", "look", "{}"), ("b", "edit", "{}"))
    provider = WatchedProvider(*[wanted, says("done"), says("two")] * ROUNDS)
    host = WatchedHost(provider, {"look": echo, "edit": echo})
    host.asking, provider.watched, host.watched = {"edit"}, watched, watched
    async with scripted_session(host, store=store) as session:
        watched.session = session
        story = Story(session)
        for number in range(ROUNDS):  # how many commits a round takes depends on how fast the disk is
            if number < 2 or moment.failed == 0:
                await story.run()
        assert moment.failed > 0, "else this moment is none"
        moment.first = 10**9
        provider.scripts[:] = [says("again"), says("again")]
        await until(lambda: session.turns.running is None)
        assert end_of(await turn(session, "is there space again?")) == "completed"
        durable = await session.session_log.flush()
        story.collect()
        assert len(story.told) >= durable + 1
        assert session.session_log.handle.trouble is None
        assert_proven(session)
    found = await kind.open() if where == "memory" else store
    lines = (await found.open(NAME, "read")).lines(0)
    assert {seq: lines[seq] for seq in story.told} == story.told
    await found.close()
