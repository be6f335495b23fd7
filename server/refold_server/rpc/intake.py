"""Owns the order in which messages are treated, and how far: steps that wait for their turn, bounded in bytes.

They are taken in short bursts, and not at all while the client leaves its replies unread. What is urgent does not wait. When
too much waits, reading stops until there is room again. Must not know what a step does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from refold_protocol.rpc.initialize import MAX_UNSENT_REPLIES, MAX_UNSENT_REPLY_BYTES
from refold_server.rpc.transport import Transport

Step: TypeAlias = Callable[[], None]
"""What is done when a message's turn comes: starting a handler, sending an error. Short; never raises."""

BURST: Final = 16
"""So many steps are taken before the loop turns to other things, and to the replies that they caused."""

MESSAGE_COST: Final = 1024
"""What a waiting message costs beside its bytes, roughly."""

FULL_BYTES: Final = 64 * 1024 * 1024
"""Above this nothing more is read."""


class Intake:
    """Steps in order of arrival. `pump` is called after each `add`, and by the transport when something was sent."""

    def __init__(self, transport: Transport, full_bytes: int = FULL_BYTES) -> None:
        self._transport = transport
        self._full_bytes = full_bytes
        self._waiting: deque[tuple[Step, int]] = deque()
        self._bytes = 0
        self._taken = 0  # in this turn of the loop
        self._reading = True
        self._closed = False

    @property
    def is_paused(self) -> bool:
        """Whether so many replies lie unread that only what is urgent is served."""
        transport = self._transport
        return transport.unsent >= MAX_UNSENT_REPLIES or transport.unsent_bytes >= MAX_UNSENT_REPLY_BYTES

    def add(self, step: Step, size: int, *, urgent: bool = False) -> None:
        """Put a step, which holds `size` bytes, behind the others. One that is urgent is taken now: after a burst of those
        that wait, so that a client that sends a few messages together finds them taken in their order, and before the rest."""
        if urgent:
            self._take()
            step()
            return
        self._waiting.append((step, size + MESSAGE_COST))
        self._bytes += size + MESSAGE_COST

    def pump(self) -> None:
        """Go on with what waits, as far as that is allowed now."""
        self._take()
        if self._waiting and not self._taken:
            self._transport.watch()
        self._balance()

    def close(self) -> None:
        """Forget what waits, and read nothing any more."""
        self._closed = True
        self._waiting.clear()
        self._bytes = 0
        self._transport.pause()

    def _pump_on(self) -> None:
        self._taken = 0
        self.pump()

    def _take(self) -> None:
        """Take steps: not more than BURST in one turn of the loop."""
        before = self._taken
        while self._waiting and not self.is_paused and self._taken < BURST:
            self._taken += 1
            step, cost = self._waiting.popleft()
            self._bytes -= cost
            step()
        if self._taken and not before:
            asyncio.get_running_loop().call_soon(self._pump_on)

    def _balance(self) -> None:
        full = self._bytes >= self._full_bytes
        if full == self._reading and not self._closed:
            self._reading = not full
            (self._transport.pause if full else self._transport.resume)()
