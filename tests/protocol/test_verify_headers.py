"""The offline check of a log with header deltas: it holds, and a delta that is wrong or out of place is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from refold_protocol.dialects.dialect_table import DIALECTS
from refold_protocol.errors import SessionCorruptionError
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import seal
from refold_protocol.session.events import Draft, EventData, RequestHeader, RequestHeaderDelta, RequestSent
from refold_protocol.session.messages import EpochHeader, SystemDelta, ToolSchema
from refold_protocol.session.request import rebuild, sent_requests
from refold_protocol.verify import Report, Verifier
from tests.support.header_strategies import related_headers
from tests.support.logs import HEADER, Log

RUN = ToolSchema("run", "Runs it.", JsonText("{}"))
COURSE = (
    replace(HEADER, system="Be brief.\nMind the tests."),
    replace(HEADER, system="Be brief.\nMind the style.", tools=(*(HEADER.tools or ()), RUN)),
    replace(HEADER, system=None, tools=(RUN,)),
)


def logged(headers: tuple[EpochHeader, ...]) -> Log:
    """A log with a turn for each header."""
    log = Log(DIALECTS["chat-completions"])
    log.instance()
    for header in headers:
        log.turn()
        log.step(header)
        log.reply("Because.")
        log.end_step()
        log.end_turn()
    return log


def checked(lines: list[bytes]) -> Report:
    verifier = Verifier()
    for line in lines:
        verifier.feed(line)
    return verifier.report()


def with_data(log: Log, seq: int, data: EventData) -> list[bytes]:
    """The lines of `log` with other data in one event."""
    event = log.events[seq]
    return [*log.lines[:seq], seal(Draft(data, time=event.time), seq, 0).line, *log.lines[seq + 1 :]]


def of_type(log: Log, kind: type) -> list[int]:
    return [event.seq for event in log.events if isinstance(event.data, kind)]


@given(related_headers(4))
def test_a_log_whose_header_changes_holds_and_each_request_has_its_own_header(headers: tuple[EpochHeader, ...]) -> None:
    log = logged(headers)
    report = checked(log.lines)
    assert report.holds
    assert (report.requests, report.equal) == (4, 4)
    assert tuple(request.header for _, _, request in sent_requests(log.events)) == headers
    assert rebuild(log.events, 3, 1).header == headers[2]


def test_a_change_is_recorded_as_a_delta_and_shows_in_the_rebuilt_requests() -> None:
    log = logged(COURSE)
    assert (len(of_type(log, RequestHeader)), len(of_type(log, RequestHeaderDelta))) == (1, 2)
    assert [request.header for _, _, request in sent_requests(log.events)] == list(COURSE)


def test_a_delta_that_says_something_else_shows_at_each_request_behind_it() -> None:
    log = logged(COURSE)
    delta = log.events[of_type(log, RequestHeaderDelta)[0]]
    assert isinstance(delta.data, RequestHeaderDelta)
    report = checked(with_data(log, delta.seq, replace(delta.data, system=SystemDelta(1, ("Mind the gap.",), 0), tools=None)))
    assert {one.seq for one in report.differences} >= {of_type(log, RequestSent)[1]}
    assert of_type(log, RequestSent)[0] not in {one.seq for one in report.differences}


def test_a_delta_that_does_not_fit_is_named_and_nothing_is_rebuilt_behind_it() -> None:
    log = logged(COURSE)
    delta = of_type(log, RequestHeaderDelta)[0]
    lines = with_data(log, delta, RequestHeaderDelta(system=SystemDelta(5, (), 5)))
    report = checked(lines)
    assert [one.seq for one in report.differences] == [delta]
    assert "does not fit the header that it changes: it keeps 5 and 5 lines" in report.differences[0].message
    assert report.requests == 1


def test_a_delta_without_a_snapshot_before_it_is_named_and_refused() -> None:
    log = Log()
    log.instance()
    log.turn()
    log.step()
    snapshot = of_type(log, RequestHeader)[0]
    lines = with_data(log, snapshot, RequestHeaderDelta(config=HEADER.config))
    assert checked(lines).differences[0].seq == snapshot
    events = [*log.events[:snapshot], seal(Draft(RequestHeaderDelta(config=HEADER.config)), snapshot, 0)]
    with pytest.raises(SessionCorruptionError, match=f"event {snapshot} changes a header, but none was recorded before"):
        rebuild(events, 1, 1)
