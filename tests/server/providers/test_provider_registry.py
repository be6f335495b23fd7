"""A configuration names a provider; one client serves them all."""

from __future__ import annotations

import pytest

from refold_protocol.dialects.chat_completions import resolve_options
from refold_protocol.errors import ConfigError
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.offline_provider import OfflineProvider
from refold_server.providers.provider_registry import close_providers, open_provider
from tests.support.asking import ask
from tests.support.chat_stream import reply, text_in
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio


def config(name: str, base_url: str | None = None, dialect: str = "chat-completions") -> ProviderConfig:
    return ProviderConfig(name, dialect, resolve_options({}), base_url)


async def test_a_provider_without_an_address_is_the_embedded_one() -> None:
    assert isinstance(open_provider(config("rehearsal"), TimeoutsConfig()), OfflineProvider)


async def test_providers_share_connections_and_can_be_used_again_after_closing() -> None:
    with FakeProvider(*[answer(reply("ok"))] * 3) as server:
        one, two = (open_provider(config(name, server.base_url), TimeoutsConfig()) for name in ("one", "two"))
        assert isinstance(one, HttpProvider)
        assert [text_in((await ask(provider)).chunks) for provider in (one, two)] == ["ok", "ok"]
        assert server.connections == 1
        await close_providers()
        await close_providers()
        assert text_in((await ask(one)).chunks) == "ok"
        await close_providers()
    assert server.connections == 2


async def test_a_dialect_that_is_not_shipped_is_refused() -> None:
    with pytest.raises(ConfigError, match="telegraph"):
        open_provider(config("x", "http://127.0.0.1:9/v1", "telegraph"), TimeoutsConfig())
