"""`$/progress` of a compaction that was asked for: it begins, tells each attempt, and ends, whatever becomes of it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from refold_protocol.errors import RefoldError
from refold_protocol.rpc.wire_errors import WireError
from refold_server.rpc.change_methods import ChangeMethods, SessionCompactParams
from refold_server.rpc.method import ProgressCancelParams
from refold_server.rpc.notices import ProgressNotice
from refold_server.rpc.progress import Progress
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import Pause, Script, ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, scripted_session, turn

pytestmark = pytest.mark.anyio

STORY = "It is a long story. " * 60


async def told_of(*scripts: Script, cancel: Pause | None = None) -> list[tuple[str, str | None]]:
    """What is told of a compaction whose provider answers so; with `cancel` its token is cancelled there."""
    told: list[tuple[str, str | None]] = []

    def notify(method: str, notice: object) -> None:
        assert method == "$/progress"
        assert isinstance(notice, ProgressNotice)
        told.append((notice.value.kind, notice.value.message))

    host = ScriptedHost(ScriptedProvider(says(STORY), *scripts))
    host.window = 100_000
    progress = Progress(notify)

    async def stop() -> None:
        assert cancel is not None
        await cancel.reached.wait()
        await progress.cancel(ProgressCancelParams("t"))

    async with scripted_session(host) as session:
        await turn(session)
        async with anyio.create_task_group() as tasks:
            if cancel is not None:
                tasks.start_soon(stop)
            try:
                with progress.task("t", "session/compact", session):
                    with pytest.raises(WireError):
                        progress.reserve("t")
                    await compact_session(session)
            except RefoldError as error:
                told.append(("raised", error.error_kind))
        progress.reserve("t")
        assert session.status().status == "idle"
    return told


BEGIN: tuple[str, str | None] = ("begin", "compaction")
FIRST: tuple[str, str | None] = ("report", "attempt 1: waiting for the summary")
SECOND: tuple[str, str | None] = ("report", "attempt 2: waiting for the summary")


async def test_a_compaction_that_lands_is_told_to_its_end() -> None:
    assert await told_of(says("A story.")) == [BEGIN, FIRST, ("end", "completed")]


async def test_each_attempt_is_told_and_a_failure_ends_it() -> None:
    found = await told_of(says(""), says(""))
    assert found == [BEGIN, FIRST, SECOND, ("end", "failed"), ("raised", "compaction.failed")]


async def test_its_token_stops_it() -> None:
    pause = Pause()
    assert await told_of([pause], cancel=pause) == [BEGIN, FIRST, ("end", "aborted")]


async def test_a_request_that_is_cancelled_by_its_id_ends_its_progress_as_aborted() -> None:
    pause = Pause()
    told: list[str | None] = []
    host = ScriptedHost(ScriptedProvider(says(STORY), [pause]))
    host.window = 100_000

    def notify(method: str, notice: object) -> None:
        assert isinstance(notice, ProgressNotice)
        told.append(notice.value.message)

    async with scripted_session(host) as session:
        await turn(session)

        async def asked() -> None:
            with Progress(notify).task("t", "session/compact", session):
                await compact_session(session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked)
            await pause.reached.wait()
            tasks.cancel_scope.cancel()
    assert told == ["compaction", "attempt 1: waiting for the summary", "aborted"]


async def test_the_request_is_answered_as_cancelled_then() -> None:
    pause = Pause()
    host = ScriptedHost(ScriptedProvider(says(STORY), [pause]))
    host.window = 100_000
    progress = Progress(lambda method, notice: None)
    async with scripted_session(host) as session:
        await turn(session)

        class Sessions:
            def writable(self, name: object) -> Any:
                return session

        async def stop() -> None:
            await pause.reached.wait()
            await progress.cancel(ProgressCancelParams("t"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            with pytest.raises(WireError, match="session/compact was cancelled"):
                await ChangeMethods(Sessions(), CLIENT, progress).compact(SessionCompactParams(session.id, None, "t"))  # type: ignore[arg-type]
