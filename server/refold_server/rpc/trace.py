"""Owns `$/setTrace` and `$/logTrace`: what the daemon does, told to a client that asks for it.

One line for each request that was answered, with the time it took; with `verbose`, the params as well. Off until asked for,
and then it costs one comparison a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from refold_protocol.rpc.notices import LogTraceNotice
from refold_protocol.rpc.params import SetTraceParams
from refold_server.rpc.dispatch import Handler

Notify = Callable[[str, object], None]
"""Sends a notification."""


class Trace:
    """The trace of one connection. `level` is `off`, `messages` or `verbose`."""

    def __init__(self, notify: Notify) -> None:
        self.level = "off"
        self._notify = notify

    async def set(self, params: SetTraceParams) -> None:
        """$/setTrace."""
        self.level = params.value

    def traced(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Give the same handlers, each telling of itself."""
        return {name: self._traced(name, handler) for name, handler in handlers.items()}

    def _traced(self, name: str, handler: Handler) -> Handler:
        async def handle(params: Any) -> object:
            if self.level == "off":
                return await handler(params)
            began, outcome = time.perf_counter(), "failed"
            try:
                result = await handler(params)
                outcome = "answered"
                return result
            finally:
                self._tell(f"{name}: {outcome} after {(time.perf_counter() - began) * 1000:.1f} ms", params)

        return handle

    def _tell(self, message: str, params: Any) -> None:
        verbose = msgspec.json.encode(params).decode() if self.level == "verbose" else None
        self._notify("$/logTrace", LogTraceNotice(message, verbose))
