"""What each request shares with the one before, and which event broke it: one test for each cause, and the properties."""

from __future__ import annotations

from itertools import pairwise, takewhile

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS, encode
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import Event, RequestHeader, RequestSent, StepStart, ToolResult, UserMessage
from refold_protocol.session.messages import EpochHeader, ImageBlock, ToolSchema, text_content
from refold_protocol.session.prefix_cache import NOTHING_ASKED, Attribution, attribution_step, fold_attribution
from refold_protocol.session.request import sent_requests
from tests.support.attributions import ask, recorded, rows, why
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, LOOP, Log
from tests.support.requests import BLOBS, PNG, user

OTHER = replace(HEADER, system="Be thorough.")


def resumed(log: Log, header: EpochHeader) -> Event:
    """Begin the next instance, whose first request has `header`. Gives its snapshot; its step is open."""
    log.instance("resume")
    log.turn("Go on.")
    log.add(StepStart(log.work.last_turn, 1))
    snapshot = log.add(RequestHeader(header, "resume"))
    log.send()
    return snapshot


def test_requests_that_only_grow_keep_all_bytes_of_the_one_before() -> None:
    log = recorded()
    ask(log)
    log.turn()
    log.tool_step("c1", "c2")
    log.step()
    found = rows(log)
    assert [row.course for row in found] == ["first", "kept", "kept"]
    assert [(row.turn, row.step) for row in found] == [(1, 1), (2, 1), (2, 2)]
    assert [now.common for _, now in pairwise(found)] == [before.bytes - 2 for before, _ in pairwise(found)]
    assert all(row.causes == () and row.parting is None for row in found)


def test_a_retry_shares_every_byte() -> None:
    log = recorded()
    log.turn()
    log.step()
    log.send(2)
    first, again = rows(log)
    assert (again.attempt, again.course, again.common) == (2, "kept", first.bytes)


def test_a_changed_header_is_named_with_its_event_and_what_changed() -> None:
    log = recorded()
    ask(log)
    ask(log, OTHER)
    row = rows(log)[-1]
    header = next(event.seq for event in reversed(log.events) if event.type == "request/header-delta")
    assert row.course == "break"
    assert row.parting is not None
    assert (row.parting.segment.kind, row.parting.offset) == ("system", row.common)
    assert why(log)[0] == f"event {header} request/header-delta: system text, line 1: “Be brief.” → “Be thorough.”"
    assert why(log)[1].startswith(f"from byte {row.common} on, in the system text: “")
    assert len(why(log)) == 2


def test_a_member_that_went_breaks_in_its_own_segment_not_in_what_follows() -> None:
    warm = replace(HEADER, config=replace(HEADER.config, temperature=0.5))
    log = recorded()
    ask(log, warm)
    ask(log, HEADER)
    ask(log, warm)
    segments = [row.parting.segment.words for row in rows(log) if row.parting is not None]
    assert segments == ["config temperature", "config temperature"]


def test_drift_at_an_instance_boundary_names_the_instance() -> None:
    log = recorded()
    ask(log)
    snapshot = resumed(log, replace(HEADER, message_prefix=(user("Rules."),)))
    (cause,) = rows(log)[-1].causes
    assert (cause.seq, cause.kind, cause.instance) == (snapshot.seq, "instance", 2)
    assert [drift.part for drift in cause.drifts] == ["prefix"]
    assert why(log)[0].startswith(f"event {snapshot.seq} request/header, the first of instance 2: prefix message 1 added: “")


def test_a_snapshot_that_stands_for_a_delta_is_no_boundary() -> None:
    look = ToolSchema("look", "Looks.", JsonText("{}"))
    log = recorded()
    ask(log, replace(HEADER, tools=(look, *(HEADER.tools or ()))))
    ask(log, replace(HEADER, tools=(*(HEADER.tools or ()), look)))
    (cause,) = rows(log)[-1].causes
    assert (cause.type, cause.kind) == ("request/header", "header")
    assert why(log)[0] == f"event {cause.seq} request/header: tools reordered"


def test_a_resumed_instance_with_the_same_header_breaks_nothing() -> None:
    log = recorded()
    ask(log)
    resumed(log, HEADER)
    row = rows(log)[-1]
    assert (row.course, row.causes) == ("kept", ())


def test_a_compaction_is_named_and_so_is_the_first_node_that_differs() -> None:
    log = recorded()
    ask(log)
    ask(log)
    nodes = [node.seq for node in log.surface.nodes]
    event = log.replace(UserMessage(text_content("A summary."), LOOP), nodes[1], nodes[-1])
    ask(log)
    row = rows(log)[-1]
    assert row.parting is not None
    assert (row.parting.segment.kind, row.parting.segment.index, row.parting.node) == ("history", 1, event.seq)
    assert why(log)[0] == f"event {event.seq} user/message: compaction put it in place of 3 nodes"


