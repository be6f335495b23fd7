"""The loop on an in-memory log with scripted replies: order of events, ends of turns, what is kept and what is not run."""

from __future__ import annotations

from hashlib import sha256

import anyio
import pytest

from refold_protocol.errors import ProviderError, SessionBusyError, StorageFullError
from refold_protocol.session.events import (
    AbortCause,
    AssistantMessage,
    RequestHeader,
    RequestSent,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from refold_protocol.session.messages import (
    BlockStart,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    text_content,
    text_of,
)
from refold_protocol.session.rebuild import sent_requests
from refold_protocol.verify import Verifier
from refold_server.sessions.session import Session
from refold_storage.memory import MemoryStore
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, scripted_session, turn, types

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


def end_of(event: object) -> str:
    data = getattr(event, "data", None)
    assert isinstance(data, TurnEnd)
    return data.reason.kind


def last(session: Session, kind: type) -> object:
    return [event.data for event in session.ledger.handle.read() if isinstance(event.data, kind)][-1]


def assert_proven(session: Session) -> None:
    """Everything the log says was sent follows from it."""
    verifier = Verifier()
    for line in session.ledger.handle.lines(0):
        verifier.feed(line)
    report = verifier.report()
    assert report.holds, report.differences
    assert report.requests == report.equal


async def echo(arguments: str) -> str:
    return f"got {arguments}"


async def test_a_text_turn_has_its_events_in_the_order_of_the_design() -> None:
    async with scripted_session(ScriptedHost(ScriptedProvider(says("Hel", "lo")))) as session:
        assert end_of(await turn(session)) == "completed"
        assert types(session) == ["instance/start", "input/accepted", *TEXT_TURN]
        reply = last(session, AssistantMessage)
        assert isinstance(reply, AssistantMessage)
        assert reply.content == (TextBlock("Hello"),)
        assert reply.finish == "stop"
        assert session.ledger.handle.durable == session.ledger.handle.tail
        assert_proven(session)


async def test_a_tool_turn_records_the_call_before_it_runs_and_the_result_behind_it() -> None:
    seen: list[list[str]] = []

    async def look(arguments: str) -> str:
        assert session.ledger.handle.durable == session.ledger.handle.tail
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


async def test_the_bytes_that_were_sent_are_those_whose_digest_is_recorded() -> None:
    provider = ScriptedProvider(calls(("c0", "look", "{}")), says("done"), says("again"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        await turn(session)
        await turn(session, "more")
        rebuilt = list(sent_requests(session.ledger.handle.read()))
        assert [sent.sha256 for _, sent, _ in rebuilt] == [sha256(body).hexdigest() for body in provider.bodies]
        assert [request for _, _, request in rebuilt] == provider.requests
        for earlier, later in zip(provider.bodies, provider.bodies[1:], strict=False):
            assert later.startswith(earlier[:-2])  # but for the closing brackets, a byte-prefix extension


async def test_nothing_is_sent_that_could_not_be_made_durable() -> None:
    provider = ScriptedProvider(says("never"))
    async with scripted_session(ScriptedHost(provider)) as session:
        handle = session.ledger.handle
        flush, flushes = handle.flush, 0

        async def failing(up_to: int | None = None, *, timeout: float | None = None) -> int:
            nonlocal flushes
            flushes += 1
            if flushes > 1:
                raise StorageFullError("no space left")
            return await flush(up_to, timeout=timeout)

        handle.flush = failing  # type: ignore[method-assign]
        _, number, _ = await session.start(text_content("go"), CLIENT)
        with pytest.raises(StorageFullError):
            await session.wait_turn(number)
        handle.flush = flush  # type: ignore[method-assign]
        assert provider.requests == []
        assert types(session)[-3:] == ["request/sent", "step/end", "turn/end"]


async def test_a_prompt_that_could_not_be_made_durable_is_withdrawn_and_never_runs() -> None:
    provider = ScriptedProvider(says("second"))
    async with scripted_session(ScriptedHost(provider)) as session:
        handle = session.ledger.handle
        flush = handle.flush

        async def failing(up_to: int | None = None, *, timeout: float | None = None) -> int:
            raise StorageFullError("no space left")

        handle.flush = failing  # type: ignore[method-assign]
        with pytest.raises(StorageFullError):
            await session.start(text_content("lost"), CLIENT)
        handle.flush = flush  # type: ignore[method-assign]
        assert session.ledger.folds.pending == ()
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


async def test_a_used_call_id_is_replaced_by_one_that_says_where_the_call_was_made() -> None:
    provider = ScriptedProvider(calls(("c0", "look", "{}"), ("", "look", "{}")), calls(("c0", "look", "{}")), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        await turn(session)
        ids = [event.data.call_id for event in session.ledger.handle.read() if isinstance(event.data, ToolCall)]
        assert ids == ["c0", "call_1_1_2", "call_1_2_1"]


async def test_a08_a_call_without_arguments_runs_with_an_empty_object() -> None:
    wanted = [("c0", "now", ""), ("c1", "now", "  "), ("c2", "now", "null")]
    provider = ScriptedProvider(calls(*wanted), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"now": echo})) as session:
        await turn(session)
        results = [event.data for event in session.ledger.handle.read() if isinstance(event.data, ToolResult)]
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
        results = [event.data for event in session.ledger.handle.read() if isinstance(event.data, ToolResult)]
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
        results = [event.data for event in session.ledger.handle.read() if isinstance(event.data, ToolResult)]
        codes = [result.error.code for result in results if result.error is not None]
        assert codes == ["TOOL_OUTCOME_UNKNOWN", "ABORTED_BEFORE_DISPATCH"]
        assert end_of(await turn(session, "go on")) == "completed"
        assert_proven(session)


async def test_a_second_prompt_while_a_turn_runs_is_refused() -> None:
    pause = Pause()
    async with scripted_session(ScriptedHost(ScriptedProvider([pause, *says("ok")]))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await pause.reached.wait()
        with pytest.raises(SessionBusyError):
            await session.start(text_content("me too"), CLIENT)
        pause.go_on.set()
        assert end_of(await session.wait_turn(number)) == "completed"


async def test_each_instance_anchors_its_header_and_an_unchanged_one_is_not_written_again() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    provider = ScriptedProvider(*(says("ok") for _ in range(4)))
    for _ in range(2):
        async with scripted_session(ScriptedHost(provider), store=store) as session:
            await turn(session)
            await turn(session)
            headers = [event.data.reason for event in session.ledger.handle.read() if isinstance(event.data, RequestHeader)]
    assert headers == ["initial", "resume"]
    assert provider.bodies[2].startswith(provider.bodies[1][:-2])


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


async def test_a_bug_in_the_loops_surroundings_ends_the_turn_and_not_the_session() -> None:
    provider = ScriptedProvider([ValueError("oops")], says("ok"))
    async with scripted_session(ScriptedHost(provider)) as session:
        data = (await turn(session)).data
        assert isinstance(data, TurnEnd)
        assert data.reason.error is not None
        assert data.reason.error.kind == "invariant"
        assert end_of(await turn(session)) == "completed"


async def test_an_unknown_finish_reason_runs_calls_only_when_their_arguments_are_whole() -> None:
    provider = ScriptedProvider(
        calls(("a", "look", '{"x":1}'), finish="other"), says("ok"), calls(("b", "look", '{"x":'), finish="other")
    )
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host) as session:
        await turn(session)
        await turn(session)
        assert [name for name, _ in host.ran] == ["a"]


async def test_every_request_recorded_names_its_turn_and_step() -> None:
    provider = ScriptedProvider(calls(("a", "look", "{}")), says("ok"), says("ok"))
    async with scripted_session(ScriptedHost(provider, {"look": echo})) as session:
        await turn(session)
        await turn(session)
        sent = [event.data for event in session.ledger.handle.read() if isinstance(event.data, RequestSent)]
        assert [(one.turn, one.step, one.attempt, one.purpose) for one in sent] == [
            (1, 1, 1, "step"),
            (1, 2, 1, "step"),
            (2, 1, 1, "step"),
        ]
        assert isinstance(last(session, AssistantMessage), AssistantMessage)
        assert ToolCallBlock("a", "look", "{}") in provider.requests[1].history[1].content
