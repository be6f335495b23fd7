"""Each check finds what only it can find, at its place; and whatever byte is changed, the check ends with its record's name."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.dialect_table import DIALECTS
from refold_protocol.ids import CallId
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import CHAIN_START, chain, seal
from refold_protocol.session.event_data import SystemDelta
from refold_protocol.session.events import (
    Draft,
    EncoderId,
    Replace,
    RequestHeaderDelta,
    RequestSent,
    StepStart,
    ToolResult,
    Trigger,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, ToolResultBlock, text_content
from refold_protocol.verify import Report, Verifier
from tests.support.logs import HEADER, LOOP, TIME, Log

DIALECT = DIALECTS["chat-completions"]

RUN = 7
"""Events of a record in these tests."""


@cache
def _lines() -> tuple[bytes, ...]:
    """A log of three turns: calls, a replace, a changed header."""
    log = Log(DIALECT)
    log.instance()
    log.turn("Why?")
    log.tool_step("c1", "c2")
    log.step()
    log.reply("Because.")
    log.end_step()
    log.end_turn()
    nodes = log.surface.nodes
    log.replace(UserMessage(text_content("A summary."), LOOP), nodes[0].seq, nodes[-1].seq)
    log.whole_turn("So?", "So.")
    log.turn("Then?")
    log.step(EpochHeader(CallConfig("engine", "chain", "chat-completions", temperature=0.5), "Be thorough."))
    log.close()
    return tuple(log.lines)


def _checked(lines: tuple[bytes, ...], *, of: tuple[bytes, ...] | None = None) -> Report:
    """Check lines in records of RUN events; the digests are those of the log `of`, whose record stands beside it."""
    true, verifier = lines if of is None else of, Verifier()
    for first in range(0, len(lines), RUN):
        for line in lines[first : first + RUN]:
            verifier.feed(line)
        verifier.end_record(chain(true[: first + RUN]))
    return verifier.report(chain(true).hex(), len(true) - 1)


def _with(data: Any, **envelope: Any) -> tuple[int, Report]:
    """Check the log with one more event, which its writer let through; give the event's seq too."""
    lines = _lines()
    event = seal(Draft(data, **envelope), len(lines), TIME + 1_000)
    return event.seq, _checked((*lines, event.line))


def _found(report: Report) -> list[tuple[str, int, int | None]]:
    return [(one.check, one.seq, one.last) for one in report.differences]


def test_the_log_of_these_tests_holds() -> None:
    report = _checked(_lines())
    assert report.holds
    assert report.requests == report.equal == 4
    assert report.head_digest == chain(_lines()).hex()


def test_an_event_that_may_not_follow_is_found_by_the_grammar_alone() -> None:
    seq, report = _with(StepStart(3, 2))
    assert _found(report) == [("grammar", seq, None)]
    seq, report = _with(TurnStart(9, Trigger("message", LOOP)))
    assert _found(report) == [("grammar", seq, None)]


def test_a_replace_of_a_node_that_is_not_on_the_surface_is_found_by_the_surface_alone() -> None:
    """The first user message was replaced by a summary before."""
    data = UserMessage(text_content("Another summary."), LOOP)
    seq, report = _with(data, surface_op=Replace(2, 2), sources=((2, 2),))
    assert _found(report) == [("surface", seq, None)]
    assert "which is not on the surface" in report.differences[0].message


def test_a_result_put_in_place_of_something_else_is_found_by_the_surface_alone() -> None:
    node = next(at for at, line in enumerate(_lines()) if b"A summary." in line)
    data = ToolResult(1, 1, CallId("c1"), text_content("x"), is_error=False)
    seq, report = _with(data, surface_op=Replace(node, node), sources=((node, node),))
    assert _found(report) == [("surface", seq, None)]


def test_a_header_delta_before_any_header_is_found_by_the_header_check_alone() -> None:
    log = Log(DIALECT)
    log.instance()
    log.turn()
    log.add(StepStart(1, 1))
    event = seal(Draft(RequestHeaderDelta(system=SystemDelta(0, ("Be brief.",), 0))), len(log.lines), TIME + 10)
    report = _checked((*log.lines, event.line))
    assert _found(report) == [("header", event.seq, None)]
    assert "none was recorded before" in report.differences[0].message


def test_a_header_delta_that_does_not_fit_is_found_by_the_header_check_alone() -> None:
    log = Log(DIALECT)
    log.whole_turn()
    log.turn()
    log.add(StepStart(2, 1))
    event = seal(Draft(RequestHeaderDelta(system=SystemDelta(40, ("x",), 40))), len(log.lines), TIME + 100)
    assert _found(_checked((*log.lines, event.line))) == [("header", event.seq, None)]


def test_a_request_before_any_header_is_found_by_the_grammar_alone() -> None:
    log = Log(DIALECT)
    log.turn()
    log.add(StepStart(1, 1))
    sent = seal(Draft(RequestSent("step", 1, EncoderId("none", 1), 0, "", "", 1, 1)), len(log.lines), TIME + 10)
    assert _found(_checked((*log.lines, sent.line))) == [("grammar", sent.seq, None)]


