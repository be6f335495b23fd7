"""Any two requests of a log can be explained against each other, with all causes between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS, encode
from refold_protocol.dialects.growing_body import common_prefix
from refold_protocol.errors import TurnMismatchError
from refold_protocol.session.cache_report import Explanation, RequestHistory, verdict_of
from refold_protocol.session.messages import Usage
from refold_protocol.session.request import sent_requests
from tests.support.attributions import ask, recorded, rows
from tests.support.log_strategies import logs
from tests.support.logs import HEADER, Log

OTHER = replace(HEADER, system="Be thorough.")


def history(log: Log) -> RequestHistory:
    found = RequestHistory()
    for event in log.events:
        found.feed(event)
    return found


def verdict(found: Explanation) -> str:
    return verdict_of(found.row, found.state.caching)


def test_without_another_one_a_request_is_compared_with_the_one_before() -> None:
    log = recorded()
    ask(log)
    ask(log, OTHER)
    ask(log)
    gathered = history(log)
    for turn in (2, 3):
        found = gathered.explain((turn, 1))
        assert found.row == rows(log)[turn - 1]
        assert found.against == rows(log)[turn - 2]
    first = gathered.explain((1, 1))
    assert (first.row, first.against, verdict(first)) == (rows(log)[0], None, "first")


def test_a_step_that_was_tried_again_is_compared_with_the_step_before() -> None:
    log = recorded()
    ask(log)
    log.turn()
    log.step(OTHER)
    log.send(2)
    log.reply("Well.", usage=Usage(10, 1, 0))
    log.end_step()
    found = history(log).explain((2, 1))
    assert found.against is not None
    assert (found.row.attempt, found.against.turn, verdict(found)) == (2, 1, "break")
    assert found.row.usage == Usage(10, 1, 0)
    assert [cause.kind for cause in found.row.causes] == ["header"]


def test_all_causes_between_two_requests_are_given_and_what_was_changed_back_breaks_nothing() -> None:
    log = recorded()
    ask(log, usage=Usage(5000, 1, 0))
    ask(log, OTHER)
    ask(log, HEADER, Usage(100, 1, 5000))
    gathered = history(log)
    found = gathered.explain((3, 1), (1, 1))
    assert (verdict(found), [cause.kind for cause in found.row.causes]) == ("kept", ["header", "header"])
    assert found.row.common == rows(log)[0].bytes - 2
    assert gathered.explain((1, 1), (3, 1)) == found, "the later one is compared with the earlier one"


def test_a_step_that_is_not_there_is_an_error_and_so_is_the_step_itself() -> None:
    log = recorded()
    ask(log)
    ask(log)
    gathered = history(log)
    with pytest.raises(TurnMismatchError, match=r"no request of step 9\.1"):
        gathered.explain((9, 1))
    with pytest.raises(TurnMismatchError, match=r"no request of step 1\.2"):
        gathered.explain((2, 1), (1, 2))
    with pytest.raises(TurnMismatchError, match="itself"):
        gathered.explain((2, 1), (2, 1))


@given(logs(dialect=CHAT_COMPLETIONS))
def test_the_common_bytes_of_any_two_requests_are_those_of_their_bodies(log: Log) -> None:
    bodies = {(sent.turn or 0, sent.step or 0): encode(request, {}) for _, sent, request in sent_requests(log.events)}
    gathered = history(log)
    for one in bodies:
        for other in bodies:
            if one < other:
                found = gathered.explain(other, one)
                assert found.row.common == common_prefix(bodies[one], bodies[other])
                assert (found.row.course == "break") == (found.row.parting is not None)


def test_a_request_for_a_summary_between_any_two_requests_is_named() -> None:
    log = recorded()
    ask(log, usage=Usage(4000, 10, 0))
    ask(log, usage=Usage(20, 10, 4000))
    log.compaction(log.surface.nodes[0].seq, log.surface.nodes[-1].seq, None)
    ask(log, usage=Usage(2100, 10, 2000))
    ask(log, usage=Usage(20, 10, 4100))
    gathered = history(log)
    sent = [event.seq for event in log.events if event.type == "request/sent"]
    assert [gathered.explain((turn, 1)).row.summary for turn in (2, 3, 4)] == [None, sent[2], None]
    assert gathered.explain((4, 1), (1, 1)).row.summary == sent[2]
    assert gathered.explain((2, 1), (1, 1)).row.summary is None
