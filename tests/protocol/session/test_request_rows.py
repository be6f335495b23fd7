"""One row a request: what the log says of it in several events, joined."""

from __future__ import annotations

from refold_protocol.session.events import CompactEnd, CompactStart, InstanceStart, LlmRetry, TurnError, UnusedSummary
from refold_protocol.session.messages import Usage
from refold_protocol.session.request_rows import RequestRows, SentRow
from refold_protocol.session.session_totals import EMPTY_SUMMARY, UsageTotals, summary_step
from tests.support.logs import HEADER, Log


def rows(log: Log, inherited: int = -1) -> list[SentRow]:
    """Gather the rows of a log."""
    gathered = RequestRows(inherited)
    for event in log.events:
        gathered.feed(event)
    return gathered.rows


def totals(log: Log) -> tuple[UsageTotals, UsageTotals]:
    """Give what a log cost itself, and what it inherited."""
    state = EMPTY_SUMMARY
    for event in log.events:
        state = summary_step(state, event)
    return state.usage, state.inherited


def asked(log: Log, usage: Usage | None = None) -> None:
    """Write a turn of one step."""
    log.turn()
    log.step()
    log.reply("Because.", usage=usage)
    log.end_step()
    log.end_turn()


def test_each_attempt_has_a_row_with_its_end_and_the_last_has_the_usage() -> None:
    log = Log()
    log.turn()
    log.step()
    log.add(LlmRetry(1, 1, 1, "provider.timeout", 10))
    log.send(2)
    log.reply("Because.", usage=Usage(100, 10, 5))
    one, two = rows(log)
    assert (one.turn, one.step, one.attempt, one.end, one.usage) == (1, 1, 1, "provider.timeout", None)
    assert (two.turn, two.step, two.attempt, two.end, two.usage) == (1, 1, 2, "stop", Usage(100, 10, 5))
    assert (two.model, two.dialect) == (f"{HEADER.config.provider}/{HEADER.config.model}", "no-such-dialect")
    sent = log.events[two.seq]
    assert (two.time, two.purpose, two.digest) == (sent.time, "step", sent.data.request_sha256)  # pyright: ignore
    assert two.duration_ms == log.events[-1].time - sent.time


def test_a_request_that_nobody_answered_yet_has_no_end() -> None:
    log = Log()
    log.turn()
    log.step()
    (row,) = rows(log)
    assert (row.end, row.duration_ms, row.usage) == (None, None, None)


def test_a_summary_has_a_row_with_its_compaction_and_what_it_cost() -> None:
    log = Log()
    asked(log, Usage(100, 10))
    nodes = log.surface.nodes
    began = log.compaction(nodes[0].seq, nodes[-1].seq, usage=Usage(140, 12))
    row = rows(log)[-1]
    assert (row.purpose, row.compaction, row.step, row.usage, row.end) == ("summary", began.seq, None, Usage(140, 12), "stop")
    assert totals(log) == (UsageTotals(240, 22), UsageTotals())


def test_summaries_that_were_thrown_away_have_their_own_costs_and_are_paid_for() -> None:
    log = Log()
    asked(log, Usage(100, 10))
    first, last = (log.surface.nodes[place].seq for place in (0, -1))
    began = log.add(CompactStart("user", (first, last), "Sum up.", HEADER.config))
    for attempt in (1, 2):
        log.send_summary(attempt)
    unused = (UnusedSummary(1, Usage(140, 1)), UnusedSummary(2, Usage(140, 2)))
    log.add(CompactEnd(TurnError("compaction.failed", "It says nothing."), unused))
    one, two = rows(log)[1:]
    assert (one.compaction, one.attempt, one.usage, one.end) == (began.seq, 1, Usage(140, 1), "failed")
    assert (two.compaction, two.attempt, two.usage, two.end) == (began.seq, 2, Usage(140, 2), "compaction.failed")
    assert totals(log)[0] == UsageTotals(380, 13)


def test_a_fork_does_not_count_again_what_it_inherited() -> None:
    log = Log()
    asked(log, Usage(100, 10))
    cut = len(log.events) - 1
    log.add(InstanceStart(log.work.instance + 1, "fork"))
    asked(log, Usage(7, 3))
    assert [row.inherited for row in rows(log, cut)] == [True, False]
    assert totals(log) == (UsageTotals(7, 3), UsageTotals(100, 10))
