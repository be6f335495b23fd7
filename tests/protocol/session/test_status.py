"""The status says in one word what stands open, and names it."""

from __future__ import annotations

from hypothesis import given

from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.events import ApprovalAsked, ApprovalDecided, ApprovalSubject, CompactEnd, CompactStart
from refold_protocol.session.grammar import NO_TURN
from refold_protocol.session.messages import encode_compact
from refold_protocol.session.session_state import Status, phase_of, status_of
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, HEADER, Log, call

SUBJECT = ApprovalSubject("path", "a.txt")


def _with_calls() -> Log:
    log = Log()
    log.turn()
    log.step()
    log.reply(call("c1"), call("c2"))
    return log


def test_a_session_is_idle_before_and_after_a_turn() -> None:
    assert status_of(NO_TURN) == Status("idle")
    log = Log()
    log.whole_turn()
    assert status_of(log.work) == Status("idle")


def test_a_session_runs_from_the_start_of_a_turn_to_its_end() -> None:
    log = Log()
    log.turn()
    assert status_of(log.work) == Status("running", 1)
    log.step()
    assert status_of(log.work) == Status("running", 1, 1)
    log.reply("Because.")
    log.end_step()
    assert status_of(log.work) == Status("running", 1)


def test_calls_are_open_in_their_order_until_they_have_results() -> None:
    log = _with_calls()
    log.call("c2")
    assert status_of(log.work) == Status("running", 1, 1, (CallId("c1"), CallId("c2")))
    log.result("c1")
    assert status_of(log.work) == Status("running", 1, 1, (CallId("c2"),))


def test_a_session_waits_while_an_approval_is_open() -> None:
    log = _with_calls()
    for number in (1, 2):
        log.add(ApprovalAsked(ApprovalId(f"ap{number}"), CallId(f"c{number}"), "read_file", SUBJECT))
    names = (CallId("c1"), CallId("c2"))
    assert status_of(log.work) == Status("waiting", 1, 1, names, (ApprovalId("ap1"), ApprovalId("ap2")))
    log.add(ApprovalDecided(ApprovalId("ap1"), "allowed", "once", CLIENT))
    assert status_of(log.work) == Status("waiting", 1, 1, names, (ApprovalId("ap2"),))
    log.add(ApprovalDecided(ApprovalId("ap2"), "denied", "once", CLIENT))
    assert status_of(log.work) == Status("running", 1, 1, names)


def test_a_session_compacts_inside_a_turn_and_outside() -> None:
    log = Log()
    log.whole_turn()
    log.add(CompactStart("user", (1, 1), "Sum up.", HEADER.config))
    assert status_of(log.work) == Status("compacting")
    log.add(CompactEnd())
    assert status_of(log.work) == Status("idle")
    log.turn()
    log.add(CompactStart("user", (1, 1), "Sum up.", HEADER.config, 2))
    assert status_of(log.work) == Status("compacting", 2)


def test_a_turn_that_makes_room_waits_for_the_provider() -> None:
    log = Log()
    log.turn()
    assert phase_of(log.work) == "loop"
    log.add(CompactStart("pressure", (1, 1), "Sum up.", HEADER.config, 1))
    assert phase_of(log.work) == "provider"
    log.add(CompactEnd())
    assert phase_of(log.work) == "loop"
    log.end_turn()
    log.add(CompactStart("user", (1, 1), "Sum up.", HEADER.config))
    assert phase_of(log.work) is None, "no turn runs"


def test_on_the_wire_what_is_not_open_is_absent() -> None:
    assert encode_compact(Status("idle")) == b'{"status":"idle"}'
    waiting = Status("waiting", 1, 2, (CallId("c1"),), (ApprovalId("ap"),))
    assert encode_compact(waiting) == b'{"status":"waiting","turn":1,"step":2,"openCalls":["c1"],"openApprovals":["ap"]}'


@given(logs())
def test_after_its_closers_every_log_is_idle(log: Log) -> None:
    log.close()
    assert status_of(log.work) == Status("idle")
