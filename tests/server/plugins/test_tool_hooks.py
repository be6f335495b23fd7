"""tools/pre-execute, tools/execute and tools/post-execute: a call denied, wrapped, answered anew, commented."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from refold_protocol.session.events import AbortCause, ToolCall, ToolErrorInfo, ToolResult
from refold_protocol.session.messages import TextBlock, text_content, text_of
from refold_server.plugins import EXECUTE, POST_EXECUTE, PRE_EXECUTE, Accept, Answered, Call, Deny, context
from refold_server.plugins.hook_table import NextAnswer
from refold_server.sessions.session import Session
from refold_server.tools.tool_runner import ToolAnswer
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, echo, end_of, scripted_session, turn, types
from tests.support.plugging import assert_rebuilt, failures, of_type, plugin, said, spoken, together
from tests.support.virtual_time import run_in_virtual_time

pytestmark = pytest.mark.anyio

TWO_CALLS = calls(("a", "look", '{"n":1}'), ("b", "look", '{"n":2}'))


def results(session: Session) -> list[tuple[str, bool, str | None]]:
    """Text, error flag and code of each result in the log."""
    found = [event.data for event in of_type(session, ToolResult)]
    return [
        (text_of(one.content), one.is_error, one.error.code if one.error else None)
        for one in found
        if isinstance(one, ToolResult)
    ]


async def test_a_denied_call_does_not_run_the_model_is_told_why_and_no_later_handler_is_asked() -> None:
    asked: list[str] = []

    async def first(call: Call) -> Deny | None:
        asked.append(call.id)
        return Deny("not on a Sunday") if call.arguments == '{"n":1}' else None

    async def later(call: Call) -> None:
        asked.append(f"later {call.id}")

    provider = ScriptedProvider(TWO_CALLS, says("well"))
    host = ScriptedHost(provider, {"look": echo})
    host.alone.add("look")
    async with scripted_session(host, plugins=plugin((PRE_EXECUTE, first), (PRE_EXECUTE, later))) as session:
        assert end_of(await turn(session)) == "completed"
        assert results(session) == [("not on a Sunday", True, "DENIED"), ('got {"n":2}', False, None)]
        assert (asked, host.ran) == (["a", "b", "later b"], [("b", "look")])
        assert_rebuilt(session, provider)


async def test_wrappers_of_a_call_stand_around_it_in_order_and_may_answer_in_its_place() -> None:
    order: list[str] = []

    async def outer(call: Call, run: NextAnswer) -> ToolAnswer:
        order.append("outer")
        answer = await run()
        return ToolAnswer(text_content(f"outer({text_of(answer.content)})"), False)

    async def inner(call: Call, run: NextAnswer) -> ToolAnswer:
        order.append("inner")
        if call.id == "b":
            return ToolAnswer(text_content("from the cache"), False)
        return await run()

    provider = ScriptedProvider(TWO_CALLS, says("well"))
    host = ScriptedHost(provider, {"look": echo})
    host.alone.add("look")
    plugins = together(plugin((EXECUTE, outer), name="a"), plugin((EXECUTE, inner), name="b"))
    async with scripted_session(host, plugins=plugins) as session:
        await turn(session)
        assert [text for text, _, _ in results(session)] == ['outer(got {"n":1})', "outer(from the cache)"]
        assert (order, host.ran) == (["outer", "inner"] * 2, [("a", "look")])
        assert_rebuilt(session, provider)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_call_that_only_reads_may_be_tried_again_any_other_runs_once(reads: bool) -> None:
    async def insist(call: Call, run: NextAnswer) -> ToolAnswer:
        await run()
        return await run()

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("well"))
    host = ScriptedHost(provider, {"look": echo})
    if not reads:
        host.alone.add("look")
    async with scripted_session(host, plugins=plugin((EXECUTE, insist))) as session:
        assert end_of(await turn(session)) == "completed"
        assert len(host.ran) == (2 if reads else 1)
        assert len(of_type(session, ToolCall)) == 1
        ((_, is_error, code),) = results(session)
        assert (is_error, code) == ((False, None) if reads else (True, "TOOL_FAILED"))
        assert failures(session) == ([] if reads else [("p", "tools/execute")])
        assert_rebuilt(session, provider)


def test_a_hedge_of_two_attempts_at_once_counts_no_waiting_as_its_own() -> None:
    run_in_virtual_time(hedged())


async def hedged() -> None:
    waits = [0.0, 8.0]

    async def slow(arguments: str) -> str:
        await anyio.sleep(waits.pop(0))
        return "slow"

    async def hedge(call: Call, run: NextAnswer) -> ToolAnswer:
        answers: list[ToolAnswer] = []

        async def one() -> None:
            answers.append(await run())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(one)
        return answers[0]

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("well"))
    host = ScriptedHost(provider, {"look": slow})
    async with scripted_session(host, plugins=plugin((EXECUTE, hedge), limit_s=3)) as session:
        await turn(session)
        assert results(session) == [("slow", False, None)]
        assert failures(session) == []


async def test_a_wrapper_that_answers_while_the_call_it_started_still_runs_gives_an_error_result() -> None:
    left: list[asyncio.Future[ToolAnswer]] = []

    async def hasty(call: Call, run: NextAnswer) -> ToolAnswer:
        left.append(asyncio.ensure_future(run()))
        await anyio.lowlevel.checkpoint()
        return ToolAnswer(text_content("done already"), False)

    async def forever(arguments: str) -> str:
        await anyio.sleep_forever()
        return "never"

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("well"))
    async with scripted_session(ScriptedHost(provider, {"look": forever}), plugins=plugin((EXECUTE, hasty))) as session:
        assert end_of(await turn(session)) == "completed"
        left[0].cancel()
        assert [code for _, _, code in results(session)] == ["TOOL_FAILED"]
        assert failures(session) == [("p", "tools/execute")]
        assert_rebuilt(session, provider)


async def test_answers_may_be_replaced_and_context_stands_behind_the_last_result_of_the_step() -> None:
    async def tidy(answered: Answered) -> Accept:
        text = text_of(answered.answer.content)
        return Accept(ToolAnswer(text_content(text.replace("got", "saw")), False), (context(f"about {answered.call.id}"),))

    async def look(answered: Answered) -> Accept:
        return Accept(context=(context(text_of(answered.answer.content), raw=True),))

    provider = ScriptedProvider(TWO_CALLS, says("well"))
    host = ScriptedHost(provider, {"look": echo})
    host.alone.add("look")
    plugins = together(plugin((POST_EXECUTE, tidy), name="a"), plugin((POST_EXECUTE, look), name="b"))
    async with scripted_session(host, plugins=plugins) as session:
        await turn(session)
        assert results(session) == [('saw {"n":1}', False, None), ('saw {"n":2}', False, None)]
        assert said(session) == [("a", "about a"), ("b", 'saw {"n":1}'), ("a", "about b"), ("b", 'saw {"n":2}')]
        names = types(session)
        last_result = len(names) - names[::-1].index("tool/result")
        assert names[last_result : last_result + 5] == ["context/message"] * 4 + ["step/end"]
        assert spoken(provider)[-1] == 'saw {"n":2}'
        assert_rebuilt(session, provider)


async def test_a_denied_call_comes_by_the_handlers_of_answers_as_well() -> None:
    seen: list[ToolErrorInfo | None] = []

    async def deny(call: Call) -> Deny:
        return Deny("no")

    async def look(answered: Answered) -> None:
        seen.append(answered.answer.error)

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("well"))
    plugins = plugin((PRE_EXECUTE, deny), (POST_EXECUTE, look))
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugins) as session:
        await turn(session)
        assert seen == [ToolErrorInfo("Denied", "DENIED")]


@pytest.mark.parametrize("content", [(), (TextBlock(" \n"),), (TextBlock("\ud800"),), ("text",), "text", b"text", None])
async def test_an_answer_that_cannot_be_recorded_is_an_error_result(content: object) -> None:
    async def wrap(call: Call, run: NextAnswer) -> ToolAnswer:
        return ToolAnswer(content, False)  # type: ignore[arg-type]

    async def replace(answered: Answered) -> Accept:
        return Accept(ToolAnswer(content, False))  # type: ignore[arg-type]

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("well"))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host, plugins=plugin((EXECUTE, wrap), (POST_EXECUTE, replace))) as session:
        assert end_of(await turn(session)) == "completed"
        ((text, is_error, code),) = results(session)
        assert (is_error, code) == (True, "TOOL_FAILED")
        assert "'p' failed at tools/execute" in text
        assert failures(session) == [("p", "tools/execute"), ("p", "tools/post-execute")]
        assert_rebuilt(session, provider)


async def test_a_handler_that_denies_once_it_was_interrupted_changes_nothing_about_the_interrupt() -> None:
    """Invariant: Once a turn is cancelled, nothing that a handler gives or raises counts."""
    waits = anyio.Event()

    async def deny(call: Call) -> Deny:
        waits.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return Deny("never mind")
        raise AssertionError("it waits for ever")

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("well"))
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugin((PRE_EXECUTE, deny))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await waits.wait()
        reason = await session.turns.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert reason.kind == "aborted"
        assert [code for _, _, code in results(session)] == ["ABORTED_BEFORE_DISPATCH"]
        assert end_of(await turn(session)) == "completed"
        assert_rebuilt(session, provider)


async def test_an_interrupt_while_a_wrapper_waits_for_a_tool_is_not_the_wrappers_fault() -> None:
    runs = anyio.Event()

    async def slow(arguments: str) -> str:
        runs.set()
        await anyio.sleep_forever()
        return "never"

    async def around(call: Call, run: NextAnswer) -> ToolAnswer:
        answers: list[ToolAnswer] = []
        async with anyio.create_task_group():
            answers.append(await run())
        return answers[0]

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("well"))
    async with scripted_session(ScriptedHost(provider, {"look": slow}), plugins=plugin((EXECUTE, around))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await runs.wait()
        reason = await session.turns.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert reason.kind == "aborted"
        assert failures(session) == []
        assert end_of(await turn(session)) == "completed"
        assert_rebuilt(session, provider)


async def test_context_of_a_finished_call_is_dropped_when_the_turn_is_interrupted_before_the_steps_last_result() -> None:
    """Its answer is kept as the handler left it. The context stands behind the last result, which the turn's end writes."""
    runs = anyio.Event()

    async def look(arguments: str) -> str:
        if arguments == '{"n":2}':
            runs.set()
            await anyio.sleep_forever()
        return "got it"

    async def tidy(answered: Answered) -> Accept:
        return Accept(ToolAnswer(text_content("saw it"), False), (context("about it"),))

    host = ScriptedHost(ScriptedProvider(TWO_CALLS, says("well")), {"look": look})
    host.alone.add("look")
    async with scripted_session(host, plugins=plugin((POST_EXECUTE, tidy))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await runs.wait()
        await session.turns.interrupt(number, AbortCause("user"))
        first, second = results(session)
        assert first == ("saw it", False, None)
        assert second[2] == "TOOL_OUTCOME_UNKNOWN"
        assert said(session) == []
        assert_rebuilt(session, host.scripted)
