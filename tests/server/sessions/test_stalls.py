"""A session whose log cannot be written: nothing with an effect begins, nothing told is lost, and it goes on when it can.

Invariant: While a log cannot be written no request leaves and no tool starts; nothing told is lost, and it goes on when there
is space.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from refold_protocol.errors import LogError, LogUnwritableError, StorageFullError
from refold_protocol.session.events import (
    AssistantMessage,
    ContextMessage,
    Draft,
    InputSettled,
    PermissionSettings,
    SessionTitle,
    TurnEnd,
)
from refold_protocol.session.messages import BlockStart, TextDelta, text_content, text_of
from refold_server.sessions.session import Session
from refold_server.sessions.session_settings import PERMISSIONS_NOW, SettingsPatch
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, ToolBody, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore
from tests.support.stores import Faults

pytestmark = pytest.mark.anyio


class Disk:
    """A store whose disk is full or broken when a test says so."""

    def __init__(self, backlog_bytes: int = 1 << 26) -> None:
        self.faults = Faults()
        self.store = MemoryStore(clock=lambda: 1_000, backlog_bytes=backlog_bytes, fail_point=self.faults)

    @asynccontextmanager
    async def session(self, host: ScriptedHost) -> AsyncGenerator[Session]:
        """A session on it; there is space again when it is closed."""
        try:
            async with scripted_session(host, store=self.store) as session:
                yield session
                self.faults.full = False
        except* LogUnwritableError:  # a broken disk is told to whoever closes the session, too
            assert self.faults.broken

    async def fill(self, session: Session, kind: type[LogError] = StorageFullError) -> None:
        """Let the next commits fail; one is tried at once, as the background does."""
        self.faults.full = kind is StorageFullError
        self.faults.broken = not self.faults.full
        if session.session_log.handle.tail > session.session_log.handle.durable:
            with pytest.raises(kind):
                await session.session_log.flush()


def settled(session: Session) -> list[tuple[str, str | None]]:
    """How inputs were settled."""
    return [
        (event.data.how, event.data.reason)
        for event in session.session_log.handle.read()
        if isinstance(event.data, InputSettled)
    ]


async def test_a_reply_that_streams_is_cut_at_once_though_the_provider_says_nothing_more() -> None:
    disk, pause = Disk(), Pause()
    provider = ScriptedProvider([BlockStart(0, "text"), TextDelta(0, "kept"), pause], says("again"))
    async with disk.session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        await disk.fill(session)
        with pytest.raises(StorageFullError):
            await session.turns.wait(number)
        assert (provider.closed, session.status().status) == (1, "broken")
        reply, end = last(session, AssistantMessage), last(session, TurnEnd)
        assert isinstance(reply, AssistantMessage)
        assert isinstance(end, TurnEnd)
        assert text_of(reply.content) == "kept"
        assert end.reason.error is not None
        assert end.reason.error.kind == "log.full"
        disk.faults.full = False
        assert end_of(await session.turns.wait(number)) == "error"
        assert session.session_log.handle.durable == session.session_log.handle.tail, (
            "the pending events landed, then the turn's end"
        )
        assert end_of(await turn(session, "there is space again")) == "completed"
        assert_proven(session)


async def test_c_04_no_request_and_no_tool_begins_while_the_disk_is_full() -> None:
    """C-04."""
    for when in ("before the request", "before the tool"):
        disk, pause = Disk(), Pause()
        provider = ScriptedProvider([pause, *calls(("a", "look", "{}"))], says("ok"))
        tools: dict[str, ToolBody] = {"look": echo}
        host = ScriptedHost(provider, tools)
        async with disk.session(host) as session:
            if when == "before the request":
                disk.faults.full = True
                with pytest.raises(StorageFullError):
                    await session.start(text_content("go"), CLIENT)
                assert provider.requests == []
            else:
                _, number, _ = await session.start(text_content("go"), CLIENT)
                await pause.reached.wait()
                disk.faults.full = True  # found out when the call is to be recorded
                pause.go_on.set()
                with pytest.raises(StorageFullError):
                    await session.turns.wait(number)
                assert len(provider.requests) == 1
            assert host.ran == []
            disk.faults.full = False
            provider.scripts[:] = [says("ok")]
            assert end_of(await turn(session)) == "completed"
            assert_proven(session)


async def test_a_tool_does_not_start_when_a_commit_failed_after_its_call_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    tools: dict[str, ToolBody] = {"look": echo}
    host = ScriptedHost(ScriptedProvider(calls(("a", "look", "{}")), says("ok")), tools)
    async with disk.session(host) as session:

        async def propose(*given: object) -> None:
            del given
            assert session.session_log.handle.durable == session.session_log.handle.tail
            disk.faults.full = True
            with pytest.raises(StorageFullError):
                await session.rename("another thing to record", CLIENT)

        monkeypatch.setattr(host, "propose", propose)
        with pytest.raises(StorageFullError):
            await turn(session)
        assert host.ran == []


@pytest.mark.parametrize("runs", [False, True])
async def test_settings_that_could_not_be_kept_do_not_hold_when_there_is_space_again(runs: bool) -> None:
    """Invariant: Settings that were answered with an error never hold later.

    Who was told that a permission failed must not meet it later.
    """
    disk, pause = Disk(), Pause()
    host = ScriptedHost(ScriptedProvider(says("one"), [pause, *says("two")] if runs else says("two"), says("three")))
    async with disk.session(host) as session:
        await session.configure(SettingsPatch(permissions=PermissionSettings("ask")))
        await turn(session)
        started = await session.start(text_content("two"), CLIENT) if runs else None
        if started is not None:
            await pause.reached.wait()
        before = session.session_log.folds.settings
        disk.faults.full = True
        with pytest.raises(StorageFullError):
            await session.configure(SettingsPatch(permissions=PermissionSettings("allow")))
        assert session.session_log.folds.settings == before
        disk.faults.full = False
        if started is not None:
            pause.go_on.set()
            await session.turns.wait(started[1])
        assert end_of(await turn(session, "three")) == "completed"
        assert session.session_log.folds.settings == before
        said = [
            text_of(event.data.content) for event in session.session_log.handle.read() if isinstance(event.data, ContextMessage)
        ]
        assert said == [PERMISSIONS_NOW["allow"], PERMISSIONS_NOW["ask"]], "the model is told both, in their order"
        assert_proven(session)


async def test_a_permission_that_cannot_be_recorded_lets_nothing_run() -> None:
    disk = Disk()
    tools: dict[str, ToolBody] = {"edit": echo}
    host = ScriptedHost(ScriptedProvider(calls(("a", "edit", "{}")), says("ok")), tools)
    host.asking = {"edit"}
    async with disk.session(host) as session:
        asked = anyio.Event()
        session.instance.approvals.watch(lambda _: asked.set(), lambda _: None)
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await asked.wait()
        disk.faults.full = True
        session.instance.approvals.answer(session.instance.approvals.open[0].id, "allowed", "once", CLIENT)
        with pytest.raises(StorageFullError):
            await session.turns.wait(number)
        assert host.ran == []


async def test_a_request_is_not_sent_when_a_commit_failed_after_it_was_recorded() -> None:
    disk, provider = Disk(), ScriptedProvider(says("ok"))
    async with disk.session(ScriptedHost(provider)) as session:
        session_log, failing = session.session_log, list[asyncio.Task[int]]()

        def fail_behind(durable: int) -> None:
            if next(session_log.handle.read(durable)).type == "request/sent":
                disk.faults.full = True
                session.append(Draft(SessionTitle("another thing to record", CLIENT)))
                failing.append(asyncio.ensure_future(session_log.flush()))

        session_log.handle.watch_durable(fail_behind)
        with pytest.raises(StorageFullError):
            await turn(session)
        assert provider.requests == []
        assert isinstance(failing[0].exception(), StorageFullError)


async def test_an_input_that_could_not_be_made_durable_is_withdrawn_behind_it_whatever_it_was() -> None:
    disk, provider = Disk(), ScriptedProvider(says("ok"))
    async with disk.session(ScriptedHost(provider)) as session:
        disk.faults.full = True
        for accept in (
            lambda: session.start(text_content("prompt"), CLIENT),
            lambda: session.inject(text_content("context"), CLIENT),
        ):
            with pytest.raises(StorageFullError):
                await accept()
            assert types(session)[-2:] == ["input/accepted", "input/settled"]
            assert session.session_log.folds.pending == ()
        disk.faults.full = False
        assert end_of(await turn(session, "this one runs")) == "completed"
        assert settled(session) == [("withdrawn", "it could not be made durable")] * 2
        assert [text_of(message.content) for message in provider.requests[0].history] == ["this one runs"]
        assert_proven(session)


async def test_an_injection_that_is_on_disk_is_accepted_though_its_turn_is_not_yet() -> None:
    disk = Disk()
    async with disk.session(ScriptedHost(ScriptedProvider(says("ok")))) as session:
        session.session_log.handle.watch_durable(lambda _: setattr(disk.faults, "full", True))
        accepted = await session.inject(text_content("the build is green"), CLIENT)
        assert accepted.turn is None
        assert session.session_log.handle.durable == accepted.seq
        assert types(session)[-3:] == ["turn/start", "context/message", "turn/end"]
        assert isinstance(session.session_log.handle.trouble, StorageFullError)


async def test_what_was_queued_runs_when_the_end_of_the_turn_before_it_is_on_disk_after_all() -> None:
    disk, pause = Disk(), Pause()
    provider = ScriptedProvider([BlockStart(0, "text"), pause], says("two"))
    async with disk.session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("one"), CLIENT)
        await pause.reached.wait()
        queued = await session.start_or_wait(text_content("two?"), CLIENT, "queue")
        disk.faults.full = True
        with pytest.raises(StorageFullError):
            await session.rename("once more", CLIENT)
        with pytest.raises(StorageFullError):
            await session.turns.wait(number)
        assert (session.turns.running, len(provider.requests)) == (None, 1)
        disk.faults.full = False
        await session.session_log.flush()  # as the background tries again
        assert end_of(await session.turns.wait_input(queued.input)) == "completed"
        assert_proven(session)


async def test_a_turn_ends_in_the_log_though_the_memory_for_what_waits_is_used_up() -> None:
    disk, pause = Disk(backlog_bytes=2_000), Pause()
    long = [TextDelta(0, "x" * 1_000) for _ in range(5)]
    provider = ScriptedProvider([BlockStart(0, "text"), *long, pause], says("again"))
    async with disk.session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        handle = session.session_log.handle
        await disk.fill(session)
        with pytest.raises(StorageFullError) as raised:
            await session.rename("one title more", CLIENT)
        assert "no more are taken" in raised.value.message
        with pytest.raises(StorageFullError):
            await session.turns.wait(number)
        disk.faults.full = False
        assert end_of(await session.turns.wait(number)) == "error"
        assert handle.durable == handle.tail
        assert end_of(await turn(session)) == "completed"
        assert_proven(session)


async def test_a_log_that_is_broken_for_good_says_so_to_everything_that_comes() -> None:
    disk, pause = Disk(), Pause()
    provider = ScriptedProvider([BlockStart(0, "text"), pause])
    async with disk.session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        await disk.fill(session, LogUnwritableError)
        for ask in (
            lambda: session.turns.wait(number),
            lambda: session.start(text_content("again"), CLIENT),
            lambda: session.inject(text_content("again"), CLIENT),
            session.session_log.flush,
        ):
            with pytest.raises(LogUnwritableError):
                await ask()
        assert (provider.closed, len(provider.requests)) == (1, 1)
        assert isinstance(session.session_log.handle.trouble, LogUnwritableError)
