"""The epoch header: its canonical form, its fold, and which event records a change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import decode_event, seal
from refold_protocol.session.events import Draft, Event, RequestHeader
from refold_protocol.session.header import canonical_config, canonical_header, fold_header
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, ToolSchema, encode_compact, text_content
from tests.support import strategies
from tests.support.log_strategies import logs
from tests.support.logs import HEADER, Log

CONFIG = CallConfig("engine", "chain", "chat-completions")
OTHER = EpochHeader(CONFIG, "Be thorough.")


_HEADERS = st.builds(
    EpochHeader,
    strategies.structs(CallConfig),
    st.none() | strategies.texts(),
    st.none() | st.lists(strategies.structs(ToolSchema), max_size=2).map(tuple),
    st.sampled_from([None, (), (Message("user", text_content("House rules")),)]),
)


def _recorded(header: EpochHeader, seq: int = 0) -> Event:
    return seal(Draft(RequestHeader(header, "initial")), seq, 0)


def test_what_is_empty_is_absent() -> None:
    empty = EpochHeader(CallConfig("engine", "chain", "chat-completions", stop=()), "", (), ())
    assert canonical_header(empty) == EpochHeader(CONFIG)
    assert encode_compact(canonical_header(empty)) == encode_compact(EpochHeader(CONFIG))


def test_what_is_not_empty_stays_as_it_is() -> None:
    full = EpochHeader(
        CallConfig(
            "engine",
            "chain",
            "chat-completions",
            JsonText('{"reasoning":"drop"}'),
            0.5,
            0.25,
            1024,
            ("END",),
            "low",
            JsonText("{}"),
        ),
        "Be brief.",
        (ToolSchema("read_file", "Reads a file.", JsonText("{}")),),
        (Message("user", text_content("House rules")),),
    )
    assert canonical_header(full) == full


def test_a_temperature_of_zero_is_a_setting_and_not_an_absence() -> None:
    zero = canonical_config(CallConfig("engine", "chain", "chat-completions", temperature=0.0, top_p=0.0, max_tokens=0))
    assert (zero.temperature, zero.top_p, zero.max_tokens) == (0.0, 0.0, 0)


def test_fractions_are_written_as_fractions_whoever_set_them() -> None:
    set_by_hand = CallConfig("engine", "chain", "chat-completions", temperature=1, top_p=0)
    written = encode_compact(canonical_config(set_by_hand))
    assert b'"temperature":1.0,"topP":0.0' in written


@given(_HEADERS)
def test_the_canonical_form_is_the_same_however_often_it_is_taken(header: EpochHeader) -> None:
    canonical = canonical_header(header)
    assert canonical_header(canonical) == canonical
    assert encode_compact(canonical_header(canonical)) == encode_compact(canonical)


@given(_HEADERS)
def test_a_canonical_header_is_read_from_a_log_exactly_as_it_was_recorded(header: EpochHeader) -> None:
    canonical = canonical_header(header)
    read = fold_header([decode_event(_recorded(canonical).line)])
    assert read == canonical
    assert encode_compact(read) == encode_compact(canonical)


def test_no_header_is_in_force_before_the_first_request() -> None:
    assert fold_header([]) is None
    log = Log()
    log.turn()
    assert fold_header(log.events) is None


def test_the_last_snapshot_is_in_force_whatever_stands_behind_it() -> None:
    log = Log()
    log.whole_turn()
    assert fold_header(log.events) == HEADER
    log.turn()
    log.step(OTHER)
    log.reply("Because.")
    log.close()
    log.instance("resume")
    assert fold_header(log.events) == OTHER == log.request_state.header


@given(logs(), st.integers(0, 60))
def test_folding_a_prefix_and_going_on_equals_folding_all(log: Log, cut: int) -> None:
    whole = fold_header(log.events)
    assert fold_header(log.events[cut:], fold_header(log.events[:cut])) == whole == log.request_state.header
