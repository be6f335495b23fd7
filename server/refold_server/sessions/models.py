"""Owns what can be said of configured models and providers without asking any provider."""

from __future__ import annotations

from collections.abc import Mapping

from refold_protocol.rpc.listing import ModelRow, ProviderRow
from refold_server.config import Config, ModelConfig, ProviderConfig


def model_rows(config: Config) -> tuple[ModelRow, ...]:
    """Give the default model first, then the other models that have a row in the configuration, in its order."""
    named = [config.model, *(row.name for row in config.models if row.name != config.model)]
    rows = (_model_row(config, config.profile(name)) for name in named)
    return tuple(row for row in rows if row is not None)


def provider_rows(config: Config, env: Mapping[str, str]) -> tuple[ProviderRow, ...]:
    """Give the providers. Keys are looked for, and never shown."""
    return tuple(ProviderRow(row.name, row.dialect, _credentials(row, env), row.base_url) for row in config.providers)


def _model_row(config: Config, profile: ModelConfig) -> ModelRow | None:
    provider = config.provider(profile.name.partition("/")[0])
    if provider is None:
        return None
    is_default = profile.name == config.model
    return ModelRow(profile.name, provider.name, provider.dialect, is_default, profile.context_window, profile.max_output)


def _credentials(provider: ProviderConfig, env: Mapping[str, str]) -> str:
    if provider.key_command is not None:
        return "command"
    if provider.key_env is None:
        return "none"
    return "present" if env.get(provider.key_env, "").strip() else "missing"