def test_a_result_without_its_call_is_found_by_the_pairing_alone() -> None:
    log = Log(DIALECT)
    log.turn()
    stray = Message("user", (ToolResultBlock("c9", text_content("found"), False),))
    log.step(EpochHeader(HEADER.config, message_prefix=(stray,)))
    assert _found(_checked(tuple(log.lines))) == [("pairing", len(log.lines) - 1, None)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb"{\"maxTokensField\":\"max_tokens\"}", rb"{\"maxTokensField\":\"max_tokenz\"}"),
        (rb"{\"seed\":7}", rb"[\"seed\",7]"),
        (rb"{\"seed\":7}", rb"{\"seed\";7}"),
        (rb"{\"seed\":7}", rb"7777777777"),
    ],
)
def test_opaque_text_of_a_header_that_no_encoder_can_follow_is_named_and_the_check_goes_on(old: bytes, new: bytes) -> None:
    config = CallConfig(
        "engine",
        "chain",
        "chat-completions",
        dialect_options=JsonText('{"maxTokensField":"max_tokens"}'),
        extra=JsonText('{"seed":7}'),
    )
    log = Log(DIALECT)
    log.turn()
    log.step(EpochHeader(config))
    log.close()
    log.turn()
    log.step(HEADER)
    log.close()
    lines = tuple(line.replace(old, new) for line in log.lines)
    assert lines != tuple(log.lines)
    report = _checked(lines, of=tuple(log.lines))
    assert [one.check for one in report.differences] == ["chain", "request", "body"]
    assert (report.requests, report.equal) == (2, 1)


def test_behind_a_gap_lines_and_chain_are_checked_and_requests_are_not() -> None:
    lines, verifier = _lines(), Verifier()
    for line in lines[:RUN]:
        verifier.feed(line)
    verifier.end_record(chain(lines[:RUN]))
    verifier.skip(2 * RUN - 1, "gone", None)
    assert verifier.place == 2 * RUN
    for first in range(2 * RUN, len(lines), RUN):
        for line in lines[first : first + RUN]:
            verifier.feed(line)
        verifier.end_record(chain(lines[: first + RUN]) if first != 3 * RUN else CHAIN_START)
    report = verifier.report(chain(lines).hex(), len(lines) - 1)
    assert _found(report) == [("record", RUN, 2 * RUN - 1), ("chain", 3 * RUN, 4 * RUN - 1)]
    assert report.events == len(lines) - RUN
    assert report.requests == 1
    assert report.head_digest == chain(lines).hex()


def test_two_swapped_records_of_one_size_are_named_and_those_around_them_are_not() -> None:
    lines, verifier = _lines(), Verifier()
    order = [*range(0, len(lines), RUN)]
    order[1], order[3] = order[3], order[1]
    assert len(lines) >= 4 * RUN
    for first in order:
        for line in lines[first : first + RUN]:
            verifier.feed(line)
        verifier.end_record(chain(lines[: first + RUN]))
    report = verifier.report(chain(lines).hex(), len(lines) - 1)
    assert [place for place in _found(report) if place[0] == "chain"] == [
        ("chain", RUN, 2 * RUN - 1),
        ("chain", 3 * RUN, 4 * RUN - 1),
    ]
    assert [place for place in _found(report) if place[0] == "line"] == [("line", RUN, None), ("line", 3 * RUN, None)]
    assert {place[0] for place in _found(report)} == {"chain", "line", "grammar"}


def test_a_log_whose_end_is_lost_has_no_head() -> None:
    verifier = Verifier()
    verifier.skip(3, "gone", None)
    report = verifier.report(CHAIN_START.hex(), 3)
    assert _found(report) == [("record", 0, 3)]
    assert (report.events, report.head_digest) == (0, "")


def test_a_time_that_leaps_ahead_is_one_difference_however_many_events_follow() -> None:
    lines = _lines()
    leap = lines[3].replace(b'"time":17', b'"time":97')
    assert leap != lines[3]
    report = _checked((*lines[:3], leap, *lines[4:]), of=lines)
    assert _found(report) == [("chain", 0, RUN - 1), ("line", 4, None)]


@given(st.data())
def test_any_changed_byte_is_found_and_named_with_its_record(data: st.DataObject) -> None:
    """Invariant: Any changed byte of a stored log is found and named with its record, and nothing else is blamed for it."""
    lines = _lines()
    at = data.draw(st.integers(0, len(lines) - 1))
    byte = data.draw(st.integers(0, len(lines[at]) - 1))
    mask = data.draw(st.integers(1, 255))
    changed = bytearray(lines[at])
    changed[byte] ^= mask
    report = _checked((*lines[:at], bytes(changed), *lines[at + 1 :]), of=lines)
    first = at - at % RUN
    chains = [(one.seq, one.last) for one in report.differences if one.check == "chain"]
    assert chains == [(first, min(first + RUN, len(lines)) - 1)]
    assert report.differences[0].seq == first
    assert not any(one.check in ("head", "record") for one in report.differences)
