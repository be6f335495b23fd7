"""Each preset stands for a configuration that works, and everything in it can be set beside it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS
from refold_protocol.errors import ConfigError
from refold_server.config import Config, ProviderConfig, TimeoutsConfig
from refold_server.config_file import build_config, read_toml
from refold_server.providers.credentials import Credentials
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.http_transport import HttpClients
from refold_server.providers.presets import PRESETS
from refold_server.providers.proxy_route import route_to
from tests.support.asking import NO_LOGINS

LOCAL = {"llama.cpp": 8080, "lmstudio": 1234, "ollama": 11434, "sglang": 30000, "vllm": 8000}

DOCUMENTED = {
    "alibaba": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions",
    "azure": "https://house.openai.azure.com/openai/v1/chat/completions",
    "cerebras": "https://api.cerebras.ai/v1/chat/completions",
    "deepseek": "https://api.deepseek.com/v1/chat/completions",
    "fireworks": "https://api.fireworks.ai/inference/v1/chat/completions",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
    "groq": "https://api.groq.com/openai/v1/chat/completions",
    "mistral": "https://api.mistral.ai/v1/chat/completions",
    "moonshot": "https://api.moonshot.ai/v1/chat/completions",
    "openai": "https://api.openai.com/v1/chat/completions",
    "openrouter": "https://openrouter.ai/api/v1/chat/completions",
    "together": "https://api.together.xyz/v1/chat/completions",
    "xai": "https://api.x.ai/v1/chat/completions",
    "zai": "https://api.z.ai/api/paas/v4/chat/completions",
}
"""Where each vendor documents that requests go."""


def config(text: str) -> Config:
    return build_config(read_toml(text, "c.toml"), lambda: Path("/store"))


def provider(preset: str, more: str = "") -> ProviderConfig:
    if preset == "azure" and "base_url" not in more:
        more += 'base_url = "https://house.openai.azure.com/openai/v1"\n'
    return config(f'[providers.p]\npreset = "{preset}"\n{more}').providers[1]


def test_each_preset_is_tried_here() -> None:
    assert {*LOCAL, *DOCUMENTED} == set(PRESETS)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_requests_go_where_the_vendor_documents_it_with_a_key_from_a_variable(name: str) -> None:
    row = provider(name)
    opened = HttpProvider(row, CHAT_COMPLETIONS, TimeoutsConfig(), HttpClients(), credentials=Credentials(row, {}, NO_LOGINS))
    assert opened.url("m") == DOCUMENTED[name]
    assert row.key_env is not None
    assert row.key_env.endswith("_API_KEY")


@pytest.mark.parametrize(("name", "port"), LOCAL.items())
def test_a_local_server_is_asked_at_its_own_port_without_key_and_proxy(name: str, port: int) -> None:
    row = provider(name)
    address = urlsplit(str(row.base_url))
    assert (address.hostname, address.port, address.path, row.key_env) == ("127.0.0.1", port, "/v1", None)
    assert route_to(str(row.base_url), None, "", {"http_proxy": "http://p:1"}).proxy is None


def test_azure_takes_its_key_in_a_header_of_its_own_and_needs_the_resources_address() -> None:
    assert provider("azure").key_header == "api-key"
    with pytest.raises(ConfigError, match="needs base_url"):
        config('[providers.p]\npreset = "azure"\n')


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("openai", "maxTokensField", "max_completion_tokens"),
        ("azure", "maxTokensField", "max_completion_tokens"),
        ("mistral", "includeUsage", False),
        ("groq", "maxTokensField", "max_tokens"),
    ],
)
def test_options_are_what_the_vendor_takes(name: str, option: str, value: object) -> None:
    assert json.loads(provider(name).options)[option] == value


def test_what_is_set_beside_a_preset_goes_before_it() -> None:
    more = 'base_url = "http://10.0.0.9:1/v1"\nkey_command = ["pass", "x"]\noptions = { tool_only_content = "empty" }\n'
    row = provider("mistral", more)
    assert (row.base_url, row.key_env, row.key_command) == ("http://10.0.0.9:1/v1", None, ("pass", "x"))
    options = json.loads(row.options)
    assert (options["includeUsage"], options["toolOnlyContent"]) == (False, "empty")


def test_a_wrong_preset_is_told_with_what_was_meant() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ollama'"):
        provider("olama")


def test_without_a_preset_a_dialect_and_an_address_are_needed() -> None:
    with pytest.raises(ConfigError, match="needs dialect"):
        config('[providers.p]\nbase_url = "http://h/v1"\n')
