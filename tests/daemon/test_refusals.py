"""What a method does not take is refused by name and changes nothing: it is never silently ignored."""

from __future__ import annotations

from typing import Any

import pytest

from refold_client import RpcError
from tests.support.daemons import Place, new_session

pytestmark = pytest.mark.anyio

TEXT: Any = [{"type": "text", "text": "go"}]

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("session/open", {"effort": "high"}, "$.effort"),
    ("session/open", {"cwd": "/"}, "either `session`"),
    ("session/open", {"title": "x"}, "for a new session only"),
    ("session/open", {"mode": "append"}, "$.mode"),
    ("session/read", {"view": "changes"}, "$.view"),
    ("session/read", {"view": "events", "at": -2}, "$.at"),
    ("session/read", {"view": "events", "page": {"limit": 0}}, "$.page.limit"),
    ("session/read", {"view": "events", "page": {"from": 3}}, "$.page.from"),
    ("session/flush", {"upTo": "all"}, "$.upTo"),
    ("session/close", {"force": True}, "$.force"),
    ("turn/start", {"content": TEXT, "key": ""}, "$.key"),
    ("turn/start", {"content": TEXT, "workDoneToken": 1.5}, "$.workDoneToken"),
    ("turn/start", {"content": TEXT, "ifRunning": "wait"}, "ifRunning"),
    ("turn/start", {"content": TEXT, "input": "i"}, "either `content` or `input`"),
    ("turn/start", {}, "either `content` or `input`"),
    ("turn/start", {"content": []}, "$.content"),
    ("turn/start", {"content": [{"type": "image", "blob": "b"}]}, "$.content[0]"),
    ("turn/start", {"content": [{"type": "text", "text": " \n\t "}]}, "$.content"),
    ("turn/wait", {}, "either `turn` or `input`"),
    ("turn/interrupt", {"turn": 1, "withdrawQueued": 1}, "$.withdrawQueued"),
    ("event/subscribe", {"after": -1, "chunks": "some"}, "chunks"),
    ("event/subscribe", {"after": "head"}, "$.after"),
    ("event/unsubscribe", {"subscription": 1}, "$.session"),
    ("request/rebuild", {"turn": 1, "step": 1, "compact": 3}, "or `compact`"),
    ("log/verify", {"range": [0, 1]}, "$.range"),
]
"""Method, params beside the session, and what the refusal names."""


async def test_b03_params_that_a_method_does_not_take_are_refused_by_name_and_record_nothing(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        end = await client.prompt(session, "go")
        for method, params, named in WRONG:
            with pytest.raises(RpcError) as raised:
                await client.request(method, {"session": session, **params})
            assert (raised.value.code, named in raised.value.message) == (-32602, True), (method, raised.value.message)
        opened = await client.open_session(session)
        assert (opened["tail"], opened["status"]) == (end["seq"], {"status": "idle"})


NEW: list[tuple[dict[str, Any], str]] = [
    ({"mode": "read"}, "cannot be opened for reading"),
    ({"permissions": {"mode": "ask", "allow": []}}, "$.permissions.allow"),
    ({"permissions": {"mode": "everything"}}, "$.permissions.mode"),
    ({"limits": {"steps": 0}}, "$.limits.steps"),
    ({"limits": {"tokens": 1}}, "$.limits.tokens"),
]


async def test_settings_that_this_release_cannot_honour_begin_no_session(place: Place) -> None:
    async with place.daemon() as client:
        for params, named in NEW:
            with pytest.raises(RpcError) as raised:
                await client.request("session/open", {"cwd": str(place.workspace), **params})
            assert (raised.value.code, named in raised.value.message) == (-32602, True), raised.value.message
        for model, kind in (("nobody/large", "model.unconfigured"), ("large", "config.invalid")):
            with pytest.raises(RpcError) as raised:
                await new_session(client, place, model=model)
            assert raised.value.kind == kind
        for cwd in ("ws", "file://elsewhere/ws", str(place.root / "missing"), str(place.config)):
            with pytest.raises(RpcError) as raised:
                await client.open_session(cwd=cwd)
            assert (raised.value.kind, raised.value.data["key"]) == ("config.invalid", "cwd")
        opened = await client.open_session(cwd=place.workspace.as_uri())
        assert opened["info"]["cwd"] == str(place.workspace)


async def test_methods_that_come_later_and_sessions_that_are_not_there_are_named(place: Place) -> None:
    async with place.daemon() as client:
        for method in ("tool/register", "blob/put", "no/such"):
            with pytest.raises(RpcError, match=method) as raised:
                await client.request(method, {})
            assert raised.value.code == -32601
        calls: list[tuple[str, dict[str, Any]]] = [
            ("session/open", {}),
            ("session/read", {"view": "events"}),
            ("session/flush", {}),
            ("session/close", {}),
            ("turn/start", {"content": TEXT}),
            ("turn/wait", {"turn": 1}),
            ("turn/interrupt", {"turn": 1}),
            ("event/subscribe", {"after": -1}),
            ("request/rebuild", {"turn": 1, "step": 1}),
            ("log/verify", {}),
        ]
        for method, params in calls:
            with pytest.raises(RpcError) as raised:
                await client.request(method, {"session": "0198f3a2-0000-7000-8000-00000000000a", **params})
            assert (method, raised.value.kind) == (method, "session.unknown")
            assert raised.value.data["session"] == "0198f3a2-0000-7000-8000-00000000000a"
