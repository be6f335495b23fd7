"""The ways in which a turn ends, and what each leaves behind."""

from __future__ import annotations

import pytest

from refold_protocol.errors import ProviderError, SessionBusyError, StorageFullError
from refold_protocol.session.events import AbortCause, AssistantMessage, TurnEnd
from refold_protocol.session.messages import BlockStart, ReasoningDelta, TextDelta, text_content, text_of
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_prompt_that_could_not_be_made_durable_is_withdrawn_and_never_runs() -> None:
    provider = ScriptedProvider(says("second"))
    async with scripted_session(ScriptedHost(provider)) as session:
        handle = session.session_log.handle
        flush = handle.flush

        async def failing(up_to: int | None = None, *, timeout: float | None = None) -> int:
            raise StorageFullError("no space left")

        handle.flush = failing  # type: ignore[method-assign]
        with pytest.raises(StorageFullError):
            await session.start(text_content("lost"), CLIENT)
        handle.flush = flush  # type: ignore[method-assign]
        assert session.session_log.folds.pending == ()
        assert end_of(await turn(session, "second")) == "completed"
        assert len(provider.requests) == 1


async def test_a_cancelled_turn_keeps_the_text_that_was_delivered() -> None:
    pause = Pause()
    provider = ScriptedProvider([BlockStart(0, "text"), TextDelta(0, "half"), pause], says("whole"))
    async with scripted_session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        reason = await session.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert reason.kind == "aborted"
        assert reason.cause == AbortCause("user")
        reply = last(session, AssistantMessage)
        assert isinstance(reply, AssistantMessage)
        assert reply.interrupted
        assert text_of(reply.content) == "half"
        assert types(session)[-3:] == ["assistant/message", "step/end", "turn/end"]
        assert provider.closed == 1
        assert await session.interrupt(number, AbortCause("user")) == reason  # idempotent
        await turn(session, "again")
        assert [text_of(message.content) for message in provider.requests[-1].history] == ["go", "half", "again"]


async def test_b03_a_turn_stopped_while_only_thinking_arrived_leaves_no_message_to_the_model() -> None:
    pause = Pause()
    provider = ScriptedProvider([BlockStart(0, "reasoning"), ReasoningDelta(0, "hm"), pause], says("fine"))
    async with scripted_session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        await session.interrupt(number, AbortCause("user"))
        await turn(session, "good")
        assert [message.role for message in provider.requests[-1].history] == ["user", "user"]
        assert_proven(session)


async def test_b03_a_turn_stopped_before_the_first_byte_leaves_no_reply_at_all() -> None:
    pause = Pause()
    async with scripted_session(ScriptedHost(ScriptedProvider([pause], says("fine")))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        await session.interrupt(number, AbortCause("user"))
        assert "assistant/message" not in types(session)
        assert end_of(await turn(session, "good")) == "completed"


async def test_b03_three_refusals_in_a_row_leave_no_empty_messages_and_the_next_prompt_succeeds() -> None:
    refusals = [[ProviderError("provider.rejected", "400", status=400)] for _ in range(3)]
    provider = ScriptedProvider(*refusals, says("at last"))
    async with scripted_session(ScriptedHost(provider)) as session:
        for text in "abc":
            assert end_of(await turn(session, text)) == "error"
        assert end_of(await turn(session, "good")) == "completed"
        assert [text_of(message.content) for message in provider.requests[-1].history] == ["a", "b", "c", "good"]


async def test_a_failed_stream_keeps_its_text_and_says_what_happened() -> None:
    trouble = ProviderError("provider.badStream", "cut off", status=200, request_id="r1")
    provider = ScriptedProvider([BlockStart(0, "text"), TextDelta(0, "Par"), trouble])
    async with scripted_session(ScriptedHost(provider)) as session:
        data = (await turn(session)).data
        assert isinstance(data, TurnEnd)
        assert data.reason.error is not None
        assert (data.reason.error.kind, data.reason.error.step, data.reason.error.request_id) == ("provider.badStream", 1, "r1")
        reply = last(session, AssistantMessage)
        assert isinstance(reply, AssistantMessage)
        assert reply.interrupted
        assert text_of(reply.content) == "Par"


async def test_a_filtered_reply_ends_the_turn_as_an_error_of_its_kind() -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider(says("I", finish="content-filter")))) as session:
        data = (await turn(session)).data
        assert isinstance(data, TurnEnd)
        assert data.reason.error is not None
        assert data.reason.error.kind == "provider.filtered"


async def test_the_step_limit_ends_a_turn_that_goes_on_and_on() -> None:
    provider = ScriptedProvider(*(calls((f"c{n}", "look", "{}")) for n in range(3)))
    async with scripted_session(ScriptedHost(provider, {"look": echo}, steps=3)) as session:
        assert end_of(await turn(session)) == "max-steps"
        assert_proven(session)


async def test_a_second_prompt_while_a_turn_runs_is_refused() -> None:
    pause = Pause()
    async with scripted_session(ScriptedHost(ScriptedProvider([pause, *says("ok")]))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        with pytest.raises(SessionBusyError):
            await session.start(text_content("me too"), CLIENT)
        pause.go_on.set()
        assert end_of(await session.turns.wait(number)) == "completed"


async def test_a_bug_in_the_loops_surroundings_ends_the_turn_and_not_the_session() -> None:
    provider = ScriptedProvider([ValueError("oops")], says("ok"))
    async with scripted_session(ScriptedHost(provider)) as session:
        data = (await turn(session)).data
        assert isinstance(data, TurnEnd)
        assert data.reason.error is not None
        assert data.reason.error.kind == "invariant"
        assert end_of(await turn(session)) == "completed"


async def test_a_stream_is_not_read_on_when_what_it_says_cannot_be_kept() -> None:
    full = False

    def fail_point(stage: str) -> None:
        if full:
            raise StorageFullError("no space left")

    pause = Pause()
    provider = ScriptedProvider([BlockStart(0, "text"), TextDelta(0, "kept"), pause, *says("never")], says("again"))
    store = MemoryStore(clock=lambda: 1_000, fail_point=fail_point)
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        full = True
        with pytest.raises(StorageFullError):
            await session.session_log.flush()
        pause.go_on.set()
        with pytest.raises(StorageFullError):
            await session.turns.wait(number)
        full = False
        reply = last(session, AssistantMessage)
        assert isinstance(reply, AssistantMessage)
        assert text_of(reply.content) == "kept"
        assert provider.closed == 1
        assert end_of(await turn(session, "there is space again")) == "completed"
        assert_proven(session)
