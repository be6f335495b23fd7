"""Owns the seam between the loop and whoever answers a request: one method.

A provider sends exactly the bytes that it is given, because their digest is in the log already; it never encodes. It
knows no session, no log and no retry policy.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request


class Provider(Protocol):
    """One configured provider."""

    def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Send `body`, the encoded form of `request`, and give the chunks of the reply in order, ending with a finish.

        Raises ProviderError, after the chunks that came before the failure. A reply without a positive end is a failure.
        Closing the generator or cancelling its caller closes the connection; whoever iterates closes it
        (`contextlib.aclosing`), because a generator that is only dropped keeps its connection until it is collected.
        """
        ...
