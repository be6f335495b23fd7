"""Tool calls in a turn: what is recorded when, what runs, what never does."""

from __future__ import annotations

import anyio
import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import AbortCause, AssistantMessage, ContextMessage, ToolCall, ToolResult
from refold_protocol.session.messages import BlockStart, ToolCallDelta, text_content, text_of
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, echo, end_of, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

TEXT_TURN = [
    "turn/start",
    "user/message",
    "step/start",
    "request/header",
    "request/sent",
    "assistant/chunk",
    "assistant/message",
    "step/end",
    "turn/end",
]


async def test_a_tool_turn_records_the_call_before_it_runs_and_the_result_behind_it() -> None:
    seen: list[list[str]] = []

    async def look(arguments: str) -> str:
        assert session.session_log.handle.durable == session.session_log.handle.tail
        seen.append(types(session)[-2:])
        return f"looked at {arguments}"

    provider = ScriptedProvider(calls(("c0", "look", '{"a":1}')), says("done"))
    async with scripted_session(ScriptedHost(provider, {"look": look})) as session:
        assert end_of(await turn(session)) == "completed"
        assert seen == [["assistant/message", "tool/call"]]
        assert types(session)[2:] == [
            *TEXT_TURN[:-2],
            "tool/call",
            "tool/result",
            "step/end",
            "step/start",
            "request/sent",
            "assistant/chunk",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert_proven(session)


async def test_a04_a_call_of_a_stream_that_broke_does_not_run_and_is_not_sent_again() -> None:
    broken = ProviderError("provider.badStream", "cut off")
    provider = ScriptedProvider(
        [BlockStart(0, "tool-call", "c0", "look"), ToolCallDelta(0, '{"path":"a.txt","text":"lo'), broken], says("ok")
    )
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host) as session:
        assert end_of(await turn(session)) == "error"
        assert host.ran == []
        assert end_of(await turn(session, "go on")) == "completed"
        assert [message.role for message in provider.requests[-1].history] == ["user", "user"]


async def test_a_capped_reply_runs_no_tool_and_marks_the_turn() -> None:
    provider = ScriptedProvider(calls(("c0", "look", '{"path":"a'), finish="length"))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host) as session:
        assert end_of(await turn(session)) == "max-tokens"
        assert host.ran == []
        reply = last(session, AssistantMessage)
        assert isinstance(reply, AssistantMessage)
        assert reply.content == ()


async def test_a_used_call_id_is_replaced_by_one_that_says_where_the_call_was_made() -> None:
    provider = ScriptedProvider(calls(("c0", "look", "{}"), ("", "look", "{}")), calls(("c0", "look", "{}")), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        await turn(session)
        ids = [event.data.call_id for event in session.session_log.handle.read() if isinstance(event.data, ToolCall)]
        assert ids == ["c0", "call_1_1_2", "call_1_2_1"]


async def test_a08_a_call_without_arguments_runs_with_an_empty_object() -> None:
    wanted = [("c0", "now", ""), ("c1", "now", "  "), ("c2", "now", "null")]
    provider = ScriptedProvider(calls(*wanted), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"now": echo})) as session:
        await turn(session)
        results = [event.data for event in session.session_log.handle.read() if isinstance(event.data, ToolResult)]
        assert [text_of(result.content) for result in results] == ["got {}"] * 3
        assert provider.bodies[-1].count(b'"arguments":"{}"') == 3


async def test_results_are_recorded_in_the_order_of_the_calls_whichever_ends_first() -> None:
    second_ran = anyio.Event()

    async def slow(arguments: str) -> str:
        await second_ran.wait()
        return "slow"

    async def fast(arguments: str) -> str:
        second_ran.set()
        return "fast"

    provider = ScriptedProvider(calls(("a", "slow", "{}"), ("b", "fast", "{}")), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"slow": slow, "fast": fast})) as session:
        await turn(session)
        results = [event.data for event in session.session_log.handle.read() if isinstance(event.data, ToolResult)]
        assert [text_of(result.content) for result in results] == ["slow", "fast"]


