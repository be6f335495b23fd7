"""Owns JSON-RPC over a child process's pipes, from the client's side.

Every message must be claimed: a reply by a request of ours, a notification or a request by a handler. What nobody claims
is raised at the next call and at the close, so that neither side's mistakes stay unseen. Must not know what methods mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from anyio.abc import Process

from refold_client.client_errors import ConnectionEndedError, RpcError, UnclaimedMessageError
from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame

Json = dict[str, Any]


class _Waiting:
    """A request that has no reply yet. `claim` sees the result before any later message is looked at."""

    def __init__(self, claim: Callable[[Any], None] | None) -> None:
        self.claim = claim
        self.done = anyio.Event()
        self.reply: Json | None = None
        self.abandoned = False


class Connection:
    """The client's end of one connection. `run` must be running in a task while others are used."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._waiting: dict[int, _Waiting] = {}
        self._notified: dict[str, Callable[[Any], bool | None]] = {}
        self._asked: dict[str, Callable[[Any], Awaitable[Any]]] = {}
        self._unclaimed: list[Any] = []
        self._asked_now: dict[Any, asyncio.Task[Any]] = {}
        self._replying: set[asyncio.Task[None]] = set()
        self.ended = False
        """Whether the daemon has closed its output."""
        self._last_id = 0
        self._sending = anyio.Lock()

    def on_notification(self, method: str, handler: Callable[[Any], bool | None]) -> None:
        """Have `handler` called with the params of each such notification; it returns False for one that it does not
        know either."""
        self._notified[method] = handler

    def on_request(self, method: str, handler: Callable[[Any], Awaitable[Any]]) -> None:
        """Have the daemon's requests of this method answered by `handler`: its result, or the RpcError that it raises. It is
        cancelled when the daemon cancels its request."""
        self._asked[method] = handler

    async def request(self, method: str, params: Any = None, *, claim: Callable[[Any], None] | None = None) -> Any:
        """Send a request and give its result. Cancelling it cancels it at the daemon.

        Raises RpcError, ConnectionEndedError, and UnclaimedMessageError for what came before.
        """
        self.complain()
        if self.ended:
            raise ConnectionEndedError(f"{method}: the daemon is gone")
        self._last_id += 1
        request_id, waiting = self._last_id, _Waiting(claim)
        self._waiting[request_id] = waiting
        try:
            await self._send({"jsonrpc": "2.0", "id": request_id, "method": method} | _params(params))
            await waiting.done.wait()
        except anyio.get_cancelled_exc_class():
            waiting.abandoned = True
            with anyio.CancelScope(shield=True):
                await self.notify("$/cancelRequest", {"id": request_id})
            raise
        reply = waiting.reply
        if reply is None:
            self.complain()  # what came instead of the reply says more than its absence
            raise ConnectionEndedError(f"{method}: the daemon ended before it answered")
        if "error" in reply:
            raise RpcError(reply["error"])
        return reply["result"]

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification. Nothing happens when the daemon is gone."""
        await self._send({"jsonrpc": "2.0", "method": method} | _params(params))

    async def run(self) -> None:
        """Take messages until the daemon closes its output or breaks the framing. Raises what a handler of notifications
        raises."""
        frames = FrameReader()
        assert self.process.stdout is not None
        try:
            async for data in self.process.stdout:
                for event in frames.feed(data):
                    if isinstance(event, Frame):
                        self._take(msgspec.json.decode(event.body))
                    else:
                        self._unclaimed.append(event)
                        return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the daemon was killed, or the client is closing: the same end
        finally:
            if frames.mid_frame:
                self._unclaimed.append("the output ended inside a frame")
            self.ended = True
            for waiting in self._waiting.values():
                waiting.done.set()
            for task in self._asked_now.values():
                task.cancel()

    def complain(self) -> None:
        """Raise UnclaimedMessageError for what nobody claimed since the last time."""
        if self._unclaimed:
            messages, self._unclaimed = self._unclaimed, []
            raise UnclaimedMessageError(messages)

    async def _send(self, message: Json) -> None:
        frame = encode_frame(msgspec.json.encode(message))
        assert self.process.stdin is not None
        async with self._sending:
            with anyio.CancelScope(shield=True):  # half a frame would be the end of the connection
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # gone: `run` tells those who wait
                    await self.process.stdin.send(frame)

    def _take(self, message: Any) -> None:
        claimed = False
        if "method" not in message:
            claimed = self._take_reply(message)
        elif "id" in message:
            claimed = message["method"] in self._asked
            self._begin_answer(message["id"], message["method"], message.get("params"))
        elif message["method"] == "$/cancelRequest":
            claimed = True  # also where the answer is on its way already
            if (task := self._asked_now.get(message["params"]["id"])) is not None:
                task.cancel()
        elif message["method"] in self._notified:
            claimed = self._notified[message["method"]](message.get("params")) is not False
        if not claimed:
            self._unclaimed.append(message)

    def _take_reply(self, message: Json) -> bool:
        waiting = self._waiting.pop(message["id"], None) if isinstance(message.get("id"), int) else None
        if waiting is None:
            return False
        waiting.reply = message
        if waiting.claim is not None and "result" in message and not waiting.abandoned:
            waiting.claim(message["result"])
        waiting.done.set()
        return True

    def _begin_answer(self, request_id: Any, method: str, params: Any) -> None:
        answering = self._asked_now[request_id] = asyncio.create_task(self._answer(method, params))
        replying = asyncio.create_task(self._reply(request_id, answering))
        self._replying.add(replying)
        replying.add_done_callback(self._replying.discard)

    async def _answer(self, method: str, params: Any) -> Any:
        handler = self._asked.get(method)
        if handler is None:
            raise RpcError({"code": -32601, "message": "this client does not answer that"})
        return await handler(params)

    async def _reply(self, request_id: Any, answering: asyncio.Task[Any]) -> None:
        """Reply once, whatever became of the answer; it may have been cancelled before it began."""
        await asyncio.wait({answering})
        del self._asked_now[request_id]
        reply: Json = {"jsonrpc": "2.0", "id": request_id}
        error = None if answering.cancelled() else answering.exception()
        if answering.cancelled():
            reply["error"] = {"code": -32800, "message": "cancelled"}
        elif isinstance(error, RpcError):
            reply["error"] = {"code": error.code, "message": error.message}
        elif error is not None:  # answered, and raised where the caller looks
            reply["error"] = {"code": -32603, "message": "the client's handler failed"}
            self._unclaimed.append(error)
        else:
            reply["result"] = answering.result()
        await self._send(reply)


def _params(params: Any) -> Json:
    return {} if params is None else {"params": params}
