"""Client that talks to an endpoint in the same process, through the transport's double."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from refold_protocol.rpc.framing import encode_frame
from refold_server.rpc.connection import Endpoint, OnEnd
from tests.support.memory_transport import MemoryTransport
from tests.support.toy_daemon import Toy


class Conversation:
    """The client's side. `messages` holds what came and was not asked for yet, in order."""

    def __init__(self, on_end: OnEnd | None = None) -> None:
        self.transport = MemoryTransport()
        self.endpoint = Endpoint(self.transport)
        self.toy = Toy(self.endpoint)
        self.messages: list[Any] = []
        self.task = asyncio.create_task(self.endpoint.run(self.toy.service(), on_end or self.toy.end))
        self._last_id = 0

    def put(self, *messages: Any) -> None:
        """Send messages: objects, or bodies as they are."""
        bodies = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in messages]
        self.transport.put(b"".join(map(encode_frame, bodies)))

    def request(self, method: str, params: Any = None, *, request_id: int | str | None = None) -> int | str:
        """Send a request; give its id."""
        self._last_id += 1
        chosen = self._last_id if request_id is None else request_id
        self.put({"jsonrpc": "2.0", "id": chosen, "method": method, "params": params})
        return chosen

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.put({"jsonrpc": "2.0", "method": method, "params": params})

    async def call(self, method: str, params: Any = None) -> Any:
        """Send a request; give its reply's result, or its error."""
        reply = await self.reply(self.request(method, params))
        return reply.get("result", reply.get("error"))

    async def reply(self, request_id: int | str | None) -> Any:
        """Wait for the reply with this id, and take it."""
        return await self.message(lambda message: "method" not in message and message["id"] == request_id)

    async def message(self, wanted: Callable[[Any], bool]) -> Any:
        """Wait for the first message that is wanted, and take it."""
        while True:
            self.messages += [json.loads(body) for body in self.transport.bodies()]
            for place, message in enumerate(self.messages):
                if wanted(message):
                    return self.messages.pop(place)
            await asyncio.sleep(0)

    async def interrupt(self) -> None:
        """Send `turn/interrupt`, which is served before what waits; return when it was."""
        self.request("turn/interrupt", {"session": "s", "turn": 1})
        await self.until(self.toy.released.is_set)

    async def turn(self) -> None:
        """Let the loop turn once."""
        await asyncio.sleep(0)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not reached():  # noqa: ASYNC110  # each turn of the loop takes everything a step further
            await asyncio.sleep(0)


@asynccontextmanager
async def conversation(*, initialized: bool = True) -> AsyncGenerator[Conversation]:
    """Begin a conversation; end it, and see that its connection ends too."""
    talk = Conversation()
    if initialized:
        await talk.call("initialize", {"capabilities": {}})
    yield talk
    talk.toy.released.set()
    talk.transport.read_on()
    talk.transport.resume()
    talk.transport.end()
    await talk.task
