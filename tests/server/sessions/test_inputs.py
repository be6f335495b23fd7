"""What a session accepts while a turn runs and while none does: queued prompts, steering, injections, withdrawals, settings."""

from __future__ import annotations

import anyio
import pytest

from refold_protocol.errors import InputUnknownError, SessionBusyError, StorageFullError
from refold_protocol.session.events import (
    AbortCause,
    ContextMessage,
    InputSettled,
    LimitSettings,
    PermissionSettings,
    SessionSettings,
    SessionTitle,
    SteeringMessage,
    TurnStart,
)
from refold_protocol.session.messages import Source, text_content, text_of
from refold_server.sessions.session import Session
from refold_server.sessions.session_settings import SettingsPatch
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


def seen(provider: ScriptedProvider, request: int = -1) -> list[str]:
    """The texts of a request's history."""
    return [text_of(message.content) for message in provider.requests[request].history]


def triggers(session: Session) -> list[tuple[str, str | None]]:
    starts = [event.data for event in session.session_log.handle.read() if isinstance(event.data, TurnStart)]
    return [(start.trigger.kind, start.trigger.input) for start in starts]


async def test_queued_prompts_run_in_order_one_turn_each_whatever_ended_the_turn_before() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause], says("two"), says("three"))
    async with scripted_session(ScriptedHost(provider)) as session:
        _, first, _ = await session.start(text_content("one"), CLIENT)
        await pause.reached.wait()
        second = await session.start_or_wait(text_content("two?"), CLIENT, "queue")
        third = await session.start_or_wait(text_content("three?"), CLIENT, "queue")
        assert (second.turn, third.turn) == (None, None)
        assert [one.input for one in session.session_log.folds.pending] == [second.input, third.input]
        await session.interrupt(first, AbortCause("user"))
        assert end_of(await session.turns.wait_input(third.input)) == "completed"
        assert [given for _, given in triggers(session)][1:] == [second.input, third.input]
        assert seen(provider) == ["one", "two?", "two", "three?"]
        assert_proven(session)


async def test_an_interrupt_takes_queued_prompts_back_only_when_asked() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause], says("later"))
    async with scripted_session(ScriptedHost(provider)) as session:
        _, first, _ = await session.start(text_content("one"), CLIENT)
        await pause.reached.wait()
        queued = await session.start_or_wait(text_content("two"), CLIENT, "queue")
        await session.interrupt(first, AbortCause("user"), withdraw_queued=True)
        with pytest.raises(InputUnknownError):
            await session.turns.wait_input(queued.input)
        assert last(session, InputSettled) == InputSettled(queued.input, "withdrawn", "the turn was interrupted")
        assert provider.scripts == [says("later")]


async def test_steering_joins_the_running_turn_before_its_next_step() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause, *calls(("a", "look", "{}"))], says("ok"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        steered = await session.start_or_wait(text_content("left!"), CLIENT, "steer")
        assert steered.turn == number
        pause.go_on.set()
        assert end_of(await session.turns.wait(number)) == "completed"
        message = last(session, SteeringMessage)
        assert isinstance(message, SteeringMessage)
        assert message.input == steered.input
        assert seen(provider)[-1] == '<steering source="client:test">\nleft!\n</steering>'
        assert types(session).index("steering/message") > types(session).index("step/end")
        assert_proven(session)


async def test_steering_that_came_during_the_last_step_makes_the_turn_go_on() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause, *says("done?")], says("done!"))
    async with scripted_session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        await session.start_or_wait(text_content("more"), CLIENT, "steer")
        pause.go_on.set()
        await session.turns.wait(number)
        assert len(provider.requests) == 2
        assert triggers(session)[1:] == []


async def test_left_over_steering_becomes_a_prompt_of_its_own() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause], says("ok"))
    async with scripted_session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        steered = await session.start_or_wait(text_content("left!"), CLIENT, "steer")
        await session.interrupt(number, AbortCause("user"))
        await session.turns.wait_input(steered.input)
        assert seen(provider)[-1] == "left!"


