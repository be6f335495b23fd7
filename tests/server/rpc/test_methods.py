"""The method table: every row is described, typed, immutable, held by a golden file, and refuses what it does not take.

The golden files are written anew by `python -m tests.support.rpc_examples`.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw, Struct, UnsetType

from refold_protocol.rpc.envelope import Notification, Response, RpcRequest, decode_message
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.wire_errors import WireError
from refold_server.rpc.method import CancelParams, ProgressCancelParams, SetTraceParams, decode_params, decode_result
from refold_server.rpc.method_table import METHODS
from tests.support.annotations import fields, mutable_parts, structs_in
from tests.support.rpc_examples import EXAMPLES, GOLDEN, bodies, golden_file, schema_text

TOLERANT = (InitializeParams, CancelParams, ProgressCancelParams, SetTraceParams, None)

every_method = pytest.mark.parametrize("name", METHODS)


def lines(name: str) -> list[bytes]:
    return golden_file(name).read_bytes().removesuffix(b"\n").split(b"\n")


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


@every_method
def test_a_method_says_what_it_does(name: str) -> None:
    row = METHODS[name]
    assert row.name == name
    assert row.doc.endswith(".")
    for shape in (row.params, row.result):
        assert shape in (None, Raw) or (issubclass(shape, Struct) and shape.__doc__)


@every_method
def test_the_golden_messages_of_a_method_are_written_today_as_they_were(name: str) -> None:
    assert bodies(name) == golden_file(name).read_bytes()


@every_method
def test_the_golden_messages_of_a_method_are_read_today_as_they_were(name: str) -> None:
    row = METHODS[name]
    call, *replies = map(decode_message, lines(name))
    assert isinstance(call, RpcRequest if row.kind == "request" else Notification)
    assert call.method == name
    given, result = EXAMPLES[name]
    assert plain(decode_params(row, call.params)) == (None if row.params is None else plain(given))
    for reply in replies:
        assert isinstance(reply, Response)
        if reply.error is None:
            decode_result(row, reply.result)
    if replies:
        assert plain(decode_result(row, cast("Response", replies[0]).result)) == plain(result)


@every_method
def test_a_method_refuses_params_that_it_does_not_take(name: str) -> None:
    row = METHODS[name]
    given, _ = EXAMPLES[name]
    odd = Raw(msgspec.json.encode({**(plain(given) or {}), "notTaken": 1}))
    if row.params in TOLERANT:  # what LSP itself defines must let clients add to it
        decode_params(row, odd)
    elif row.direction == "to-daemon":
        with pytest.raises(WireError, match=r"\$\.notTaken: this parameter is not taken here"):
            decode_params(row, odd)


@every_method
def test_params_and_results_are_immutable_all_the_way_down(name: str) -> None:
    row = METHODS[name]
    shapes = [shape for shape in (row.params, row.result) if shape not in (None, Raw)]
    for kind in {kind for shape in shapes for kind in structs_in(shape)}:
        assert kind.__struct_config__.frozen
        faults = [fault for field, part in fields(kind).items() for fault in mutable_parts(part, field)]
        assert [fault for fault in faults if not fault.endswith((repr(Raw), repr(UnsetType)))] == []


def test_there_is_one_golden_file_for_each_method_and_no_other() -> None:
    assert set(GOLDEN.iterdir()) == {golden_file(name) for name in METHODS} | {GOLDEN / "schema.json"}


def test_the_golden_schema_is_that_of_the_table() -> None:
    assert schema_text() == (GOLDEN / "schema.json").read_text()
