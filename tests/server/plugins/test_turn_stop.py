"""agent/turn-stop: whether a turn goes on after a step, and what the model is told then."""

from __future__ import annotations

import pytest

from refold_protocol.json_text import JsonText
from refold_protocol.session.events import TurnEnd, TurnEndReason
from refold_server.plugins import TURN_STOP, AfterStep, Context, GoOn, Stop, context
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, end_of, scripted_session, turn, types
from tests.support.plugging import assert_rebuilt, failures, plugin, spoken, together

pytestmark = pytest.mark.anyio


async def test_a_hook_that_stops_a_turn_that_would_go_on_is_the_cause_of_its_abort() -> None:
    asked: list[str] = []

    async def stop(over: AfterStep) -> Stop:
        asked.append(f"{over.place.step} {over.goes_on}")
        return Stop("enough")

    async def later(over: AfterStep) -> None:
        asked.append("later")

    provider = ScriptedProvider(calls(("a", "look", "{}")))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host, plugins=plugin((TURN_STOP, stop), (TURN_STOP, later))) as session:
        event = await turn(session)
        assert isinstance(event.data, TurnEnd)
        cause = event.data.reason.cause
        assert cause is not None
        assert (event.data.reason.kind, cause.kind, cause.reason) == ("aborted", "hook", "enough")
        assert asked == ["1 True"]
        assert_rebuilt(session, provider)


async def test_a_hook_ends_a_turn_with_a_kind_of_its_own() -> None:
    async def stop(over: AfterStep) -> Stop:
        return Stop("over budget", "acme/budget", JsonText('{"code":3}'))

    provider = ScriptedProvider(calls(("a", "look", "{}")))
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugin((TURN_STOP, stop))) as session:
        event = await turn(session)
        assert isinstance(event.data, TurnEnd)
        assert event.data.reason == TurnEndReason("acme/budget", reason="over budget", payload=JsonText('{"code":3}'))
        assert_rebuilt(session, provider)


@pytest.mark.parametrize(
    "decision", [Stop("x", "budget"), Stop("x", "completed"), Stop("x", None, JsonText("{}")), Stop("x", "a/b", JsonText("{"))]
)
async def test_an_end_that_cannot_be_recorded_is_no_decision(decision: Stop) -> None:
    async def stop(over: AfterStep) -> Stop:
        return decision

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugin((TURN_STOP, stop))) as session:
        assert end_of(await turn(session)) == "completed"
        assert failures(session)[0] == ("p", "agent/turn-stop")


async def test_a_hook_that_stops_a_turn_that_would_stop_anyway_changes_nothing() -> None:
    async def stop(over: AfterStep) -> Stop:
        return Stop("enough")

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((TURN_STOP, stop))) as session:
        assert end_of(await turn(session)) == "completed"


async def test_a_turn_that_is_told_to_go_on_says_something_to_the_model_before_its_next_step() -> None:
    async def once(over: AfterStep) -> GoOn | None:
        return GoOn((context("check your answer", raw=True),)) if over.place.step == 1 else None

    seen: list[bool] = []

    async def look(over: AfterStep) -> None:
        seen.append(over.goes_on)

    provider = ScriptedProvider(says("42"), says("43"))
    plugins = together(plugin((TURN_STOP, once), name="a"), plugin((TURN_STOP, look), name="b"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        assert end_of(await turn(session)) == "completed"
        assert spoken(provider) == ["go", "42", "check your answer"]
        assert seen == [True, False]
        names = types(session)
        assert names[names.index("step/end") + 1 :][:2] == ["context/message", "step/start"]
        assert_rebuilt(session, provider)


async def test_the_step_limit_holds_against_a_hook_that_never_stops() -> None:
    async def go_on(over: AfterStep) -> GoOn:
        return GoOn((context("more"),))

    provider = ScriptedProvider(*(says("ok") for _ in range(5)))
    async with scripted_session(ScriptedHost(provider, steps=3), plugins=plugin((TURN_STOP, go_on))) as session:
        assert end_of(await turn(session)) == "max-steps"
        assert len(provider.bodies) == 3
        assert_rebuilt(session, provider)


@pytest.mark.parametrize("decision", [GoOn(()), GoOn((Context(()),)), GoOn((context(" "),)), Stop(" "), "stop", True])
async def test_a_decision_without_words_is_none(decision: object) -> None:
    async def decide(over: AfterStep) -> object:
        return decision

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((TURN_STOP, decide))) as session:
        assert end_of(await turn(session)) == "completed"
        assert failures(session) == [("p", "agent/turn-stop")]
