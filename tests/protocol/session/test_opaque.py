"""Every place of the vocabulary where text or numbers could be lossy is checked before an event is accepted."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import seal
from refold_protocol.session.events import EVENT_TYPES
from tests.support.annotations import fields, structs_in
from tests.support.event_examples import EXAMPLES, SEQ, TIME
from tests.support.strategies import structs

LOSSY = JsonText('{"a":1,"a":2}')


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(value, Struct):
        return any(_holds(getattr(value, name), wanted) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return any(_holds(part, wanted) for part in cast("tuple[Any, ...]", value))
    return value is wanted


def _opaque_types() -> list[str]:
    def has_opaque(kind: type[Struct]) -> bool:
        return any(part is JsonText or JsonText in getattr(part, "__args__", ()) for part in fields(kind).values())

    return [name for name, row in EVENT_TYPES.items() if any(has_opaque(kind) for kind in structs_in(row.data))]


def test_the_types_that_hold_opaque_json_are_found() -> None:
    assert set(_opaque_types()) == {
        "context/message",
        "assistant/message",
        "tool/result",
        "request/header",
        "request/header-delta",
        "compact/start",
        "turn/end",
    }


@pytest.mark.parametrize("name", _opaque_types())
@settings(max_examples=50)
@given(data=st.data())
def test_opaque_json_that_is_lossy_is_refused_wherever_it_stands(name: str, data: st.DataObject) -> None:
    lossy = data.draw(structs(EVENT_TYPES[name].data, st.just(LOSSY)).filter(lambda value: _holds(value, LOSSY)))
    with pytest.raises(InvalidEventError, match="opaque JSON: key 'a' stands twice"):
        seal(replace(EXAMPLES[name], data=lossy), SEQ, TIME)


@pytest.mark.parametrize("field", ["temperature", "top_p"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["request/header", "request/header-delta", "compact/start"])
def test_a_number_that_json_does_not_have_is_refused(name: str, number: float, field: str) -> None:
    data: Any = EXAMPLES[name].data
    if name == "request/header":
        data = replace(data, header=replace(data.header, config=replace(data.header.config, **{field: number})))
    else:
        data = replace(data, config=replace(data.config, **{field: number}))
    with pytest.raises(InvalidEventError, match="is not a number"):
        seal(replace(EXAMPLES[name], data=data), SEQ, TIME)
