"""Compactions that come to nothing (Must show 4): the surface is untouched, attempts are counted, the message is clear.

Invariant: A compaction that fails, is stopped or killed leaves the surface as it was and locks nothing.
"""

from __future__ import annotations

import anyio
import pytest

from refold_protocol.errors import ProviderError, RefoldError, SessionBusyError
from refold_protocol.session.events import (
    AbortCause,
    CompactEnd,
    CompactStart,
    CompactSummary,
    Draft,
    Event,
    Replace,
    RequestSent,
    UnusedSummary,
    UserMessage,
)
from refold_protocol.session.messages import BlockStart, TextDelta, Usage, text_content
from refold_protocol.session.token_estimate import TokenMeterError
from refold_server.compaction.compaction_decision import CompactionError
from refold_server.config import CompactionConfig
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import compact_session
from tests.support.loop_host import Pause, Script, ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import CLIENT, assert_proven, end_of, fill, last, scripted_session, turn, types
from tests.support.memory_store import MemoryStore
from tests.support.plugging import of_type

pytestmark = pytest.mark.anyio

STORY = "It is a long story. " * 60
SERVER = ProviderError("provider.overloaded", "the provider answered 503", status=503)
KEY = ProviderError("provider.auth", "the provider answered 401", status=401)

BAD: dict[str, tuple[Script, str]] = {
    "longer": (says(STORY * 2), "would not make the history shorter"),
    "empty": (says(""), "is blank"),
    "blank": (says(" \n "), "is blank"),
    "a tool call": (calls(("a", "look", "{}")), "called a tool"),
    "cut off": (says("Half a", finish="length"), "cut off by the output limit"),
    "filtered": (says("no", finish="content-filter"), "refused"),
    "without an end": ([BlockStart(0, "text"), TextDelta(0, "Half")], "without saying that it is complete"),
    "a server's error": ([SERVER], "503"),
}


def host(*scripts: Script) -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(says(STORY), *scripts))
    made.window = 100_000
    return made


def untouched(session: Session, before: tuple[Event, ...]) -> None:
    """The surface is what it was, nothing stands open, and all of it is proved."""
    assert session.session_log.folds.request_state.surface.nodes[:] == before
    assert session.session_log.folds.work.compaction is None
    assert session.status().status == "idle"
    assert_proven(session)


def attempts(session: Session) -> list[int]:
    sent = [event.data for event in of_type(session, RequestSent)]
    return [data.attempt for data in sent if isinstance(data, RequestSent) and data.purpose == "summary"]


@pytest.mark.parametrize(("script", "message"), BAD.values(), ids=BAD.keys())
async def test_a_summary_that_cannot_stand_for_its_region_is_refused_after_one_extra_attempt(
    script: Script, message: str
) -> None:
    around = host(script, script, says("A story."), says("fine"))
    async with scripted_session(around) as session:
        await turn(session)
        before = session.session_log.folds.request_state.surface.nodes[:]
        with pytest.raises(RefoldError, match=message):
            await compact_session(session)
        assert attempts(session) == [1, 2]
        assert around.scripted.bodies[1] == around.scripted.bodies[2]
        (end,) = [event.data for event in of_type(session, CompactEnd)]
        assert isinstance(end, CompactEnd)
        assert end.error is not None
        assert message in end.error.message
        untouched(session, before)
        await compact_session(session)  # and nothing is locked
        assert end_of(await turn(session)) == "completed"
        assert_proven(session)


async def test_summaries_that_are_thrown_away_are_paid_for() -> None:
    around = host(says(""), says(""), says(""), says("A story."))
    async with scripted_session(around) as session:
        await turn(session)
        before = session.session_log.handle.record.summary.usage
        with pytest.raises(RefoldError):
            await compact_session(session)
        await compact_session(session)
        failed, landed = [event.data for event in of_type(session, CompactEnd)]
        assert isinstance(failed, CompactEnd)
        assert isinstance(landed, CompactEnd)
        assert failed.unused == (UnusedSummary(1, Usage(7, 3)), UnusedSummary(2, Usage(7, 3)))
        assert landed.unused == (UnusedSummary(1, Usage(7, 3)),)
        after = session.session_log.handle.record.summary.usage
        assert after.input_tokens - before.input_tokens == 4 * 7
        assert after.output_tokens - before.output_tokens == 4 * 3
        assert_proven(session)


