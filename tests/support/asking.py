"""Asking a provider in tests: opening one for an address, and gathering what it gives and how it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS, resolve_options
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.credentials import Credentials
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.http_transport import HttpClients
from refold_server.providers.login_store import LoginStore
from refold_server.providers.provider_registry import Provider
from tests.support.requests import request, user

NOW = 1_790_000_000.0
"""What the clock of providers under test says, in Unix seconds."""


NO_LOGINS = LoginStore(Path("/nonexistent/logins.json"))
"""The logins of a user who has none."""


class Asked(Struct, frozen=True):
    """What came, and what it ended with."""

    chunks: list[Chunk]
    error: ProviderError | None


async def ask(provider: Provider, body: bytes = b"{}", asked: Request | None = None) -> Asked:
    """Ask once."""
    chunks: list[Chunk] = []
    try:
        async with aclosing(provider.stream(asked or request(user("hi")), body)) as stream:
            async for chunk in stream:
                chunks.append(chunk)
    except ProviderError as error:  # the outcome that a test looks at
        return Asked(chunks, error)
    return Asked(chunks, None)


async def error_of(provider: Provider, body: bytes = b"{}") -> ProviderError:
    """Ask once, and give the error that must come."""
    asked = await ask(provider, body)
    assert asked.error is not None, asked.chunks
    return asked.error


@asynccontextmanager
async def http_provider(
    base_url: str,
    *,
    timeouts: TimeoutsConfig | None = None,
    environment: Mapping[str, str] | None = None,
    **config: Any,
) -> AsyncGenerator[HttpProvider, None]:
    """Give a provider of that address with a client of its own."""
    clients = HttpClients()
    row = ProviderConfig("fake", "chat-completions", resolve_options({}), base_url, **config)
    try:
        yield HttpProvider(
            row,
            CHAT_COMPLETIONS,
            timeouts or TimeoutsConfig(),
            clients,
            credentials=Credentials(row, environment or {}, NO_LOGINS),
            now=lambda: NOW,
        )
    finally:
        await clients.close()
