"""Every request gets exactly one reply, whatever stands around it and wherever the bytes are cut. Cases D-03 and D-05.

`REFOLD_FRAMES=10000 pytest tests/server/rpc/test_every_request.py` looks at so many frames.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.conversations import conversation

pytestmark = pytest.mark.anyio

FRAMES = int(os.environ.get("REFOLD_FRAMES", "600"))
PER_EXAMPLE = 20

keys = st.sampled_from(["jsonrpc", "class", "type_name", "id", "method", "params", "a-b", "é"])
leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "2.0", "é世🙂", "\u2028"])
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
ids = st.integers(-(2**53), 2**53) | st.text(max_size=4)

Wanted = list[Any]
"""The ids under which replies must come; None for those that have none."""


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}, ensure_ascii=False).encode()


Sent = tuple[bytes, Wanted]


def asks(name: Any, method: str, params: Any) -> Sent:
    """A request, and the id of its one reply."""
    return message(id=name, method=method, params=params), [name]


def nameless(body: bytes) -> Sent:
    """What is answered under a null id."""
    return body, [None]


def unanswered(body: bytes) -> Sent:
    """What has no reply."""
    return body, []


def without_version(name: Any) -> Sent:
    return json.dumps({"id": name, "method": "toy/echo"}).encode(), [name]


def batch_of(many: list[Sent]) -> Sent:
    return nameless(b"[%s]" % b",".join(body for body, _ in many))


good = st.builds(asks, ids, st.just("toy/echo"), st.dictionaries(keys, values))
typed = st.builds(asks, ids, st.just("toy/typed"), st.dictionaries(st.just("text"), values))
unknown = st.builds(asks, ids, st.text(max_size=3).map(lambda rest: f"no/{rest}"), st.none())
bug = st.builds(asks, ids, st.just("toy/bug"), st.just({}))
twice = st.builds(asks, ids, st.just("initialize"), st.just({}))
odd_ids = st.sampled_from([b"1.5", b"null", b"true", b"[]", b"{}"])
odd_id = odd_ids.map(lambda name: b'{"jsonrpc":"2.0","id":%s,"method":"toy/echo"}' % name).map(nameless)
batch = st.lists(good, max_size=2).map(batch_of)
bad_bytes = [b"{", b"", b"\xff", b'{"a":"\xc3"}', b"nul", b"[" * 50_000, b"\xef\xbb\xbf{}", b'{"jsonrpc":"2.0",}']
broken = st.sampled_from(bad_bytes).map(nameless)
silent = st.sampled_from(
    [
        message(method="no/such", params=[1]),
        message(method="$/odd"),
        message(method="$/cancelRequest", params={"id": "never"}),
        message(method="toy/note", params={"text": "hello"}),
        message(id=987_654, result=None),
        message(id="stray", error={"code": 1, "message": "x"}),
    ]
).map(unanswered)
frames = st.one_of(good, typed, unknown, bug, twice, ids.map(without_version), odd_id, batch, broken, silent)

headers = st.sampled_from(
    [
        "Content-Length: {}\r\n\r\n",
        "content-length:{}\r\n\r\n",
        "CONTENT-LENGTH:   {}\r\nX-Odd: 1\r\n\r\n",
        "Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length: {}\r\n\r\n",
    ]
)


@settings(max_examples=max(1, FRAMES // PER_EXAMPLE))
@given(
    st.lists(st.tuples(headers, frames), min_size=PER_EXAMPLE, max_size=PER_EXAMPLE),
    st.lists(st.integers(0, 3_000), max_size=30),
)
async def test_every_request_gets_exactly_one_reply(sent: list[tuple[str, tuple[bytes, Wanted]]], cuts: list[int]) -> None:
    stream = b"".join(head.format(len(body)).encode() + body for head, (body, _) in sent)
    wanted = Counter(json.dumps(one) for _, (_, ids_of) in sent for one in ids_of)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    async with conversation() as talk:
        for start, end in pairwise(places):
            talk.transport.put(stream[start:end])
        came: list[Any] = []
        while len(came) < wanted.total():
            came.append(await talk.message(lambda reply: "method" not in reply))
        assert await talk.reply(talk.request("toy/echo", request_id="behind all of them")) is not None
        came += [reply for reply in talk.messages if "method" not in reply]
    assert Counter(json.dumps(reply["id"]) for reply in came) == wanted
