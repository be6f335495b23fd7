"""The way between events and lines: nothing is lost, nothing that breaks a rule gets in, hostile bytes are told apart."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import InvalidEventError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import decode_event, line_type, refuse_foreign, seal
from refold_protocol.session.events import (
    EVENT_TYPES,
    AssistantChunk,
    Draft,
    ForeignData,
    Replace,
    SeqRange,
    SessionTitle,
    StepStart,
    SurfaceOp,
    UserMessage,
)
from refold_protocol.session.messages import Source, TextBlock, TextDelta
from tests.support.event_examples import EXAMPLES, example
from tests.support.strategies import drafts, foreign_types, json_texts, json_values, texts

TITLE = SessionTitle("On codecs", Source("client"))
SEQ = 9
NOW = 1_700_000_000_000


@given(drafts(SEQ))
def test_a_sealed_event_is_what_a_reader_of_its_line_gets(draft: Draft) -> None:
    """Invariant: An event, read back from its line, is the event that was accepted."""
    event = seal(draft, SEQ, NOW)
    assert decode_event(event.line) == event
    assert event.seq == SEQ
    assert event.time == (NOW if draft.time is None else draft.time)
    assert (event.surface_op, event.sources) == (draft.surface_op, draft.sources)
    if not isinstance(draft.data, ForeignData):
        assert event.data == draft.data


@given(drafts(SEQ))
def test_a_line_holds_no_line_break_and_is_strict_json(draft: Draft) -> None:
    """Invariant: A line holds no line break."""
    line = seal(draft, SEQ, NOW).line
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line)["seq"] == SEQ


@given(drafts(SEQ))
def test_the_type_of_a_line_is_found_without_decoding_it(draft: Draft) -> None:
    event = seal(draft, SEQ, NOW)
    assert line_type(event.line) == event.type


@given(foreign_types(), json_texts(), st.booleans())
def test_foreign_data_keeps_its_text(name: str, text: JsonText, ignorable: bool) -> None:
    event = seal(Draft(ForeignData(text), type=name, ignorable=ignorable), SEQ, NOW)
    assert isinstance(event.data, ForeignData)
    assert event.data.json == text.replace("\n", " ").replace("\r", " ").strip(" \t")
    again = seal(Draft(event.data, type=event.type, ignorable=event.ignorable), SEQ, NOW)
    assert again.line == event.line


@pytest.mark.parametrize("name", EVENT_TYPES)
@given(value=json_values())
def test_fields_that_this_release_does_not_know_stay_in_the_line(name: str, value: Any) -> None:
    """Invariant: Fields and types that a release does not know stay in the log byte for byte."""
    known = json.loads(example(name).line)
    line = json.dumps({"xLater": value, **known, "data": {**known["data"], "xMore": value}}, ensure_ascii=False).encode()
    event = decode_event(line)
    assert event.line == line
    assert event.data == example(name).data


def test_opaque_json_is_not_laid_out_anew() -> None:
    text = JsonText('{ "b" : 1.50,\t"a" : "\\u00e9" }')
    event = seal(Draft(ForeignData(text), type="x/y"), 0, 0)
    assert text.encode() in event.line


def test_a_line_break_between_tokens_of_foreign_data_becomes_a_space() -> None:
    event = seal(Draft(ForeignData(JsonText('{\n"a":\r\n1}')), type="x/y"), 0, 0)
    assert event.data == ForeignData(JsonText('{ "a":  1}'))


BROKEN_JSON = {
    "NaN": "NaN",
    "infinity": "[-Infinity]",
    "a number beyond floats": '{"a":1e999}',
    "half a surrogate pair": '"\\ud83d"',
    "half a surrogate pair, raw": '"\ud83d"',
    "a key twice": '{"a":1,"a":2}',
    "a key twice, one escaped": '{"a":1,"\\u0061":2}',
    "too deep": "[" * 257 + "]" * 257,
    "no JSON": "{'a':1}",
    "nothing": "",
}


@pytest.mark.parametrize("text", BROKEN_JSON.values(), ids=BROKEN_JSON.keys())
def test_data_that_is_not_lossless_json_is_refused(text: str) -> None:
    """Invariant: What is not lossless JSON never enters the log."""
    with pytest.raises(InvalidEventError, match="opaque JSON"):
        seal(Draft(ForeignData(JsonText(text)), type="x/y"), 0, 0)


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b"])
def test_text_with_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    drafts_with_it = (
        Draft(UserMessage((TextBlock(text),), Source("cli")), "append"),
        Draft(AssistantChunk(1, 1, 1, TextDelta(0, text))),
        Draft(ForeignData(JsonText("1")), type=text),
    )
    for draft in drafts_with_it:
        with pytest.raises(InvalidEventError, match="not lossless JSON"):
            seal(draft, 0, 0)


def test_data_of_the_wrong_shape_is_refused() -> None:
    wrong: Any = "three"
    with pytest.raises(InvalidEventError, match="step/start"):
        seal(Draft(StepStart(1, wrong)), 0, 0)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_a_surface_op_is_required_on_surface_types_and_forbidden_on_others(name: str) -> None:
    wrong: SurfaceOp | None = None if EVENT_TYPES[name].surface else "append"
    with pytest.raises(InvalidEventError, match="surfaceOp"):
        seal(Draft(EXAMPLES[name].data, wrong), SEQ, NOW)


@pytest.mark.parametrize("op", ["append", Replace(1, 2)])
def test_a_foreign_type_takes_no_surface_op(op: SurfaceOp) -> None:
    with pytest.raises(InvalidEventError, match="surfaceOp"):
        seal(Draft(ForeignData(JsonText("1")), op, type="x/y"), SEQ, NOW)


@pytest.mark.parametrize(
    "sources",
    [((0, 9),), ((9, 9),), ((3, 2),), ((-1, 2),), ((0, 3), (3, 4)), ((5, 6), (1, 2)), ((0, 8), (2, 3))],
)
def test_sources_that_are_not_ascending_disjoint_and_earlier_are_refused(sources: tuple[SeqRange, ...]) -> None:
    with pytest.raises(InvalidEventError, match="sources"):
        seal(Draft(TITLE, sources=sources), SEQ, NOW)


@pytest.mark.parametrize("sources", [(), ((0, 8),), ((0, 0), (1, 1)), ((2, 3), (4, 8))])
def test_ascending_disjoint_earlier_sources_are_kept(sources: tuple[SeqRange, ...]) -> None:
    event = seal(Draft(TITLE, sources=sources), SEQ, NOW)
    assert event.sources == sources
    assert b'"sources":' in event.line


def test_a_known_empty_provenance_differs_from_none_at_all() -> None:
    assert b"sources" not in seal(Draft(TITLE), SEQ, NOW).line
    assert b'"sources":[]' in seal(Draft(TITLE, sources=()), SEQ, NOW).line


def test_a_draft_cannot_give_data_a_type_that_is_not_its_own() -> None:
    with pytest.raises(InvalidEventError, match="step/start"):
        seal(Draft(StepStart(1, 1), type="turn/start"), 0, 0)
    with pytest.raises(InvalidEventError, match="vocabulary"):
        seal(Draft(ForeignData(JsonText("{}")), type="turn/start"), 0, 0)
    with pytest.raises(InvalidEventError, match="needs"):
        seal(Draft(ForeignData(JsonText("{}"))), 0, 0)


@given(foreign_types(), json_texts())
def test_a_foreign_type_is_refused_unless_it_may_be_skipped(name: str, text: JsonText) -> None:
    """Invariant: A reader refuses an unknown event unless it is marked ignorable."""
    needed = seal(Draft(ForeignData(text), type=name), SEQ, NOW)
    with pytest.raises(SessionFormatUnsupportedError) as refusal:
        refuse_foreign(needed)
    assert refusal.value.details["seq"] == SEQ
    refuse_foreign(seal(Draft(ForeignData(text), type=name, ignorable=True), SEQ, NOW))


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_no_type_of_the_vocabulary_is_foreign(name: str) -> None:
    refuse_foreign(example(name))


def test_what_may_be_skipped_by_itself_is_little() -> None:
    assert {name for name in EVENT_TYPES if example(name).ignorable} == {"request/sent", "plugin/failed", "model/window"}


def test_the_type_of_a_cut_line_is_not_guessed() -> None:
    with pytest.raises(SessionCorruptionError):
        line_type(b'{"type":"todo/writ')


def _read(line: bytes) -> None:
    for reader in (decode_event, line_type):
        with suppress(SessionCorruptionError):
            reader(line)


@given(st.binary(max_size=200))
def test_hostile_bytes_raise_nothing_but_a_corruption_error(line: bytes) -> None:
    """Invariant: Reading damaged or hostile bytes raises a corruption error and nothing else."""
    _read(line)
    _read(b'{"type":"' + line)
    _read(b'{"type":"session/title","seq":0,"time":0,"data":' + line + b"}")


@given(st.sampled_from(sorted(EVENT_TYPES)), st.data())
def test_a_damaged_line_raises_nothing_but_a_corruption_error(name: str, data: st.DataObject) -> None:
    line = bytearray(example(name).line)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(line) - 1))
        line[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=2) | st.sampled_from((b"[", b"9", b'"'))
        )
    with suppress(SessionFormatUnsupportedError):  # a damaged word may be one of a later release
        _read(bytes(line))


@given(json_values(), texts())
def test_json_that_is_no_event_raises_nothing_but_a_corruption_error(value: Any, name: str) -> None:
    _read(json.dumps(value).encode())
    _read(json.dumps({"type": name, "seq": 0, "time": 0, "data": value}).encode())
    _read(json.dumps({"type": "user/message", "seq": 0, "time": 0, "data": value}).encode())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"{}",
        b'{"type":"',
        b'{"type":"\xff","seq":0,"time":0,"data":1}',
        b'{"type":"x","seq":-1,"time":0,"data":1}',
        b'{"type":"x","seq":0,"time":0}',
        b'{"type":"x","seq":0,"time":0,"data":"\xff"}',
        b'{"type":"x","seq":0.5,"time":0,"data":1}',
        b'{"type":"step/start","seq":0,"time":0,"data":{"turn":1}}',
        b'{"type":"step/start","seq":0,"time":0,"data":{"turn":1,"step":"1"}}',
        b'{"type":"step/start","seq":0,"time":0,"data":{"turn":1,"step":1},"surfaceOp":7}',
        b'{"type":"x","seq":0,"time":0,"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type":"x","seq":0,"time":0,"data":1}{"type":"x","seq":1,"time":0,"data":1}',
    ],
)
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(SessionCorruptionError):
        decode_event(line)
