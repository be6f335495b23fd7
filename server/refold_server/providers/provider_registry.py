"""Providers by their configuration: the interface of one, and what all providers of a process share.

A provider sends exactly the bytes that it is given, because their digest is in the log already; it never encodes. It
knows no session, no log and no retry policy. Providers that are reached the same way share an HTTP client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, Protocol

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.http_transport import HttpClients
from refold_server.providers.offline_provider import OfflineProvider


class Provider(Protocol):
    """One configured provider."""

    def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Send `body`, the encoded form of `request`, and give the chunks of the reply in order, ending with a finish.

        Raises ProviderError, after the chunks that came before the failure. A reply without a positive end is a failure.
        Closing the generator or cancelling its caller closes the connection; whoever iterates closes it
        (`contextlib.aclosing`), because a generator that is only dropped keeps its connection until it is collected.
        """
        ...


_CLIENTS: Final = HttpClients()


def open_provider(config: ProviderConfig, timeouts: TimeoutsConfig) -> Provider:
    """Give a provider; connects to nothing yet. Without an address it is the embedded one. Raises ConfigError for a
    dialect that is not shipped."""
    if config.base_url is None:
        return OfflineProvider()
    return HttpProvider(config, dialect_named(config.dialect), timeouts, _CLIENTS)


def record_replies(folder: Path) -> None:
    """Keep what the providers of this process answer from now on. Raises ConfigError for a folder that cannot be made."""
    from refold_server.providers.reply_recording import ReplyRecorder  # on use: it imports httpx

    _CLIENTS.recorder = ReplyRecorder(folder)


async def close_providers() -> None:
    """Close the connections of all providers of this process, and record no more. Idempotent; a provider that is used again
    opens new ones."""
    _CLIENTS.recorder = None
    await _CLIENTS.close()
