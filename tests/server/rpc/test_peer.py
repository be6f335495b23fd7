"""Our own requests to the client: integer ids, one result or error each, cancelled on both sides, never left hanging."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from refold_protocol.rpc.envelope import Response
from refold_protocol.rpc.wire_errors import ErrorObject
from refold_server.rpc.client_requests import PeerError, PeerGoneError, PeerRequests

pytestmark = pytest.mark.anyio


class Asking:
    """Requests that were begun, and what was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.peers = PeerRequests(lambda body: self.sent.append(json.loads(body)))

    async def begin(self, method: str) -> asyncio.Task[Raw]:
        task = asyncio.create_task(self.peers.request(method))
        await asyncio.sleep(0)
        return task


async def test_our_ids_are_integers() -> None:
    asking = Asking()
    tasks = [await asking.begin("a"), await asking.begin("b")]
    assert [message["id"] for message in asking.sent] == [1, 2]
    assert asking.peers.settle(Response(2, Raw(b'"second"')))
    assert bytes(await tasks[1]) == b'"second"'
    assert not tasks[0].done()
    asking.peers.gone()
    with pytest.raises(PeerGoneError):
        await tasks[0]


async def test_an_error_reply_is_raised_with_its_code() -> None:
    asking = Asking()
    task = await asking.begin("a")
    assert asking.peers.settle(Response(1, Raw(b"null"), ErrorObject(-5, "no")))
    with pytest.raises(PeerError, match="no") as raised:
        await task
    assert raised.value.error.code == -5


async def test_cancelling_the_caller_cancels_the_request_at_the_client_and_its_late_reply_is_nobodys() -> None:
    asking = Asking()
    task = await asking.begin("a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asking.sent[1:] == [{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}]
    assert not asking.peers.settle(Response(1, Raw(b"1")))


async def test_a_reply_in_the_moment_of_cancelling_sends_no_cancel() -> None:
    asking = Asking()
    task = await asking.begin("a")
    asking.peers.settle(Response(1, Raw(b"1")))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asking.sent) == 1


async def test_a_reply_to_nothing_settles_nothing() -> None:
    asking = Asking()
    assert not asking.peers.settle(Response("1", Raw(b"1")))
    assert not asking.peers.settle(Response(None, Raw(b"1")))


async def test_after_the_end_nobody_is_asked() -> None:
    asking = Asking()
    asking.peers.gone()
    with pytest.raises(PeerGoneError):
        await asking.peers.request("a")
    assert asking.sent == []
