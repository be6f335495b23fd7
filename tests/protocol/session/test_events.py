"""The vocabulary: every row is described, immutable all the way down, and held by a golden line."""

from __future__ import annotations

import re

import pytest
from msgspec import Struct

from refold_protocol.json_text import JsonText, check_json
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import EVENT_TYPES, SURFACE_TYPES, TYPE_OF_DATA, Draft, Event
from refold_protocol.session.messages import EpochHeader, Message
from refold_protocol.session.session_totals import SessionTotals
from tests.support.annotations import fields, mutable_parts, structs_in
from tests.support.event_examples import EXAMPLES, GOLDEN, SEQ, TIME, example, golden_file

REACHABLE: set[type[Struct]] = set[type[Struct]]().union(
    *(structs_in(row.data) for row in EVENT_TYPES.values()),
    *(structs_in(kind) for kind in (Event, Draft, EpochHeader, Message, SessionTotals)),
)
BY_NAME: dict[str, type[Struct]] = {kind.__name__: kind for kind in REACHABLE}


def _mutable(kind: type[Struct]) -> list[str]:
    own = [] if kind.__struct_config__.frozen else [f"{kind.__name__} is not frozen"]
    return own + [fault for name, part in fields(kind).items() for fault in mutable_parts(part, f"{kind.__name__}.{name}")]


def test_no_two_structs_share_a_name() -> None:
    assert len(BY_NAME) == len(REACHABLE) > 40


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_what_a_log_holds_is_immutable_all_the_way_down(name: str) -> None:
    """Invariant: Recorded history is immutable all the way down."""
    assert _mutable(BY_NAME[name]) == []


class _Thawed(Struct):
    text: JsonText


class _Leaky(Struct, frozen=True):
    inner: _Thawed | None
    items: list[str]
    rows: tuple[dict[str, int], ...]
    fine: tuple[tuple[int, int], ...] | None


def test_the_walk_over_annotations_sees_lists_dicts_and_thawed_structs() -> None:
    assert _mutable(_Leaky) == [
        "_Leaky.inner: _Thawed is not frozen",
        "_Leaky.items: list[str]",
        "_Leaky.rows: dict[str, int]",
    ]
    assert structs_in(_Leaky) == {_Leaky, _Thawed}
    assert _mutable(_Thawed) == ["_Thawed is not frozen"]


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_struct_says_what_it_is(name: str) -> None:
    said = BY_NAME[name].__dict__.get("__doc__") or ""
    assert len(said.split()) > 2
    assert said.rstrip().endswith(".")


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_an_event_type_is_named_area_slash_what(name: str) -> None:
    assert re.fullmatch(r"[a-z]+/[a-z]+(-[a-z]+)*", name)
    assert TYPE_OF_DATA[EVENT_TYPES[name].data] == name


def test_each_event_type_has_data_of_its_own() -> None:
    assert len(TYPE_OF_DATA) == len(EVENT_TYPES)


def test_exactly_the_five_surface_types_become_messages() -> None:
    assert {
        "user/message",
        "assistant/message",
        "tool/result",
        "context/message",
        "steering/message",
    } == SURFACE_TYPES


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_every_event_type_has_an_example_that_survives_a_round_trip(name: str) -> None:
    event = example(name)
    assert event.type == name
    assert event.data == EXAMPLES[name].data
    assert decode_event(event.line) == event


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_the_golden_line_of_an_event_type_is_written_today_as_it_was(name: str) -> None:
    """Invariant: The stored form of an event type never changes within a format version."""
    assert example(name).line + b"\n" == golden_file(name).read_bytes()


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_the_golden_line_of_an_event_type_is_read_today_as_it_was(name: str) -> None:
    line = golden_file(name).read_bytes().removesuffix(b"\n")
    check_json(line.decode())
    event = decode_event(line)
    assert (event.type, event.seq, event.time) == (name, SEQ, TIME)
    assert event.data == EXAMPLES[name].data


def test_there_is_one_golden_line_for_each_event_type_and_no_other() -> None:
    assert set(GOLDEN.iterdir()) == {golden_file(name) for name in EVENT_TYPES}
    assert set(EXAMPLES) == set(EVENT_TYPES)