def test_a_history_that_ends_early_names_the_node_that_is_gone() -> None:
    log = recorded()
    ask(log)
    ask(log)
    nodes = [node.seq for node in log.surface.nodes]
    log.replace(UserMessage(text_content("Question 1?"), LOOP), nodes[0], nodes[-1])
    log.turn(None)
    log.step()
    row = rows(log)[-1]
    assert row.parting is not None
    assert (row.parting.segment.kind, row.parting.node) == ("history", nodes[1])


def test_a_pruned_tool_result_is_named() -> None:
    log = recorded()
    log.turn()
    log.tool_step("c1")
    log.step()
    log.reply("Well.")
    log.end_step()
    log.end_turn()
    result = next(node for node in log.surface.nodes if isinstance(node.data, ToolResult))
    assert isinstance(result.data, ToolResult)
    pruned = log.replace(replace(result.data, content=text_content("(cut)")), result.seq, result.seq)
    ask(log)
    row = rows(log)[-1]
    assert row.parting is not None
    assert row.parting.node == pruned.seq
    assert why(log)[0] == f"event {pruned.seq} tool/result: pruning put it in place of 1 node"


def test_of_several_causes_the_one_of_the_first_break_comes_first() -> None:
    log = recorded()
    ask(log)
    nodes = [node.seq for node in log.surface.nodes]
    log.replace(UserMessage(text_content("A summary."), LOOP), nodes[0], nodes[-1])
    ask(log, OTHER)
    assert [line.split(" ")[2] for line in why(log)[:2]] == ["request/header-delta:", "user/message:"]


def test_a_request_of_an_encoder_that_is_not_here_is_judged_by_the_request_alone() -> None:
    log = Log()
    log.instance()
    ask(log)
    ask(log)
    ask(log, OTHER)
    assert [(row.course, row.common, row.parting) for row in rows(log)] == [
        ("first", None, None),
        ("kept", None, None),
        ("break", None, None),
    ]
    assert "system text, line 1" in why(log)[0]


def test_an_image_that_is_gone_leaves_the_bytes_unknown_and_the_cause_known() -> None:
    log = recorded()
    log.turn(None)
    log.append(UserMessage((ImageBlock("image/png", PNG),), CLIENT))
    log.dialect = None
    log.step()
    log.reply("Nice.")
    log.end_step()
    log.end_turn()
    ask(log)
    ask(log, OTHER)
    real = [_as_if_sent(event) for event in log.events]
    assert fold_attribution(real).rows[1].common is not None, "what only grew is compared without being encoded"
    assert fold_attribution(real).rows[-1].common is None
    assert fold_attribution(real).rows[-1].course == "break"
    assert fold_attribution(real, blobs=BLOBS).rows[-1].common is not None


def _as_if_sent(event: Event) -> Event:
    if isinstance(event.data, RequestSent):
        return replace(event, data=replace(event.data, encoder=CHAT_COMPLETIONS.encoder))
    return event


@given(logs(dialect=CHAT_COMPLETIONS))
def test_common_bytes_are_those_of_the_two_bodies_for_any_log(log: Log) -> None:
    """Invariant: The bytes that two requests share are those of their bodies, however they were found; every break has a cause
    in the log.

    However they were found: from the recorded sizes where the history only grew, else from both bodies.
    """
    bodies = [encode(request, {}) for _, _, request in sent_requests(log.events)]
    found = rows(log)
    assert [row.bytes for row in found] == [len(body) for body in bodies]
    for (before, now), row in zip(pairwise(bodies), found[1:], strict=True):
        common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False))))
        assert row.common == common
        assert (row.course == "break") == (common < len(before) - 2)
        assert (row.parting is None) == (row.course != "break")
        assert row.course != "break" or row.causes


@given(logs(dialect=CHAT_COMPLETIONS), st.integers(0, 60))
def test_going_on_from_any_state_equals_folding_all(log: Log, cut: int) -> None:
    """Invariant: Attribution folded from any state on equals attribution of the whole log."""
    whole = fold_attribution(log.events)
    half = fold_attribution(log.events[:cut])
    assert fold_attribution(log.events[cut:], half) == whole
    assert fold_attribution(log.events[cut:], half).rows == whole.rows
    for event in log.events:  # other steps taken from the older state change nothing
        if event.seq >= cut:
            half = attribution_step(half, event)
    assert half == whole


def test_a_log_without_requests_has_no_rows() -> None:
    assert Attribution() == NOTHING_ASKED
    assert NOTHING_ASKED.rows == ()
