"""Our own requests to the client, from sending to reply.

Ids are integers. Cancelling the caller cancels the request on the client's side too. Must not know transports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Raw

from refold_protocol.rpc.connection_state import OwnRequests
from refold_protocol.rpc.envelope import Response, encode_notification, encode_request
from refold_protocol.rpc.wire_errors import ErrorObject, RpcId
from refold_server.rpc.method import CancelParams


class PeerError(Exception):
    """The client answered one of our requests with an error."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(f"{error.message} ({error.code})")
        self.error = error


class PeerGoneError(Exception):
    """The connection ended before the client answered."""


class PeerRequests:
    """Requests to the client that wait for their replies. `send` takes a message's body."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._own: OwnRequests[asyncio.Future[Raw]] = OwnRequests()
        self._gone = False

    async def request(self, method: str, params: object = None) -> Raw:
        """Send a request and give its result as it came. Raises PeerError or PeerGoneError."""
        if self._gone:
            raise PeerGoneError(method)
        waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        request_id = self._own.allot(waiter)
        self._send(encode_request(request_id, method, params))
        try:
            return await waiter
        except asyncio.CancelledError:
            if self._own.settle(request_id) is not None:
                self._send(encode_notification("$/cancelRequest", CancelParams(request_id)))
            raise

    def settle(self, response: Response) -> bool:
        """Take a reply; False when nobody waits for it."""
        waiter = self._own.settle(response.id)
        if waiter is None:
            return False
        if not waiter.done():
            if response.error is None:
                waiter.set_result(response.result)
            else:
                waiter.set_exception(PeerError(response.error))
        return True

    def fail(self, request_id: RpcId | None, error: ErrorObject) -> bool:
        """Take a reply that could not be read as an error; False when nobody waits for it."""
        return self.settle(Response(request_id, Raw(b"null"), error))

    def gone(self) -> None:
        """The connection is over: nobody will answer."""
        self._gone = True
        for waiter in self._own.settle_all():
            if not waiter.done():
                waiter.set_exception(PeerGoneError("the connection ended before the client answered"))
