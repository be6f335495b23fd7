"""The pairing check: every call has one result behind it and every result its call before it, in any request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, TextBlock, ToolResultBlock, text_content
from refold_protocol.session.request import Request, sent_requests
from refold_protocol.verify import PairingCheck, pairing_faults
from tests.support.log_strategies import logs
from tests.support.logs import HEADER, Log, call

USER = Message("user", text_content("Why?"))


def _asks(*names: str) -> Message:
    return Message("assistant", (TextBlock("Look:"), *(call(name) for name in names)))


def _answers(*names: str) -> Message:
    return Message("user", tuple(ToolResultBlock(name, text_content("found"), False) for name in names))


def _faults(*messages: Message) -> list[str]:
    return pairing_faults(Request(HEADER, AppendOnlyList(messages)))


def test_calls_and_results_that_pair_are_no_fault() -> None:
    assert _faults() == []
    assert _faults(USER, _asks("c1", "c2"), _answers("c1"), _answers("c2"), USER) == []


def test_results_may_come_in_any_order_and_in_one_message() -> None:
    assert _faults(_asks("c1", "c2"), _answers("c2", "c1"), USER) == []


def test_ids_may_repeat_once_they_were_answered() -> None:
    assert _faults(_asks("c1"), _answers("c1"), USER, _asks("c1"), _answers("c1")) == []


def test_a_call_at_the_end_has_no_result() -> None:
    assert _faults(USER, _asks("c1", "c2"), _answers("c2")) == ["call c1 (read_file) has no result"]


def test_a_call_has_its_results_before_anything_else_is_said() -> None:
    expected = ["call c1 (read_file) has no result before message 1", "message 2 answers c1, which no call before it asks for"]
    for between in (USER, Message("assistant", text_content("So."))):
        assert _faults(_asks("c1"), between, _answers("c1")) == expected


def test_a_call_that_follows_a_call_leaves_the_first_unanswered() -> None:
    assert _faults(_asks("c1"), _asks("c2"), _answers("c2")) == ["call c1 (read_file) has no result before message 1"]


def test_a_result_for_an_unknown_call_is_a_fault_and_breaks_no_other_pair() -> None:
    """B-01: the stray c9."""
    expected = ["message 1 answers c9, which no call before it asks for"]
    assert _faults(_asks("c1"), _answers("c9"), _answers("c1"), USER) == expected


def test_a_second_result_of_a_call_is_a_fault() -> None:
    """B-01: the late result of c2."""
    expected = ["message 2 answers c1, which no call before it asks for"]
    assert _faults(_asks("c1"), _answers("c1"), _answers("c1")) == expected


def test_two_calls_of_one_id_need_two_results() -> None:
    assert _faults(_asks("c1", "c1"), _answers("c1"), _answers("c1")) == []
    assert _faults(_asks("c1", "c1"), _answers("c1")) == ["call c1 (read_file) has no result"]


def test_the_message_prefix_is_part_of_the_request() -> None:
    config = CallConfig("engine", "chain", "chat-completions")
    shown = EpochHeader(config, message_prefix=(USER, _asks("c1"), _answers("c1")))
    assert pairing_faults(Request(shown, AppendOnlyList((USER,)))) == []
    cut = EpochHeader(config, message_prefix=(USER, _asks("c1")))
    assert pairing_faults(Request(cut, AppendOnlyList((USER,)))) == ["call c1 (read_file) has no result before message 2"]


_MESSAGES = st.lists(
    st.sampled_from([USER, _asks("c1"), _asks("c1", "c2"), _answers("c1"), _answers("c2"), _answers("c1", "c2")]),
    max_size=6,
)


@given(st.lists(_MESSAGES, max_size=4), st.booleans())
def test_a_check_that_went_along_finds_what_one_from_nothing_finds(growth: list[list[Message]], fresh: bool) -> None:
    check = PairingCheck()
    history: AppendOnlyList[Message] = AppendOnlyList()
    for messages in growth:
        for message in messages:
            history = history.then(message)
        if fresh:
            history = AppendOnlyList(history)
        request = Request(HEADER, history)
        assert check.faults(request) == pairing_faults(request)
        assert check.faults(request) == pairing_faults(request)


def test_a_history_that_was_rewritten_makes_the_check_start_from_nothing() -> None:
    check = PairingCheck()
    assert check.faults(Request(HEADER, AppendOnlyList((USER, _answers("c9"), _asks("c1"))))) != []
    assert check.faults(Request(HEADER, AppendOnlyList((USER, _asks("c1"), _answers("c1"), USER)))) == []


def test_a_new_prefix_makes_the_check_start_from_nothing() -> None:
    check, history = PairingCheck(), AppendOnlyList((USER,))
    broken = EpochHeader(HEADER.config, message_prefix=(_answers("c1"),))
    assert check.faults(Request(HEADER, history)) == []
    assert check.faults(Request(broken, history)) == ["message 0 answers c1, which no call before it asks for"]
    assert check.faults(Request(HEADER, history)) == []


@given(logs())
def test_every_request_of_a_well_formed_log_pairs(log: Log) -> None:
    check = PairingCheck()
    for _, _, request in sent_requests(log.events):
        assert check.faults(request) == []