async def test_a_second_answer_that_is_a_summary_lands_under_the_same_start() -> None:
    around = host(says(""), says("A story."))
    async with scripted_session(around) as session:
        await turn(session)
        await compact_session(session)
        assert attempts(session) == [1, 2]
        assert len(of_type(session, CompactStart)) == len(of_type(session, CompactEnd)) == 1
        assert_proven(session)


async def test_what_no_other_try_can_help_is_not_tried_again() -> None:
    async with scripted_session(host([KEY])) as session:
        await turn(session)
        before = session.session_log.folds.request_state.surface.nodes[:]
        with pytest.raises(ProviderError, match="401"):
            await compact_session(session)
        assert attempts(session) == [1]
        end = last(session, CompactEnd)
        assert isinstance(end, CompactEnd)
        assert end.error is not None
        assert (end.error.kind, end.error.status) == ("provider.auth", 401)
        untouched(session, before)


async def test_as_many_attempts_are_made_as_the_settings_say() -> None:
    around = host(says(""), says(""), says(""), says(""))
    around.policy = CompactionConfig(attempts=3)
    async with scripted_session(around) as session:
        await turn(session)
        with pytest.raises(CompactionError):
            await compact_session(session)
        assert attempts(session) == [1, 2, 3]


async def test_a_summary_may_cost_just_less_than_its_region() -> None:
    """The border: a text as long as it may be lands, one character more does not."""
    for more, lands in ((0, True), (1, False)):
        around = host()
        around.policy = CompactionConfig(attempts=1)
        async with scripted_session(around) as session:
            await turn(session)
            price = around.meter("scripted/small").measure_surface(session.session_log).tokens
            around.scripted.scripts[:] = [says("x")]
            probe = await _cost_of_one_character(around)
            around.scripted.scripts[:] = [says("x" * (price - probe + more))]
            if lands:
                landed = await compact_session(session)
                assert (landed.tokens, landed.shadowed) == (price - 1, price)
            else:
                with pytest.raises(CompactionError, match="shorter"):
                    await compact_session(session)


async def _cost_of_one_character(around: ScriptedHost) -> int:
    """What a summary of one letter costs, by a session of its own."""
    other = ScriptedHost(ScriptedProvider(says(STORY), says("x")))
    other.window = 100_000
    async with scripted_session(other) as session:
        await turn(session)
        return (await compact_session(session)).tokens


async def test_a_region_that_changed_meanwhile_is_left_as_it_is_now() -> None:
    pause = Pause()
    around = host(says(STORY), [*says("A story.")[:-1], pause, says("x")[-1]])
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        first = session.session_log.folds.request_state.surface.nodes[0]
        refused: list[RefoldError] = []
        now: tuple[Event, ...] = ()

        async def compact() -> None:
            try:
                await compact_session(session)
            except RefoldError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact)
            await pause.reached.wait()
            change = Draft(
                UserMessage(text_content("uno"), CLIENT), Replace(first.seq, first.seq), sources=((first.seq, first.seq),)
            )
            session.session_log.append(change)
            now = session.session_log.folds.request_state.surface.nodes[:]
            pause.go_on.set()
        assert "changed while it was summed up" in refused[0].message
        assert attempts(session) == [1]
        untouched(session, now)


async def test_what_is_appended_meanwhile_stays_behind_the_summary() -> None:
    pause = Pause()
    around = host([*says("A story.")[:-1], pause, says("x")[-1]], says("fine"))
    async with scripted_session(around) as session:
        await turn(session, "one")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact_session, session)
            await pause.reached.wait()
            await session.inject(text_content("a.txt changed"), CLIENT)
            pause.go_on.set()
        kinds = [node.type for node in session.session_log.folds.request_state.surface.nodes]
        assert kinds == ["user/message", "context/message"]
        assert_proven(session)


