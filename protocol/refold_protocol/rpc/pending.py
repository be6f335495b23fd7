"""Owns the ids of requests that wait for their replies: our own, and the peer's.

Our own ids are integers counted from 1: Vim's channel cannot answer a request with a text id. Must not know what waits.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from refold_protocol.rpc.errors import RpcId

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
