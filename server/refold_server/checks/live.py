"""Owns the live check: what an adapter is about to send is what a fresh reading of the log says it must send.

Independent of the caches it vouches for: it reads lines of the log and rebuilds from nothing.
"""

from __future__ import annotations

from refold_protocol.dialects.registry import dialect_named
from refold_protocol.errors import InvariantError
from refold_protocol.session.codec import decode_event, line_type
from refold_protocol.session.rebuild import NOTHING_SEEN, horizon_step, request_of
from refold_protocol.session.request import Request
from refold_storage.interface import Handle


class LiveCheck:
    """Checks the requests of one instance."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def check(self, request: Request, body: bytes) -> None:
        """Raise InvariantError when `request` or `body` differs from what the log says."""
        state = NOTHING_SEEN
        for line in self._handle.lines(0):
            if line_type(line) != "assistant/chunk":
                state = horizon_step(state, decode_event(line))
        rebuilt = request_of(state)
        if rebuilt != request or dialect_named(rebuilt.header.config.dialect).encode(rebuilt, {}) != body:
            raise InvariantError("the request about to be sent is not the one that the log says")
