"""Approvals: nobody is asked what is not on disk, nothing runs that nobody allowed.

Invariant: Nobody is asked what is not on disk; nothing runs that was not allowed, and that durably.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from refold_protocol.errors import ApprovalSettledError
from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.events import AbortCause, ApprovalAsked, ApprovalDecided, Event, ToolResult
from refold_protocol.session.messages import Source, text_of
from refold_server.config import Mode
from refold_server.loop.approvals import Question
from refold_server.sessions.session import Session
from refold_server.tools.tool_runner import Proposed, ToolAnswer
from tests.support.loop_host import Script, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

PERSON = Source("client", "person")


def asking(*scripts: Script) -> ScriptedHost:
    """A host whose tool `write` asks; the model calls it once a turn, unless scripts say otherwise."""
    given = scripts or (calls(("c1", "write", "{}")), says("done"), calls(("c2", "write", "{}")), says("done"))
    host = ScriptedHost(ScriptedProvider(*given), {"write": echo})
    host.alone = host.asking = {"write"}
    return host


@asynccontextmanager
async def asked(
    host: ScriptedHost, store: MemoryStore | None = None
) -> AsyncGenerator[tuple[Session, list[Question], list[Question]]]:
    """A session, the questions that were asked in it, and those that were settled."""
    seen: list[Question] = []
    settled: list[Question] = []
    async with scripted_session(host, store=store) as session:
        session.instance.approvals.watch(seen.append, settled.append)
        yield session, seen, settled


async def until(condition: Callable[[], object]) -> None:
    """Let others run until `condition()` holds."""
    with anyio.fail_after(10):
        while not condition():
            await anyio.lowlevel.checkpoint()


def result_of(session: Session) -> ToolResult:
    """The last tool result."""
    result = last(session, ToolResult)
    assert isinstance(result, ToolResult)
    return result


async def test_a_call_that_changes_something_runs_only_after_it_was_allowed() -> None:
    host = asking()
    async with asked(host) as (session, seen, settled):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: seen)
            assert host.ran == []
            assert session.session_log.handle.durable == session.session_log.handle.tail  # the question is on disk
            assert session.status().status == "waiting"
            session.instance.approvals.answer(seen[0].id, "allowed", "once", PERSON)
            await session.turns.wait(1)
        assert host.ran == [("c1", "write")]
        assert settled == seen
        order = [name for name in types(session) if name.startswith(("tool/", "approval/"))]
        assert order == ["tool/call", "approval/asked", "approval/decided", "tool/result"]
        assert not result_of(session).is_error
        assert_proven(session)


async def test_a_denied_call_does_not_run_and_the_model_is_told() -> None:
    host = asking()
    async with asked(host) as (session, seen, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: seen)
            session.instance.approvals.answer(seen[0].id, "denied", "once", PERSON)
            assert end_of(await session.turns.wait(1)) == "completed"
        assert host.ran == []
        result = result_of(session)
        assert result.error is not None
        assert result.error.code == "DENIED"
        assert "did not allow" in text_of(result.content)
        assert_proven(session)


async def test_the_first_answer_wins_and_a_later_one_is_told_so() -> None:
    async with asked(asking()) as (session, seen, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: seen)
            session.instance.approvals.answer(seen[0].id, "denied", "once", PERSON)
            with pytest.raises(ApprovalSettledError):
                session.instance.approvals.answer(seen[0].id, "allowed", "once", PERSON)
            await session.turns.wait(1)
            with pytest.raises(ApprovalSettledError):
                session.instance.approvals.answer(seen[0].id, "allowed", "once", PERSON)
        decided = [event.data for event in session.session_log.handle.read() if isinstance(event.data, ApprovalDecided)]
        assert [one.outcome for one in decided] == ["denied"]


async def test_nobody_who_answers_in_time_is_a_denial_by_nobody() -> None:
    host = asking()
    host.limit_s = 0.01
    async with asked(host) as (session, _, settled):
        assert end_of(await turn(session)) == "completed"
        decided = last(session, ApprovalDecided)
        assert isinstance(decided, ApprovalDecided)
        assert (decided.outcome, decided.by) == ("denied", Source("loop", "time limit"))
        assert len(settled) == 1
        assert host.ran == []
        assert "Nobody answered" in text_of(result_of(session).content)


async def test_what_is_allowed_for_the_session_is_not_asked_again_also_by_a_later_instance() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with asked(asking(), store) as (session, seen, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: seen)
            session.instance.approvals.answer(seen[0].id, "allowed", "session", PERSON)
            await session.turns.wait(1)
        await turn(session)
        assert len(seen) == 1
    host = asking(calls(("c3", "write", "{}")), says("done"))
    async with asked(host, store) as (session, seen, _):
        await turn(session)
        assert seen == []
        assert host.ran == [("c3", "write")]
        decided = last(session, ApprovalDecided)
        assert isinstance(decided, ApprovalDecided)
        assert decided.by == Source("loop", "allowed for the session")
        assert_proven(session)


async def test_an_interrupt_while_a_question_waits_settles_it_as_cancelled() -> None:
    host = asking()
    async with asked(host) as (session, seen, settled):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: seen)
            await session.interrupt(1, AbortCause("user"))
        assert end_of(await session.turns.wait(1)) == "aborted"
        decided = last(session, ApprovalDecided)
        assert isinstance(decided, ApprovalDecided)
        assert decided.outcome == "cancelled"
        assert settled == seen
        assert session.instance.approvals.open == ()
        error = result_of(session).error
        assert error is not None
        assert error.code == "ABORTED_BEFORE_DISPATCH"
        assert host.ran == []
        assert_proven(session)


@pytest.mark.parametrize(("mode", "ran"), [("allow", 1), ("deny", 0)])
async def test_permissions_decide_without_asking(mode: Mode, ran: int) -> None:
    host = asking()
    host.mode = mode
    async with asked(host) as (session, seen, _):
        assert end_of(await turn(session)) == "completed"
        assert seen == []
        assert len(host.ran) == ran
        assert not any(isinstance(event.data, ApprovalDecided) for event in session.session_log.handle.read())


async def test_everybody_gone_denies_what_stands_open_and_what_is_asked_later_at_once() -> None:
    host = asking()
    async with asked(host) as (session, seen, settled):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: seen)
            session.instance.approvals.deny_all(CLIENT)
            assert end_of(await session.turns.wait(1)) == "completed"
        assert end_of(await turn(session)) == "completed"
        assert len(seen) == len(settled) == 1, "the second one was put to nobody"
        decided = [event.data for event in session.session_log.handle.read() if isinstance(event.data, ApprovalDecided)]
        assert [(one.outcome, one.by) for one in decided] == [("denied", CLIENT)] * 2
        assert host.ran == []
        assert_proven(session)


async def test_a_question_that_is_not_on_disk_yet_is_put_to_nobody_but_can_be_answered() -> None:
    host = asking()
    async with asked(host) as (session, seen, settled):
        approvals = session.instance.approvals

        def answer_at_once(events: Sequence[Event]) -> None:
            for event in events:
                if isinstance(event.data, ApprovalAsked):
                    assert session.session_log.handle.durable < event.seq
                    assert approvals.open == ()
                    asked_ids.append(event.data.id)

        asked_ids: list[ApprovalId] = []
        session.session_log.handle.observe(answer_at_once)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: asked_ids)
            approvals.answer(asked_ids[0], "allowed", "once", PERSON)
            await session.turns.wait(1)
        assert seen == settled == []
        assert host.ran == [("c1", "write")]
        assert_proven(session)


async def test_a_permission_is_on_disk_before_anything_runs() -> None:
    host = asking()
    async with asked(host) as (session, seen, _):

        async def write(arguments: str) -> str:
            decided = [event.seq for event in session.session_log.handle.read() if isinstance(event.data, ApprovalDecided)]
            assert decided
            assert decided[-1] <= session.session_log.handle.durable
            return arguments

        host.bodies["write"] = write
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await until(lambda: seen)
            session.instance.approvals.answer(seen[0].id, "allowed", "once", PERSON)
            await session.turns.wait(1)
        assert not result_of(session).is_error


async def test_a_call_that_was_stopped_before_anybody_was_asked_says_that_it_did_not_run() -> None:
    """A change is worked out before it is asked about: the `tool/call` is recorded then, and nothing ran."""

    class Slow(ScriptedHost):
        async def propose(self, call_id: CallId, name: str, arguments: str) -> Proposed | ToolAnswer | None:
            working.set()
            await anyio.sleep_forever()
            raise AssertionError("unreachable")

    working = anyio.Event()
    host = Slow(ScriptedProvider(calls(("c1", "write", "{}"))), {"write": echo})
    host.alone = {"write"}
    async with asked(host) as (session, seen, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await working.wait()
            await session.interrupt(1, AbortCause("user"))
        result = result_of(session)
        assert result.error is not None
        assert result.error.code == "ABORTED_BEFORE_DISPATCH"
        assert text_of(result.content) == "This call did not run: the turn was stopped first."
        assert seen == []
        assert_proven(session)
