"""Tries of the configured providers: whether each answers, how soon, and what it tells of its models' windows."""

from __future__ import annotations

import time
from collections.abc import Iterable

import anyio
from msgspec import Struct

from refold_protocol.errors import ProviderError
from refold_server.cli.formatting import printable
from refold_server.config import Config, ProviderConfig, TimeoutsConfig
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.model_discovery import PATH
from refold_server.providers.provider_registry import close_providers, open_provider

SECONDS = 5.0
"""So long the answer of a provider is waited for."""


class ProviderTry(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What came of asking a provider for its models: the milliseconds that it took, or why there is no answer. A server that
    lists none answers 404, which is an answer."""

    provider: str
    milliseconds: int | None = None
    error: str | None = None


class SmallerWindow(Struct, frozen=True, gc=False):
    """A model whose server has a smaller window, `told`, than the configuration says, in tokens."""

    model: str
    configured: int
    told: int


async def try_providers(config: Config) -> tuple[tuple[ProviderTry, ...], tuple[SmallerWindow, ...]]:
    """Ask each provider that has an address, beside each other. Sends no prompt."""
    tries: dict[str, ProviderTry] = {}
    smaller: list[SmallerWindow] = []

    async def one(row: ProviderConfig, models: Iterable[tuple[str, int]]) -> None:
        opened = open_provider(row, TimeoutsConfig())
        assert isinstance(opened, HttpProvider)  # it has an address
        tries[row.name] = await _tried(row.name, opened)
        for name, window in () if tries[row.name].error else models:
            found = await opened.window(name.partition("/")[2])
            if found is not None and found.tokens < window:
                smaller.append(SmallerWindow(name, window, found.tokens))

    windows = [(row.name, row.context_window) for row in config.models if row.context_window is not None]
    asked = [row for row in config.providers if row.base_url is not None]
    try:
        async with anyio.create_task_group() as tasks:
            for row in asked:
                tasks.start_soon(one, row, [pair for pair in windows if pair[0].startswith(f"{row.name}/")])
    finally:
        await close_providers()
    return tuple(tries[row.name] for row in asked), tuple(sorted(smaller, key=lambda row: row.model))


async def _tried(name: str, provider: HttpProvider) -> ProviderTry:
    began = time.monotonic()
    try:
        await provider.get(PATH, SECONDS)
    except ProviderError as error:
        if error.details.get("status") not in (404, 405):
            return ProviderTry(name, error=printable(error.message))
    return ProviderTry(name, round((time.monotonic() - began) * 1000))
