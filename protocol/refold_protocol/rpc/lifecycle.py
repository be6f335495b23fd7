"""Owns the order of life of a connection, as in LSP 3.17: initialize, work, shutdown, exit.

A pure state machine: it says what may pass and what the exit code is. Must not know transports, and never answers itself.
"""

from __future__ import annotations

from enum import Enum

from refold_protocol.rpc.errors import ErrorObject, invalid_request, not_initialized


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
