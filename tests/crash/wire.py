"""Connection between a daemon and its client in one process: every message goes through the pipe first.

The transport keeps the promises of `transport.py`; what the daemon sends counts as told the moment it was sent, which is the
strictest reading. The client asks, answers and remembers nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame
from refold_server.rpc.stdio import Hooks
from tests.crash.pipe import Pipe

Answer = Callable[[str, Any], Any]
"""Gives the result for a request of the daemon, or an awaitable of it."""


class Line:
    """The transport. `heard` is given each message of the daemon."""

    unsent = 0
    unsent_bytes = 0

    def __init__(self, pipe: Pipe, heard: Callable[[Any], None]) -> None:
        self._pipe = pipe
        self._heard = heard
        self._frames = FrameReader()
        self._inbox: deque[bytes] = deque()
        self._paused = False
        self._hooks: Hooks | None = None

    def start(self, hooks: Hooks) -> None:
        """Begin to carry."""
        self._hooks = hooks
        self._deliver()

    def send(self, frame: bytes) -> None:
        """As the daemon: send a message."""
        for event in self._frames.feed(frame):
            assert isinstance(event, Frame)
            self._pipe.say("<", event.body)
            self._heard(json.loads(event.body))

    def send_event(self, frame: bytes) -> None:
        """As the daemon: send events."""
        self.send(frame)

    async def events_room(self) -> bool:
        """There is room always."""
        return True

    def watch(self) -> None:
        """Have `progressed` called: nothing ever waits."""
        assert self._hooks is not None
        asyncio.get_running_loop().call_soon(self._hooks.progressed)

    def pause(self) -> None:
        """Take no more bytes."""
        self._paused = True

    def resume(self) -> None:
        """Take bytes again."""
        self._paused = False
        self._deliver()

    async def drained(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Take nothing any more."""
        self.pause()

    def put(self, message: Any) -> None:
        """As the client: send a message."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._pipe.say(">", body)
        self._inbox.append(encode_frame(body))
        self._deliver()

    def end(self) -> None:
        """As the client: end the stream."""
        self._inbox.append(b"")
        self._deliver()

    def _deliver(self) -> None:
        if self._inbox and not self._paused and self._hooks is not None:
            asyncio.get_running_loop().call_soon(self._deliver_one)

    def _deliver_one(self) -> None:
        if self._inbox and not self._paused and self._hooks is not None:
            self._hooks.receive(self._inbox.popleft())
            self._deliver()


class Client:
    """The client's side. `answer` decides what the daemon's own requests get; `on_trouble` is told of `session/trouble`."""

    def __init__(self, pipe: Pipe, answer: Answer) -> None:
        self.line = Line(pipe, self._heard)
        self.troubles: list[Any] = []
        self.errors: list[Any] = []
        self._answer = answer
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._last_id = 0
        self._answering: set[asyncio.Task[None]] = set()

    async def ask(self, method: str, **params: Any) -> Any:
        """Send a request; give its result, or None where it was refused (`errors` has it then)."""
        self._last_id += 1
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_id] = method, answered
        self.line.put({"id": self._last_id, "method": method, "params": params})
        return await answered

    def replied(self) -> None:
        """A reply was told. Fail points are put here."""

    def opened(self) -> None:
        """The answer to an open was told."""

    def ended(self) -> None:
        """The end of a turn was told."""

    def _heard(self, message: Any) -> None:
        if "method" not in message:
            method, answered = self._waiting.pop(message["id"])
            if "error" in message:
                self.errors.append(message["error"])
            self.replied()
            if method == "session/open":
                self.opened()
            elif method in ("turn/wait", "turn/interrupt"):
                self.ended()
            if not answered.done():
                answered.set_result(message.get("result"))
        elif "id" in message:
            task = asyncio.get_running_loop().create_task(self._settle(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif message["method"] == "session/trouble":
            self.troubles.append(message["params"])

    async def _settle(self, message: Any) -> None:
        result = await self._answer(message["method"], message["params"])
        if result is not None:
            self.line.put({"id": message["id"], "result": result})
