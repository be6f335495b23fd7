"""How a turn ends: one table of kinds, what each carries, and room for kinds of others."""

from __future__ import annotations

import pytest

from refold_protocol.errors import KINDS, InvalidEventError, SessionCorruptionError
from refold_protocol.json_text import JsonText
from refold_protocol.session import event_data as endings
from refold_protocol.session.codec import decode_event, seal
from refold_protocol.session.event_data import TURN_ENDS, aborted, blocked, failed, is_foreign_end
from refold_protocol.session.events import AbortCause, Draft, TurnEnd, TurnEndReason, TurnError

EXAMPLES = {
    "completed": endings.COMPLETED,
    "max-tokens": endings.MAX_TOKENS,
    "max-steps": endings.MAX_STEPS,
    "interrupted": endings.INTERRUPTED,
    "forked": endings.FORKED,
    "aborted": aborted(AbortCause("user", "enough")),
    "error": failed(TurnError("provider.timeout", "No answer in 60 s. Try again.", 2)),
    "blocked": blocked("not on a Friday"),
}


@pytest.mark.parametrize("kind", TURN_ENDS)
def test_each_kind_of_end_carries_its_payload_and_nothing_else(kind: str) -> None:
    reason = EXAMPLES[kind]
    assert reason.kind == kind
    carried = {name for name in ("cause", "error", "reason") if getattr(reason, name) is not None}
    assert carried == {TURN_ENDS[kind].payload} - {None}


@pytest.mark.parametrize("kind", TURN_ENDS)
def test_each_kind_of_end_survives_a_round_trip(kind: str) -> None:
    event = seal(Draft(TurnEnd(1, EXAMPLES[kind])), 3, 0)
    assert decode_event(event.line).data == TurnEnd(1, EXAMPLES[kind])


def test_a_loop_never_writes_the_ends_that_only_a_resumer_knows_of() -> None:
    by_closers = {kind for kind, row in TURN_ENDS.items() if row.written_by == ("closer",)}
    assert by_closers == {"interrupted", "forked"}
    assert {kind for kind, row in TURN_ENDS.items() if row.written_by == ("loop",)} == set(TURN_ENDS) - by_closers


def test_a_turn_ends_in_seven_ways_and_one_of_the_step_limit() -> None:
    assert set(TURN_ENDS) == set(EXAMPLES)
    assert len(TURN_ENDS) == 8
    assert EXAMPLES["error"].error is not None
    assert EXAMPLES["error"].error.kind in KINDS


def test_a_kind_of_somebody_else_is_kept_with_all_that_it_carries() -> None:
    for members in (b'"euros":3', b'"reason":{"code":3}', b'"cause":7,"error":[],"payload":{"a":1}'):
        line = b'{"type":"turn/end","seq":3,"time":0,"data":{"turn":1,"reason":{"kind":"acme/budget",%b}}}' % members
        event = decode_event(line)
        assert event.data == TurnEnd(1, TurnEndReason("acme/budget"))
        assert event.line == line


def test_a_kind_of_ours_has_members_of_the_types_that_ours_have() -> None:
    line = b'{"type":"turn/end","seq":3,"time":0,"data":{"turn":1,"reason":{"kind":"blocked","reason":{"code":3}}}}'
    with pytest.raises(SessionCorruptionError, match="reason"):
        decode_event(line)


def test_the_end_of_a_plugin_s_own_kind_comes_back_with_its_words_and_its_payload() -> None:
    reason = TurnEndReason("acme/budget", reason="Over budget.", payload=JsonText('{"code":3}'))
    event = seal(Draft(TurnEnd(1, reason)), 3, 0)
    assert event.data == TurnEnd(1, reason)
    with pytest.raises(InvalidEventError, match="opaque JSON"):
        seal(Draft(TurnEnd(1, TurnEndReason("acme/budget", payload=JsonText("{")))), 3, 0)


@pytest.mark.parametrize(
    ("kind", "is_free"),
    [("acme/budget", True), ("budget", False), ("completed", False), ("/budget", False), ("acme/", False), (" / ", False)],
)
def test_kinds_of_plugins_are_named_after_them(kind: str, is_free: bool) -> None:
    assert is_foreign_end(kind) == is_free
