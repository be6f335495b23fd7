"""The offline check: a whole log holds, and each kind of damage is named with the place where it shows."""

from __future__ import annotations

from msgspec.structs import replace

from refold_protocol.dialects.dialect_table import DIALECTS
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import chain, seal
from refold_protocol.session.events import (
    Draft,
    EncoderId,
    Event,
    EventData,
    ForeignData,
    RequestHeader,
    RequestSent,
    ToolResult,
    UserMessage,
)
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, TextDelta, ToolResultBlock, text_content
from refold_protocol.verify import Difference, Report, Verifier
from tests.support.logs import HEADER, TIME, Log, spoken

DIALECT = DIALECTS["chat-completions"]


def _recorded() -> Log:
    """A log of two instances: calls, a retry, a cut stream with closers, a compaction that failed and one that did not, a
    changed header; six requests of steps, two of compactions."""
    log = Log(DIALECT)
    log.instance()
    log.accept("in")
    log.turn("Why?")
    log.tool_step("c1", "c2")
    log.step()
    log.send(2)
    log.stream(*spoken("Because."), attempt=2)
    log.reply("Because.")
    log.end_step()
    log.end_turn()
    log.turn("And?")
    log.step()
    log.stream(TextDelta(0, "Half"))
    log.close()
    log.instance("resume")
    nodes = log.surface.nodes
    log.compaction(nodes[0].seq, nodes[-2].seq, None)
    log.compaction(nodes[0].seq, nodes[-1].seq)
    log.whole_turn("So?", "So.")
    log.turn("Then?")
    log.step(EpochHeader(HEADER.config, "Be thorough."))
    log.close()
    return log


def _checked(lines: list[bytes], head: str | None = None, tail: int | None = None) -> Report:
    verifier = Verifier()
    for line in lines:
        verifier.feed(line)
    return verifier.report(head, tail)


def _found(lines: list[bytes], of: list[bytes]) -> list[tuple[int, str]]:
    """Check `lines` against the record of the undamaged log `of`: seq and check of each difference."""
    report = _checked(lines, chain(of).hex(), len(of) - 1)
    assert not report.holds
    assert report.events == len(lines)
    return [(one.seq, one.check) for one in report.differences]


def _sent(log: Log) -> list[Event]:
    return [event for event in log.events if isinstance(event.data, RequestSent) and event.data.purpose == "step"]


def _first(log: Log, kind: type) -> Event:
    return next(event for event in log.events if isinstance(event.data, kind))


def _with(log: Log, event: Event, data: EventData) -> list[bytes]:
    """Give the lines of a log in which one event says something else, with everything else as it was."""
    lines = log.lines
    draft = Draft(data, event.surface_op, event.sources, event.ignorable, None, event.time)
    lines[event.seq] = seal(draft, event.seq, 0).line
    return lines


def test_an_empty_log_holds() -> None:
    report = _checked([], chain([]).hex(), -1)
    assert report == Report(0, 0, 0, 0, chain([]).hex(), ())
    assert report.holds


def test_a_log_that_was_recorded_holds_and_each_of_its_requests_is_equal() -> None:
    log = _recorded()
    head = chain(log.lines).hex()
    report = _checked(log.lines, head, len(log.events) - 1)
    assert report == Report(len(log.events), 8, 8, 0, head, ())
    assert report.holds


def test_without_the_record_beside_it_a_log_is_checked_against_itself() -> None:
    log = _recorded()
    assert _checked(log.lines).holds
    assert _checked(log.lines[:-3]).holds


def test_a_changed_word_shows_at_the_first_request_that_would_have_held_it() -> None:
    log = _recorded()
    lines = log.lines
    prompt = _first(log, UserMessage).seq
    lines[prompt] = lines[prompt].replace(b"Why?", b"Who?")
    first, second, retry, third, *_ = _sent(log)
    summaries = [event for event in log.events if isinstance(event.data, RequestSent) and event.data.purpose == "summary"]
    found = _found(lines, log.lines)
    of_first = [(one.seq, check) for one in (first, second, retry, third, *summaries) for check in ("request", "body")]
    assert found == [*of_first, (len(lines) - 1, "head")]
    differences = _checked(lines).differences
    assert [(one.turn, one.step) for one in differences[::2]] == [(1, 1), (1, 2), (1, 2), (2, 1), *[(None, None)] * 2]
    data = first.data
    assert isinstance(data, RequestSent)
    assert data.request_sha256 in differences[0].message
    assert data.sha256 in differences[1].message


