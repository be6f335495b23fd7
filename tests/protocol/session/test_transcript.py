"""The transcript: what a person reads. Originals never vanish, copies never appear, and nothing pretends to be whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from refold_protocol.ids import CallId, InputId
from refold_protocol.session.event_data import COMPLETED, INTERRUPTED, MAX_STEPS, aborted, blocked, failed
from refold_protocol.session.events import (
    AbortCause,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    CompactSummary,
    ContextMessage,
    InputSettled,
    SteeringMessage,
    ToolErrorInfo,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    TurnError,
    UserMessage,
)
from refold_protocol.session.messages import TextBlock, TextDelta, Usage, encode_compact, text_content
from refold_protocol.session.transcript import Transcript, TranscriptEntry, transcript
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, LOOP, TIME, Log, call

WORDS = text_content("word")


def _kinds(log: Log) -> list[str]:
    return [entry.kind for entry in transcript(log.events)]


def _compact(log: Log, note: str, *, error: TurnError | None = None, summarised: bool = True) -> None:
    node = log.surface.nodes[0].seq
    log.add(CompactStart("pressure", (node, node), "Sum up.", HEADER.config))
    if summarised:
        log.add(CompactSummary(note, ((0, 0),), 10, "chain", 512))
    if error is None:
        nodes = log.surface.nodes
        log.replace(UserMessage(text_content(note), LOOP), nodes[0].seq, nodes[-1].seq)
    log.add(CompactEnd(error))


def test_a_turn_reads_as_prompt_reply_results_and_answer() -> None:
    log = Log()
    log.turn("Why?")
    log.tool_step("c1")
    log.step()
    log.reply("Because.")
    log.end_step()
    log.end_turn()
    assert _kinds(log) == ["user", "assistant", "tool", "assistant"]


def test_an_entry_carries_what_its_message_says_and_where_it_comes_from() -> None:
    log = Log()
    log.turn("Why?")
    log.append(ContextMessage(WORDS, LOOP, "context"))
    log.append(SteeringMessage(1, WORDS, CLIENT))
    log.step()
    reply = AssistantMessage(1, 1, (TextBlock("Look:"), call("c1", "{1}")), "engine", "chain", "stop", Usage(9, 2))
    log.append(reply)
    error = ToolErrorInfo("FileNotFoundError", "TOOL_FAILED")
    log.append(ToolResult(1, 1, CallId("c1"), WORDS, is_error=True, error=error))
    user, context, steering, said, answered = transcript(log.events)
    assert user == TranscriptEntry(1, TIME + 1, "user", content=text_content("Why?"), source=CLIENT)
    assert context == TranscriptEntry(2, TIME + 2, "context", content=WORDS, source=LOOP)
    assert steering == TranscriptEntry(3, TIME + 3, "steering", turn=1, content=WORDS, source=CLIENT)
    shown: dict[str, Any] = {"turn": 1, "step": 1, "content": reply.content, "model": "engine/chain", "usage": Usage(9, 2)}
    assert said == TranscriptEntry(7, TIME + 7, "assistant", **shown)
    of_call: dict[str, Any] = {"turn": 1, "step": 1, "call_id": "c1", "tool": "read_file", "arguments": "{1}"}
    assert answered == TranscriptEntry(8, TIME + 8, "tool", content=WORDS, is_error=True, error=error, **of_call)


def test_on_the_wire_an_entry_holds_only_what_it_says() -> None:
    log = Log()
    log.whole_turn()
    user, said = (encode_compact(entry) for entry in transcript(log.events))
    source, content = b'"source":{"kind":"client","name":"nvim"}', b'"content":[{"type":"text","text":"Why?"}]'
    assert user == b'{"seq":1,"time":1790000000001,"kind":"user",' + content + b"," + source + b"}"
    assert said.endswith(b'"text":"Because."}],"model":"engine/chain"}')
    assert not next(transcript(log.events)).is_error


def test_results_are_shown_with_the_calls_of_their_own_step() -> None:
    log = Log()
    for arguments in ('{"path":"a"}', '{"path":"b"}'):
        log.turn()
        log.step()
        log.reply(call("same", arguments))
        log.result("same")
        log.end_step()
        log.end_turn()
    shown = [entry.arguments for entry in transcript(log.events) if entry.kind == "tool"]
    assert shown == ['{"path":"a"}', '{"path":"b"}']


def test_a_result_whose_call_was_not_read_is_shown_without_it() -> None:
    log = Log()
    log.turn()
    log.step()
    log.reply(call("c1"))
    (entry,) = Transcript().entries(log.result("c1"))
    assert (entry.kind, entry.call_id, entry.tool, entry.arguments) == ("tool", "c1", None, None)


def test_empty_replies_are_shown_though_the_model_does_not_see_them() -> None:
    log = Log()
    log.turn()
    log.step()
    log.reply()
    assert _kinds(log) == ["user", "assistant"]


def test_a_compaction_is_a_marker_at_its_place_and_hides_nothing() -> None:
    log = Log()
    log.whole_turn("Why?", "Because.")
    _compact(log, "They asked why.")
    log.whole_turn("And?", "So.")
    assert _kinds(log) == ["user", "assistant", "compaction", "user", "assistant"]
    assert [entry.note for entry in transcript(log.events) if entry.kind == "compaction"] == ["They asked why."]
    assert "They asked why." not in str([entry.content for entry in transcript(log.events)])


def test_a_pruned_result_is_shown_as_it_was() -> None:
    log = Log()
    log.turn()
    log.tool_step("c1")
    result = log.surface.nodes[-1]
    log.replace(ToolResult(1, 1, CallId("c1"), text_content("(cut)"), is_error=False), result.seq, result.seq)
    shown = [entry.content for entry in transcript(log.events) if entry.kind == "tool"]
    assert shown == [text_content("found")]


def test_a_compaction_that_failed_leaves_no_marker_and_no_summary_for_a_later_one() -> None:
    log = Log()
    log.whole_turn()
    _compact(log, "Lost.", error=TurnError("provider.refused", "No."))
    _compact(log, "", error=TurnError("provider.refused", "No."), summarised=False)
    log.add(CompactStart("pressure", (1, 1), "Sum up.", HEADER.config))
    log.add(CompactEnd())
    assert _kinds(log) == ["user", "assistant"]


def test_each_compaction_shows_its_own_summary() -> None:
    log = Log()
    log.whole_turn()
    _compact(log, "One.")
    node = log.surface.nodes[0].seq
    log.add(CompactStart("pressure", (node, node), "Sum up.", HEADER.config))
    log.add(CompactEnd())
    _compact(log, "Two.")
    assert [entry.note for entry in transcript(log.events) if entry.kind == "compaction"] == ["One.", "Two."]


def test_a_vetoed_prompt_is_shown_as_one_with_its_words_and_the_reason() -> None:
    log = Log()
    given = log.accept("in", "Delete everything.")
    turn = log.turn(text=None, given=given)
    settled = log.add(InputSettled(given, "blocked", "not on a Friday"))
    log.end_turn(blocked("not on a Friday"))
    vetoed, end = transcript(log.events)
    content = text_content("Delete everything.")
    assert vetoed == TranscriptEntry(settled.seq, settled.time, "blocked", content=content, note="not on a Friday")
    assert end == TranscriptEntry(settled.seq + 1, settled.time + 1, "end", turn=turn, reason=blocked("not on a Friday"))


def test_a_veto_of_an_input_that_was_not_read_is_shown_without_its_words() -> None:
    log = Log()
    (entry,) = Transcript().entries(log.add(InputSettled(InputId("in"), "blocked", "no")))
    assert (entry.kind, entry.content, entry.note) == ("blocked", (), "no")


@pytest.mark.parametrize("how", ["withdrawn", "aborted"])
def test_an_input_that_was_withdrawn_was_never_said(how: str) -> None:
    log = Log()
    log.add(InputSettled(log.accept("in"), how))
    assert _kinds(log) == []


def test_an_interrupted_reply_says_so_and_so_does_its_turn() -> None:
    log = Log()
    log.turn()
    log.step()
    log.stream(TextDelta(0, "Beca"))
    log.close()
    _, said, end = transcript(log.events)
    assert (said.kind, said.interrupted, said.content) == ("assistant", True, text_content("Beca"))
    assert (end.kind, end.reason) == ("end", INTERRUPTED)


@pytest.mark.parametrize(
    "reason",
    [MAX_STEPS, aborted(AbortCause("user")), failed(TurnError("provider.timeout", "No answer.")), TurnEndReason("plugin's")],
)
def test_a_turn_that_did_not_complete_shows_its_end(reason: TurnEndReason) -> None:
    log = Log()
    log.turn()
    log.end_turn(reason)
    assert [(entry.kind, entry.reason) for entry in transcript(log.events)][1:] == [("end", reason)]


@given(logs())
def test_every_appended_surface_event_has_its_entry_in_log_order_and_no_replace_has_one(log: Log) -> None:
    entries = list(transcript(log.events))
    originals = [event.seq for event in log.events if event.surface_op == "append"]
    kinds = ("user", "context", "steering", "assistant", "tool")
    assert [entry.seq for entry in entries if entry.kind in kinds] == originals
    assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
    ends = [e.seq for e in log.events if isinstance(e.data, TurnEnd) and e.data.reason != COMPLETED]
    assert [entry.seq for entry in entries if entry.kind == "end"] == ends
