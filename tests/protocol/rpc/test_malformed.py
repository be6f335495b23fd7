"""The beginning of a message that is too large to be taken still tells its id, if the id stands there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.rpc.envelope import Glimpse, Invalid, Notification, decode_message, glimpse


@pytest.mark.parametrize(
    ("head", "seen"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"lo', Glimpse(7, False)),
        (b' {"method" : "x" ,\n"jsonrpc":"2.0","id" : "7", "params":[1,2', Glimpse("7", False)),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":9,"a":"lo', Glimpse(None, False)),
        (b'{"params":{"id":9},"id":4,"method":"x"}', Glimpse(4, False)),
        (b'{"id":12', Glimpse(None, False)),
        (b'{"id":12,"meth', Glimpse(12, False)),
        (b'{"id":"12', Glimpse(None, False)),
        (b'{"id":true,"method":"x"', Glimpse(None, False)),
        (b'{"id":null,"method":"x"', Glimpse(None, False)),
        (b'{"jsonrpc":"2.0","id":7,"result":{"a":"lo', Glimpse(7, True)),
        (b'{"jsonrpc":"2.0","id":7,"error":{"co', Glimpse(7, True)),
        (b'{"result":1,"method":"x","id":7,', Glimpse(7, False)),
        (b"[[[[", Glimpse(None, False)),
        (b'{"a":' + b"[" * 100_000, Glimpse(None, False)),
        (b"{1:2", Glimpse(None, False)),
        (b"\xff\xfe", Glimpse(None, False)),
        (b"", Glimpse(None, False)),
    ],
)
def test_a_cut_message_tells_what_stands_before_the_cut(head: bytes, seen: Glimpse) -> None:
    assert glimpse(head) == seen


@given(
    message=st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "id": st.integers() | st.text(), "method": st.text(), "params": st.lists(st.text())}
    ),
    cut=st.integers(0, 400),
)
def test_a_glimpse_is_never_wrong_about_the_id(message: dict[str, Any], cut: int) -> None:
    seen = glimpse(json.dumps(message, ensure_ascii=False).encode()[:cut])
    assert seen.id in (None, message["id"])
    assert not seen.is_reply


def test_half_a_surrogate_pair_in_the_text_of_a_document_is_taken() -> None:
    body = b'{"jsonrpc":"2.0","method":"textDocument/didChange","params":{"text":"\\ud83d"}}'
    taken = decode_message(body)
    assert isinstance(taken, Notification)
    assert taken.params is not None
    assert json.loads(bytes(taken.params)) == {"text": "\ud83d"}
    assert isinstance(decode_message(body.replace(b"textDocument/didChange", b"toy/note")), Invalid)
    assert isinstance(decode_message(body.replace(b'"method"', b'"id":1,"method"')), Invalid)