async def test_calls_that_did_not_start_when_a_turn_is_stopped_are_answered_so() -> None:
    started = anyio.Event()

    async def hang(arguments: str) -> str:
        started.set()
        await anyio.sleep_forever()
        return "never"

    provider = ScriptedProvider(calls(("a", "hang", "{}"), ("b", "hang", "{}")), says("ok"))
    host = ScriptedHost(provider, {"hang": hang})
    host.alone = {"hang"}
    async with scripted_session(host) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await started.wait()
        await session.interrupt(number, AbortCause("user"))
        results = [event.data for event in session.session_log.handle.read() if isinstance(event.data, ToolResult)]
        codes = [result.error.code for result in results if result.error is not None]
        assert codes == ["TOOL_OUTCOME_UNKNOWN", "ABORTED_BEFORE_DISPATCH"]
        assert end_of(await turn(session, "go on")) == "completed"
        assert_proven(session)


async def test_tools_are_frozen_for_an_instance_and_join_at_the_next_one() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    provider = ScriptedProvider(*(says("ok") for _ in range(3)))
    host = ScriptedHost(provider, {"b": echo})
    async with scripted_session(host, store=store) as session:
        await turn(session)
        host.bodies["a"] = echo
        await turn(session)
    async with scripted_session(ScriptedHost(provider, {"a": echo}), store=store) as session:
        await turn(session)
    offered = [[tool.name for tool in request.header.tools or ()] for request in provider.requests]
    assert offered == [["b"], ["b"], ["b", "a"]]


async def test_an_unknown_finish_reason_runs_calls_only_when_their_arguments_are_whole() -> None:
    provider = ScriptedProvider(
        calls(("a", "look", '{"x":1}'), finish="other"), says("ok"), calls(("b", "look", '{"x":'), finish="other")
    )
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host) as session:
        await turn(session)
        await turn(session)
        assert [name for name, _ in host.ran] == ["a"]


async def test_a_stopped_turn_keeps_the_answers_that_are_there_in_the_order_of_the_calls() -> None:
    started = anyio.Event()

    async def slow(arguments: str) -> str:
        started.set()
        await anyio.sleep_forever()
        return arguments

    async def quick(arguments: str) -> str:
        await started.wait()
        return "known"

    provider = ScriptedProvider(calls(("a", "quick", "{}"), ("b", "slow", "{}"), ("c", "quick", "{}"), ("d", "slow", "{}")))
    async with scripted_session(ScriptedHost(provider, {"quick": quick, "slow": slow})) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        while types(session)[-1] != "tool/result":
            await anyio.lowlevel.checkpoint()
        for _ in range(20):  # the third call goes the same way in the same turns of the loop
            await anyio.lowlevel.checkpoint()
        await session.interrupt(number, AbortCause("user"))
        results = [event.data for event in session.session_log.handle.read() if isinstance(event.data, ToolResult)]
        assert [(one.call_id, one.error and one.error.code) for one in results] == [
            ("a", None),
            ("b", "TOOL_OUTCOME_UNKNOWN"),
            ("c", None),
            ("d", "TOOL_OUTCOME_UNKNOWN"),
        ]
        assert "ask again" in text_of(results[1].content)
        assert_proven(session)


async def test_a_reply_that_was_cut_off_in_its_calls_names_each_to_the_person_and_to_the_model() -> None:
    cut = calls(("c0", "look", '{"path":"a"}'), ("c1", "write", '{"path":"b","text":"li'), finish="length")
    provider = ScriptedProvider(cut, says("go on"))
    host = ScriptedHost(provider, {"look": echo, "write": echo})
    async with scripted_session(host) as session:
        assert end_of(await turn(session)) == "max-tokens"
        note = last(session, ContextMessage)
        assert isinstance(note, ContextMessage)
        assert text_of(note.content).split("\n")[1:] == [
            '- look, whole: {"path":"a"}',
            '- write, cut off: {"path":"b","text":"li',
        ]
        assert host.ran == []
        await turn(session, "go on")
        told = [text_of(message.content) for message in provider.requests[-1].history]
        assert any("- write, cut off" in text for text in told)
        assert_proven(session)


async def test_a_reply_that_was_cut_off_in_its_text_needs_no_note() -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider(says("Half", finish="length")))) as session:
        await turn(session)
        assert "context/message" not in types(session)
