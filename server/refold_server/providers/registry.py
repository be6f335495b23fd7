"""Owns the way from a provider's configuration to the provider, and what all providers of a process share.

One HTTP client serves them all: its TLS context and its connections are the dear part. It is made on first use.
"""

from __future__ import annotations

from typing import Final

from refold_protocol.dialects.registry import dialect_named
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.http import HttpProvider
from refold_server.providers.http_client import HttpClient
from refold_server.providers.provider import Provider
from refold_server.providers.rehearsal import RehearsalProvider

_CLIENT: Final = HttpClient()


def open_provider(config: ProviderConfig, timeouts: TimeoutsConfig) -> Provider:
    """Give a provider; connects to nothing yet. Without an address it is the embedded one. Raises ConfigError for a
    dialect that is not shipped."""
    if config.base_url is None:
        return RehearsalProvider()
    return HttpProvider(config, dialect_named(config.dialect), timeouts, _CLIENT)


async def close_providers() -> None:
    """Close the connections of all providers of this process. Idempotent; a provider that is used again opens new ones."""
    await _CLIENT.close()