def test_a_changed_byte_that_no_request_holds_shows_in_the_chain() -> None:
    log = _recorded()
    lines = log.lines
    chunk = next(event.seq for event in log.events if event.type == "assistant/chunk")
    lines[chunk + 1] = lines[chunk + 1].replace(b"Because.", b"Became..")
    assert _found(lines, log.lines) == [(len(lines) - 1, "head")]


def test_a_line_that_is_no_event_any_more_is_named_and_ends_the_folding() -> None:
    log = _recorded()
    lines = log.lines
    prompt = _first(log, UserMessage).seq
    for broken in (lines[prompt][:-1], b"", b"\x00" * 20, b"{}", lines[prompt].replace(b'"content"', b'"contents"')):
        lines[prompt] = broken
        assert _found(lines, log.lines) == [(prompt, "line"), (len(lines) - 1, "head")]
        assert _checked(lines).requests == 0


def test_a_dropped_line_is_one_difference_where_it_is_missing() -> None:
    log = _recorded()
    lines = log.lines
    accepted = next(event.seq for event in log.events if event.type == "input/accepted")
    del lines[accepted]
    assert _found(lines, log.lines) == [(accepted, "line"), (len(lines), "head")]
    report = _checked(lines)
    assert report.differences[0].message == f"the event at place {accepted} calls itself {accepted + 1}"
    assert report.equal == 8


def test_a_dropped_line_that_the_grammar_misses_is_named_by_it_too() -> None:
    log = _recorded()
    lines = log.lines
    step = next(event.seq for event in log.events if event.type == "step/start")
    del lines[step]
    assert _found(lines, log.lines)[:2] == [(step, "line"), (step, "grammar")]


def test_swapped_lines_are_named_at_both_places() -> None:
    log = _recorded()
    lines = log.lines
    lines[0], lines[1] = lines[1], lines[0]
    assert _found(lines, log.lines) == [(0, "line"), (1, "line"), (len(lines) - 1, "head")]


def test_a_repeated_line_is_named() -> None:
    log = _recorded()
    lines = [log.lines[0], *log.lines]
    found = _found(lines, log.lines)
    assert found == [(1, "line"), (1, "grammar"), (len(log.lines), "head")]


def test_a_time_that_goes_back_is_named() -> None:
    log = _recorded()
    event = log.events[4]
    lines = _with(log, replace(event, time=TIME), event.data)
    assert _checked(lines).differences == (Difference(4, "line", f"its time goes back from {TIME + 3} to {TIME}"),)


def test_a_tail_that_was_cut_off_shows_against_the_record() -> None:
    log = _recorded()
    lines = log.lines[:-3]
    assert _found(lines, log.lines) == [(len(lines), "head")]
    (end,) = _checked(lines, tail=len(log.events) - 1).differences
    assert end.last == len(log.events) - 1
    assert "missing at the end" in end.message
    (end,) = _checked(log.lines, tail=len(lines) - 1).differences
    assert (end.seq, end.last) == (len(lines), len(log.events) - 1)
    assert "behind the end" in end.message


def test_a_recorded_digest_of_a_request_that_is_wrong_is_named_with_its_step() -> None:
    log = _recorded()
    sent = _sent(log)[1]
    assert isinstance(sent.data, RequestSent)
    report = _checked(_with(log, sent, replace(sent.data, request_sha256="00" * 32)))
    (found,) = report.differences
    assert (found.seq, found.check, found.turn, found.step) == (sent.seq, "request", 1, 2)
    assert (report.requests, report.equal, report.not_shipped) == (8, 7, 0)


def test_a_recorded_body_that_differs_in_length_or_digest_is_named_with_its_step() -> None:
    log = _recorded()
    sent = _sent(log)[1]
    assert isinstance(sent.data, RequestSent)
    for wrong in (replace(sent.data, sha256="00" * 32), replace(sent.data, bytes=sent.data.bytes + 1)):
        report = _checked(_with(log, sent, wrong))
        (found,) = report.differences
        assert (found.seq, found.check, found.turn, found.step) == (sent.seq, "body", 1, 2)
        assert (report.requests, report.equal, report.not_shipped) == (8, 7, 0)