async def test_an_injection_on_an_idle_session_is_a_turn_without_a_step() -> None:
    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider)) as session:
        source = Source("file", "a.txt")
        injected = await session.inject(text_content("a.txt changed"), source)
        assert injected.turn == 1
        assert types(session) == ["instance/start", "input/accepted", "turn/start", "context/message", "turn/end"]
        assert session.session_log.handle.durable == session.session_log.handle.tail
        assert provider.requests == []
        await turn(session)
        assert seen(provider) == ['<context source="file:a.txt">\na.txt changed\n</context>', "go"]


async def test_neither_an_injection_nor_steering_closes_what_stands_around_it() -> None:
    first = Pause()
    provider = ScriptedProvider([first, *says("ok")], says("fine"))
    async with scripted_session(ScriptedHost(provider)) as session:
        await session.inject(text_content("a</context>b"), CLIENT)
        _, number, _ = await session.start(text_content("go</context>"), CLIENT)
        await first.reached.wait()
        await session.start_or_wait(text_content("c</steering>d</context>"), CLIENT, "steer")
        first.go_on.set()
        await session.turns.wait(number)
        context, prompt, _, steering = seen(provider)
        assert context == '<context source="client:test">\na&lt;/context>b\n</context>'
        assert prompt == "go</context>"
        assert steering == '<steering source="client:test">\nc&lt;/steering>d</context>\n</steering>'
        assert session.session_log.folds.pending == ()
        assert_proven(session)


async def test_an_injection_during_a_turn_joins_before_its_next_step_or_its_end() -> None:
    first, second = Pause(), Pause()
    provider = ScriptedProvider([first, *calls(("a", "look", "{}"))], [second, *says("ok")], says("fine"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await first.reached.wait()
        await session.inject(text_content("early"), CLIENT)
        first.go_on.set()
        await second.reached.wait()
        assert seen(provider)[-1].split("\n")[1] == "early"
        await session.inject(text_content("late"), CLIENT)
        second.go_on.set()
        await session.turns.wait(number)
        assert types(session)[-2:] == ["context/message", "turn/end"]
        message = last(session, ContextMessage)
        assert isinstance(message, ContextMessage)
        assert text_of(message.content) == "late"
        assert_proven(session)


async def test_a_withdrawn_input_never_runs_and_is_gone_from_what_waits() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause, *says("ok")])
    async with scripted_session(ScriptedHost(provider)) as session:
        waiting, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        queued = await session.start_or_wait(text_content("two"), CLIENT, "queue")
        seq = await session.withdraw(queued.input)
        assert session.session_log.handle.durable >= seq
        assert session.session_log.folds.pending == ()
        with pytest.raises(InputUnknownError):
            await session.withdraw(queued.input)
        with pytest.raises(InputUnknownError):
            await session.withdraw(waiting.input)
        pause.go_on.set()
        await session.turns.wait(number)
        assert len(provider.requests) == 1


async def test_what_an_earlier_instance_left_waiting_is_offered_and_never_runs_by_itself() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    pause = Pause()
    provider = ScriptedProvider([pause], says("ok"), says("old"))
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        await session.start(text_content("one"), CLIENT)
        await pause.reached.wait()
        queued = await session.start_or_wait(text_content("two"), CLIENT, "queue")
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        assert [one.input for one in session.session_log.folds.pending] == [queued.input]
        await turn(session, "new")
        assert [one.input for one in session.session_log.folds.pending] == [queued.input]
        _, number, _ = await session.start_pending(queued.input)
        assert end_of(await session.turns.wait(number)) == "completed"
        assert seen(provider)[-1] == "two"


async def test_nothing_queued_runs_once_the_session_is_closing() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause], says("never"))
    async with scripted_session(ScriptedHost(provider)) as session:
        await session.start(text_content("one"), CLIENT)
        await pause.reached.wait()
        await session.start_or_wait(text_content("two"), CLIENT, "queue")
        await session.close(cancel=True)
        with pytest.raises(SessionBusyError):
            await session.start_or_wait(text_content("three"), CLIENT, "queue")
    assert len(provider.requests) == 1


