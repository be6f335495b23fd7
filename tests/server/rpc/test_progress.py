"""`$/progress` of inputs that wait or steer: whatever begins also ends, and its token can be used again."""

from __future__ import annotations

import pytest

from refold_protocol.errors import InvariantError
from refold_protocol.ids import InputId
from refold_protocol.session.events import AbortCause, Draft, Trigger, TurnStart
from refold_protocol.session.messages import text_content
from refold_protocol.session.session_state import PendingInput
from refold_server.loop.instance import Instance
from refold_server.rpc.notices import ProgressNotice
from refold_server.rpc.progress import Progress
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, echo, fill, scripted_session

pytestmark = pytest.mark.anyio


async def told_of_steering(*, stopped: bool) -> list[str]:
    """What is told of steering that joins a running turn, or that is left over by one that was stopped."""
    told: list[str] = []

    def notify(method: str, notice: object) -> None:
        assert method == "$/progress"
        assert isinstance(notice, ProgressNotice)
        told.append(notice.value.message or "")

    pause = Pause()
    provider = ScriptedProvider([pause, *says("first")], says("second"))
    async with scripted_session(ScriptedHost(provider)) as session:
        progress = Progress(notify)
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        steered = await session.start_or_wait(text_content("left"), CLIENT, "steer")
        progress.follow(progress.reserve("t"), session, InputId(steered.input), steered.turn)
        if stopped:
            await session.interrupt(number, AbortCause("user"))
            await session.turns.wait_input(steered.input)
        else:
            pause.go_on.set()
            await session.turns.wait(number)
        progress.reserve("t")
    return told


async def test_progress_of_steering_ends_with_the_turn_that_it_joined() -> None:
    assert await told_of_steering(stopped=False) == ["turn", "step 2: waiting for the model", "completed"]


async def test_progress_of_left_over_steering_is_that_of_the_turn_that_it_became() -> None:
    assert await told_of_steering(stopped=True) == ["turn", "step 1: waiting for the model", "completed"]


async def test_progress_of_what_waits_ends_when_its_session_is_closed_and_its_token_is_free() -> None:
    told: list[tuple[str, str | None]] = []

    def notify(method: str, notice: object) -> None:
        assert isinstance(notice, ProgressNotice)
        told.append((notice.value.kind, notice.value.message))

    pause = Pause()
    async with scripted_session(ScriptedHost(ScriptedProvider([pause, *says("first")]))) as session:
        progress = Progress(notify)
        await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        queued = await session.start_or_wait(text_content("next"), CLIENT, "queue")
        progress.follow(progress.reserve("t"), session, queued.input, queued.turn)
        await session.close(cancel=True)
        assert told == [("begin", "turn"), ("end", "closed")]
        progress.follow(progress.reserve("t"), session, queued.input, queued.turn)
        progress.reserve("t")
    assert len(told) == 2, "nothing begins in a session that is closed"


async def test_progress_of_a_turn_whose_end_cannot_be_recorded_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str | None]] = []

    def notify(method: str, notice: object) -> None:
        assert isinstance(notice, ProgressNotice)
        told.append((notice.value.kind, notice.value.message))

    async def broken(instance: Instance, given: PendingInput, control: object) -> None:
        instance.session_log.append(Draft(TurnStart(1, Trigger("message", given.source, given.input))))
        raise ZeroDivisionError("says the test")

    monkeypatch.setattr(Instance, "run_turn", broken)
    async with scripted_session(ScriptedHost(ScriptedProvider())) as session:
        progress = Progress(notify)
        accepted, number, _ = await session.start(text_content("go"), CLIENT)
        progress.follow(progress.reserve("t"), session, accepted.input, number)
        with pytest.raises(InvariantError):
            await session.turns.wait(number)
    assert told == [("begin", "turn"), ("end", "failed")]


async def test_progress_says_that_a_call_waits_for_permission() -> None:
    told: list[str] = []

    def notify(method: str, notice: object) -> None:
        assert isinstance(notice, ProgressNotice)
        told.append(notice.value.message or "")

    host = ScriptedHost(ScriptedProvider(calls(("c1", "write", "{}")), says("done")), {"write": echo})
    host.alone = host.asking = {"write"}
    async with scripted_session(host) as session:
        approvals = session.instance.approvals
        approvals.watch(lambda question: void(approvals.answer(question.id, "denied", "once", CLIENT)), lambda _: None)
        progress = Progress(notify)
        accepted, number, _ = await session.start(text_content("go"), CLIENT)
        progress.follow(progress.reserve("t"), session, accepted.input, number)
        await session.turns.wait(number)
    assert told[-4:] == ["step 1: write", "write waits for permission", "step 2: waiting for the model", "completed"]


async def test_progress_says_that_room_is_made_before_the_model_is_asked() -> None:
    told: list[str] = []

    def notify(method: str, notice: object) -> None:
        assert isinstance(notice, ProgressNotice)
        told.append(notice.value.message or "")

    host = ScriptedHost(ScriptedProvider(says("done")))
    async with scripted_session(host) as session:
        await fill(session, host)
        progress = Progress(notify)
        accepted, number, _ = await session.start(text_content("go"), CLIENT)
        progress.follow(progress.reserve("t"), session, accepted.input, number)
        await session.turns.wait(number)
    assert told == ["turn", "making room: waiting for a summary", "step 1: waiting for the model", "completed"]


def void(value: object) -> None:
    """Drop a result."""
    del value