def test_a_recorded_digest_of_a_summary_request_that_is_wrong_is_named() -> None:
    """Invariant: The request for a summary is a function of the log, and reads what the provider has in its cache."""
    log = _recorded()
    sent = next(event for event in log.events if isinstance(event.data, RequestSent) and event.data.purpose == "summary")
    assert isinstance(sent.data, RequestSent)
    report = _checked(_with(log, sent, replace(sent.data, request_sha256="00" * 32, sha256="00" * 32)))
    assert [(one.seq, one.check) for one in report.differences] == [(sent.seq, "request"), (sent.seq, "body")]


def test_a_summary_that_was_asked_for_outside_of_a_compaction_is_named() -> None:
    log = Log(DIALECT)
    log.instance()
    sent = seal(Draft(RequestSent("summary", 1, DIALECT.encoder, 0, "", "")), len(log.events), TIME + 10)
    (found,) = _checked([*log.lines, sent.line]).differences
    assert found.seq == sent.seq
    assert "no compaction is open" in found.message


def test_an_encoder_that_is_not_shipped_is_a_third_verdict_and_no_difference() -> None:
    log = _recorded()
    sent = _sent(log)[1]
    assert isinstance(sent.data, RequestSent)
    for encoder in (EncoderId(DIALECT.encoder.name, DIALECT.encoder.version + 1), EncoderId("no-such-dialect", 1)):
        lines = _with(log, sent, replace(sent.data, encoder=encoder, sha256="00" * 32, bytes=0))
        report = _checked(lines)
        assert report.holds
        assert (report.requests, report.equal, report.not_shipped) == (8, 7, 1)


def test_a_wrong_request_is_a_difference_whether_or_not_its_encoder_is_shipped() -> None:
    log = _recorded()
    sent = _sent(log)[1]
    assert isinstance(sent.data, RequestSent)
    wrong = replace(sent.data, encoder=EncoderId("no-such-dialect", 1), request_sha256="00" * 32)
    report = _checked(_with(log, sent, wrong))
    assert [one.check for one in report.differences] == ["request"]
    assert (report.requests, report.equal, report.not_shipped) == (8, 7, 0)


def test_a_header_that_was_changed_shows_at_its_requests() -> None:
    log = _recorded()
    header = _first(log, RequestHeader)
    other = EpochHeader(CallConfig("engine", "chain", "chat-completions", temperature=1.0), HEADER.system, HEADER.tools)
    lines = _with(log, header, RequestHeader(other, "initial"))
    found = {(one.seq, one.check) for one in _checked(lines).differences}
    assert found == {(sent.seq, check) for sent in _sent(log) for check in ("request", "body")}  # a delta leaves config alone


def test_an_event_that_may_not_stand_where_it_stands_is_named() -> None:
    log = _recorded()
    result = _first(log, ToolResult)
    assert isinstance(result.data, ToolResult)
    report = _checked(_with(log, result, replace(result.data, call_id="c9")))
    assert [(one.seq, one.check) for one in report.differences] == [(result.seq, "grammar")]
    assert "no call 'c9' waits" in report.differences[0].message


def test_an_unknown_event_that_may_not_be_skipped_is_named() -> None:
    log = Log(DIALECT)
    for ignorable in (True, False):
        log.add(ForeignData(JsonText("{}")), type="plugin/surface", ignorable=ignorable)
    assert [(one.seq, one.check) for one in _checked(log.lines).differences] == [(1, "grammar")]


def test_a_request_whose_calls_do_not_pair_is_named_with_its_step() -> None:
    log = Log(DIALECT)
    stray = Message("user", (ToolResultBlock("c9", text_content("found"), False),))
    log.turn()
    log.step(EpochHeader(HEADER.config, message_prefix=(stray,)))
    (found,) = _checked(log.lines).differences
    assert (found.check, found.turn, found.step) == ("pairing", 1, 1)
    assert "c9" in found.message