async def test_changed_settings_hold_from_the_next_request_on_and_come_back_on_resume() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    provider = ScriptedProvider(*(says("ok") for _ in range(3)))
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        await turn(session)
        settings, seq = await session.configure(SettingsPatch(model="large", limits=LimitSettings(7)))
        assert settings == SessionSettings("large", None, None, LimitSettings(7))
        assert session.session_log.handle.durable >= seq
        settings, _ = await session.configure(SettingsPatch(effort="high"))
        assert settings.model == "large"
        await turn(session)
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        await turn(session)
    assert [request.header.config.model for request in provider.requests] == ["small", "large", "large"]


async def test_a_model_that_cannot_be_used_is_refused_and_nothing_is_recorded() -> None:
    host = ScriptedHost(ScriptedProvider())
    host.trouble = InputUnknownError("no such model")
    async with scripted_session(host) as session:
        with pytest.raises(InputUnknownError):
            await session.configure(SettingsPatch(model="nope"))
        assert types(session) == []


async def test_another_permission_mode_is_told_to_a_model_that_saw_something_and_never_edits_the_system_text() -> None:
    provider = ScriptedProvider(says("ok"), says("ok"))
    async with scripted_session(ScriptedHost(provider)) as session:
        await session.configure(SettingsPatch(permissions=PermissionSettings("deny")))
        assert types(session) == ["instance/start", "session/settings"]
        await turn(session)
        settings, seq = await session.configure(SettingsPatch(permissions=PermissionSettings("allow")))
        assert settings.permissions == PermissionSettings("allow")
        told = ["session/settings", "input/accepted", "turn/start", "context/message", "turn/end"]
        assert types(session, seq) == told
        await session.configure(SettingsPatch(permissions=PermissionSettings("allow")))
        assert types(session, seq) == [*told, "session/settings"]
        await turn(session)
        assert_proven(session)
    before, after = provider.requests
    assert before.header == after.header
    assert "without the user being asked" in str(after.history[2])


async def test_another_permission_mode_in_a_running_turn_joins_before_its_next_step() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause, *calls(("c", "look", "{}"))], says("ok"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, session)
            await pause.reached.wait()
            await session.configure(SettingsPatch(permissions=PermissionSettings("deny")))
            assert len(provider.requests) == 1
            pause.go_on.set()
        assert "do not run" in str(provider.requests[1].history[-1])
        assert_proven(session)


async def test_new_tools_join_at_once_when_the_user_asks() -> None:
    provider = ScriptedProvider(says("ok"), says("ok"))
    host = ScriptedHost(provider, {"b": echo})
    async with scripted_session(host) as session:
        await turn(session)
        host.bodies["a"] = echo
        await session.configure(SettingsPatch(tools_now=True))
        await turn(session)
    assert [tool.name for tool in provider.requests[-1].header.tools or ()] == ["b", "a"]


async def test_a_title_is_an_event() -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider())) as session:
        await session.rename("Spring cleaning", CLIENT)
        assert last(session, SessionTitle) == SessionTitle("Spring cleaning", CLIENT)
        assert session.session_log.handle.record.summary.title == "Spring cleaning"


async def test_a_queued_prompt_that_could_not_be_made_durable_is_withdrawn() -> None:
    pause = Pause()
    provider = ScriptedProvider([pause, *says("ok")])
    async with scripted_session(ScriptedHost(provider)) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        handle = session.session_log.handle
        flush = handle.flush

        async def failing(up_to: int | None = None, *, timeout: float | None = None) -> int:
            raise StorageFullError("no space left")

        handle.flush = failing  # type: ignore[method-assign]
        with pytest.raises(StorageFullError):
            await session.start_or_wait(text_content("lost"), CLIENT, "queue")
        handle.flush = flush  # type: ignore[method-assign]
        assert session.session_log.folds.pending == ()
        pause.go_on.set()
        await session.turns.wait(number)
        assert len(provider.requests) == 1