async def test_a_turn_that_is_interrupted_inside_a_compaction_ends_it_and_keeps_the_history() -> None:
    pause = Pause()
    around = ScriptedHost(ScriptedProvider())
    async with scripted_session(around) as session:
        await fill(session, around)
        around.scripted.scripts[:] = [[BlockStart(0, "text"), TextDelta(0, "Half"), pause], says("Two stories."), says("ok")]
        before = session.session_log.folds.request_state.surface.nodes[:]
        _, number, _ = await session.start(text_content("three"), CLIENT)
        await pause.reached.wait()
        assert session.status().status == "compacting"
        reason = await session.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert reason.kind == "aborted"
        assert around.scripted.closed == 3
        assert types(session)[-2:] == ["compact/end", "turn/end"]
        assert session.session_log.folds.request_state.surface.nodes[: len(before)] == before
        assert of_type(session, CompactSummary) == []
        assert end_of(await turn(session, "four")) == "completed"
        assert len(of_type(session, CompactSummary)) == 1
        assert_proven(session)


async def test_an_unmatched_start_is_no_lock() -> None:
    """A compaction that nobody ended (its process wrote no end): another one begins, and the log holds."""
    around = host(says("A story."))
    async with scripted_session(around) as session:
        await turn(session)
        nodes = session.session_log.folds.request_state.surface.nodes
        header = session.session_log.folds.request_state.header
        assert header is not None
        session.session_log.append(Draft(CompactStart("user", (nodes[0].seq, nodes[-1].seq), "Sum up.", header.config)))
        landed = await compact_session(session)
        assert [node.seq for node in session.session_log.folds.request_state.surface.nodes] == [landed.seq]
        assert_proven(session)


async def test_a_compaction_waits_for_no_turn_and_a_turn_for_none_but_in_a_queue() -> None:
    pause = Pause()
    around = host([pause, *says("A long answer. " * 90)])
    async with scripted_session(around) as session:
        await turn(session)
        _, number, _ = await session.start(text_content("two"), CLIENT)
        await pause.reached.wait()
        with pytest.raises(SessionBusyError, match=f"turn {number} runs"):
            await compact_session(session)
        pause.go_on.set()
        await session.turns.wait(number)


async def test_a_session_that_asked_nothing_yet_has_nothing_to_sum_up() -> None:
    around = host()
    async with scripted_session(around) as session:
        with pytest.raises(CompactionError, match="Nothing was said"):
            await compact_session(session)
        assert session.session_log.handle.tail < 0, "a session that never received work leaves no record"


async def test_a_compaction_that_cannot_begin_leaves_nothing_in_the_log_of_a_resumed_session() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(host(says("A story.")), store=store) as session:
        await turn(session)
        await compact_session(session)
        tail = session.session_log.handle.tail
    async with scripted_session(host(), store=store) as session:
        with pytest.raises(CompactionError, match="nothing in this session's history"):
            await compact_session(session)
        assert session.session_log.handle.tail == tail


async def test_a_model_without_a_window_is_named_where_somebody_asked_for_it() -> None:
    around = host()
    around.window = None
    async with scripted_session(around) as session:
        await turn(session)
        with pytest.raises(TokenMeterError, match="scripted/small"):
            await compact_session(session)


async def test_a_request_for_a_summary_that_has_no_room_for_the_history_is_told_with_its_figures() -> None:
    around = host()
    async with scripted_session(around) as session:
        await turn(session)
        tail = session.session_log.handle.tail
        with pytest.raises(CompactionError, match=r"about 1\d\d,\d{3} of the 100,000 tokens of the window"):
            await compact_session(session, "Keep this. " * 10_000)
        assert session.session_log.handle.tail == tail


async def test_a_history_that_is_one_summary_is_not_summed_up_again() -> None:
    async with scripted_session(host(says("A story."))) as session:
        await turn(session)
        await compact_session(session)
        with pytest.raises(CompactionError, match="nothing in this session's history"):
            await compact_session(session)
