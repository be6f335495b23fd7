"""Owns the order of life of a connection, as in LSP 3.17: initialize, work, shutdown, exit.

A pure state machine: it says what may pass and what the exit code is. Must not know transports, and never answers itself.

Owns the ids of requests that wait for their replies: our own, and the peer's.

Our own ids are integers counted from 1: Vim's channel cannot answer a request with a text id. Must not know what waits.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from refold_protocol.rpc.wire_errors import ErrorObject, RpcId, invalid_request, not_initialized


class Stage(Enum):
    """Where a connection is."""

    FRESH = "fresh"
    RUNNING = "running"
    SHUT_DOWN = "shut down"
    OVER = "over"


class Lifecycle:
    """One connection's stage. `exit_code` is what the process ends with if it ended now."""

    def __init__(self) -> None:
        self.stage = Stage.FRESH
        self.exit_code = 1

    def refusal(self, method: str) -> ErrorObject | None:
        """Give the error that answers a request for `method` now, or None where it may pass."""
        if self.stage is Stage.FRESH:
            return None if method == "initialize" else not_initialized(method)
        if self.stage is not Stage.RUNNING:
            return invalid_request(f"{method} after shutdown")
        return invalid_request("initialize was answered before") if method == "initialize" else None

    def takes(self, method: str) -> bool:
        """Tell whether a notification is acted on now. `exit` always is; after `shutdown`, requests that still run can
        be cancelled."""
        if method == "exit" or self.stage is Stage.RUNNING:
            return True
        return self.stage is Stage.SHUT_DOWN and method == "$/cancelRequest"

    def initialized(self) -> None:
        """`initialize` was answered with a result."""
        if self.stage is Stage.FRESH:
            self.stage = Stage.RUNNING

    def shut_down(self) -> None:
        """`shutdown` was taken: from now on the exit code is 0."""
        self.stage = Stage.SHUT_DOWN
        self.exit_code = 0

    def over(self) -> None:
        """The connection ended, in whatever way."""
        self.stage = Stage.OVER


T = TypeVar("T")


class OwnRequests(Generic[T]):
    """Our requests that the peer has not answered yet, each with whatever waits for its reply."""

    def __init__(self) -> None:
        self._waiting: dict[int, T] = {}
        self._last = 0

    def allot(self, waiter: T) -> int:
        """Give the next id and remember who waits for it."""
        self._last += 1
        self._waiting[self._last] = waiter
        return self._last

    def settle(self, reply_id: RpcId | None) -> T | None:
        """Give who waits for the reply with this id, and forget it; None for an id that nobody waits for."""
        return self._waiting.pop(reply_id, None) if isinstance(reply_id, int) else None

    def settle_all(self) -> tuple[T, ...]:
        """Give all who wait, oldest first, and forget them: the connection is over."""
        waiting = tuple(self._waiting.values())
        self._waiting.clear()
        return waiting

    def __len__(self) -> int:
        return len(self._waiting)


class InFlight(Generic[T]):
    """The peer's requests that have no reply yet, each with whatever can cancel it."""

    def __init__(self) -> None:
        self._running: dict[RpcId, T] = {}

    def begin(self, request_id: RpcId, running: T) -> bool:
        """Take up a request; False, with nothing changed, when one with this id is in flight."""
        if request_id in self._running:
            return False
        self._running[request_id] = running
        return True

    def get(self, request_id: RpcId) -> T | None:
        """Give what runs under this id."""
        return self._running.get(request_id)

    def all(self) -> tuple[T, ...]:
        """Give all that is in flight, oldest first."""
        return tuple(self._running.values())

    def finish(self, request_id: RpcId) -> None:
        """Forget a request, when its reply is on its way."""
        self._running.pop(request_id, None)

    def __len__(self) -> int:
        return len(self._running)
