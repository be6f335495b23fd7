"""Owns the ways in which a running turn is told to stop: at once, or after its current step. Knows nothing of the log."""

from __future__ import annotations

import anyio

from refold_protocol.session.events import AbortCause


class TurnControl:
    """One turn's stop switch. `cause` is who pulled it first; `stop_after_step` ends the turn between two steps."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.cause: AbortCause | None = None
        self.stop_after_step: AbortCause | None = None

    def interrupt(self, cause: AbortCause) -> None:
        """Stop at once. Idempotent; the first cause stays."""
        if self.cause is None:
            self.cause = cause
        self.scope.cancel()

    def finish_step(self, cause: AbortCause) -> None:
        """Let the current step end, then stop."""
        if self.stop_after_step is None:
            self.stop_after_step = cause
