"""The envelope: what comes in is told apart without looking inside params, and ids come back as they came.

Case D-05; the traps of pygls that editors showed (a nested `jsonrpc`, keys named `class` and `type_name`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from refold_protocol.rpc.envelope import (
    Invalid,
    Notification,
    Response,
    RpcRequest,
    decode_message,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from refold_protocol.rpc.wire_errors import INVALID_REQUEST, PARSE_ERROR, ErrorObject

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
ids = st.integers() | st.text()


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@given(request_id=ids, params=st.dictionaries(st.text(), json_values, max_size=4) | st.lists(json_values, max_size=4))
def test_params_are_passed_on_as_the_bytes_that_came(request_id: int | str, params: Any) -> None:
    given_params = dumped(params)
    body = b'{"jsonrpc":"2.0","id":%b,"method":"a/b","params":%b}' % (dumped(request_id), given_params)
    message = decode_message(body)
    assert isinstance(message, RpcRequest)
    assert (message.id, type(message.id), message.method) == (request_id, type(request_id), "a/b")
    assert message.params is not None
    assert bytes(message.params) == given_params


@given(request_id=ids, result=json_values)
def test_a_reply_carries_the_id_as_it_came(request_id: int | str, result: Any) -> None:
    body = encode_result(request_id, Raw(dumped(result)))
    assert json.loads(body) == {"jsonrpc": "2.0", "id": request_id, "result": result}
    message = decode_message(body)
    assert isinstance(message, Response)
    assert (message.id, type(message.id), json.loads(bytes(message.result))) == (request_id, type(request_id), result)


def test_keys_that_look_like_an_envelope_are_data_when_they_are_nested() -> None:
    params = b'{"jsonrpc":"2.0","class":1,"type_name":"x","a-b":{"jsonrpc":"1.0","id":9,"method":"y"},"error":{}}'
    message = decode_message(b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + params + b"}")
    assert message == RpcRequest(1, "x", message.params if isinstance(message, RpcRequest) else None)
    assert isinstance(message, RpcRequest)
    assert bytes(message.params or b"") == params


@pytest.mark.parametrize("text", ['{"method":"x","params":null,"jsonrpc":"2.0"}', '{"jsonrpc":"2.0","method":"x"}'])
def test_absent_params_and_null_are_the_same(text: str) -> None:
    assert decode_message(text.encode()) == Notification("x")


def test_unknown_members_of_the_envelope_are_ignored() -> None:
    assert decode_message(b'{"jsonrpc":"2.0","id":1,"method":"x","trace":{"a":[1]}}') == RpcRequest(1, "x")


WRONG = [
    # body, id of the reply, code
    (b'[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"x"}]', None, INVALID_REQUEST),
    (b"[]", None, INVALID_REQUEST),
    (b'"x"', None, INVALID_REQUEST),
    (b"17", None, INVALID_REQUEST),
    (b"null", None, INVALID_REQUEST),
    (b"{}", None, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":null,"method":"x"}', None, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', None, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":true,"method":"x"}', None, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":[1],"method":"x"}', None, INVALID_REQUEST),
    (b'{"id":3,"method":"x"}', 3, INVALID_REQUEST),
    (b'{"method":"x"}', None, INVALID_REQUEST),
    (b'{"jsonrpc":"1.0","id":3,"method":"x"}', 3, INVALID_REQUEST),
    (b'{"jsonrpc":2.0,"id":3,"method":"x"}', 3, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":4,"method":7}', 4, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":"4","method":null}', "4", INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":5}', 5, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":6,"method":"x","params":{"a":"\\ud83d"}}', 6, INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":"\\ud83d","method":"x"}', None, INVALID_REQUEST),
    (b'{"a":', None, PARSE_ERROR),
    (b"", None, PARSE_ERROR),
    (b"\xef\xbb\xbf{}", None, PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":7,"method":"x"} x', None, PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"t":"\xff"}}', None, PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}', None, PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":7,"method":"x","params":[Infinity,"\\ud83d"]}', None, PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":7,"method":"x","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None, PARSE_ERROR),
    (b"[" * 100_000 + b"]" * 100_000, None, PARSE_ERROR),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, None, PARSE_ERROR),
]


@pytest.mark.parametrize(("body", "reply_id", "code"), WRONG, ids=[repr(body[:60]) for body, _, _ in WRONG])
def test_d05_what_is_no_message_is_answered_with_the_right_code_and_id(
    body: bytes, reply_id: int | str | None, code: int
) -> None:
    message = decode_message(body)
    assert isinstance(message, Invalid)
    assert (message.id, message.error.code) == (reply_id, code)
    assert json.loads(encode_error(message.id, message.error))["id"] == reply_id


REPLIES = [
    (b'{"jsonrpc":"2.0","id":1,"result":null}', 1, False),
    (b'{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}', 1, False),
    (b'{"id":1,"result":3}', 1, False),
    (b'{"jsonrpc":"1.0","id":1,"result":3}', 1, False),
    (b'{"jsonrpc":"2.0","id":"u","error":{"code":-1,"message":"no"}}', "u", True),
    (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":{"a":1}}}', None, True),
    (b'{"jsonrpc":"2.0","id":2,"error":"no"}', 2, True),
    (b'{"jsonrpc":"2.0","result":3}', None, False),
    (b'{"jsonrpc":"2.0","id":3,"result":"\\ud83d"}', 3, True),
    (b'{"jsonrpc":"2.0","id":2.5,"result":1}', None, False),
]


@pytest.mark.parametrize(("body", "reply_id", "failed"), REPLIES, ids=[repr(body[:60]) for body, _, _ in REPLIES])
def test_d05_a_reply_is_taken_as_one_however_odd_it_is(body: bytes, reply_id: int | str | None, failed: bool) -> None:
    message = decode_message(body)
    assert isinstance(message, Response)
    assert (message.id, message.error is not None) == (reply_id, failed)


def test_the_error_of_a_reply_is_read_whole() -> None:
    error = ErrorObject(-31000, "busy", Raw(b'{"kind":"session.busy"}'))
    message = decode_message(encode_error(3, error))
    assert isinstance(message, Response)
    assert message.error is not None
    assert (message.error.code, message.error.message) == (-31000, "busy")
    assert isinstance(message.error.data, Raw)
    assert bytes(message.error.data) == b'{"kind":"session.busy"}'


@given(body=st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    decode_message(body)


@given(value=json_values)
def test_no_json_raises_and_only_objects_are_messages(value: Any) -> None:
    message = decode_message(dumped(value))
    assert isinstance(message, Invalid) or isinstance(value, dict)


def test_calls_are_written_without_params_where_there_are_none() -> None:
    assert encode_request(1, "x") == b'{"jsonrpc":"2.0","id":1,"method":"x"}'
    assert encode_notification("x", Raw(b"[1]")) == b'{"jsonrpc":"2.0","method":"x","params":[1]}'
