"""From the configuration and a session's settings to what is fixed for its calls: model, call config, permissions, limits.

The call config is recorded and is all that an encoder sees beside the history, so every setting that can change a byte of
a body is resolved here, with its default filled in. Nothing that only concerns the way to the provider gets in.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from refold_protocol.errors import ConfigError, ProviderError
from refold_protocol.session.events import SessionSettings
from refold_protocol.session.header import canonical_config
from refold_protocol.session.messages import CallConfig
from refold_server.config import Config, Mode, ModelConfig, ProviderConfig
from refold_server.config_faults import described, near

REHEARSAL: Final = "rehearsal"
"""Name of the embedded provider, which is always there and cannot be configured."""

DEFAULT_MODEL: Final = "rehearsal/workspace"
"""The model of a session when nobody said anything: it works offline."""


class ResolvedModel(Struct, frozen=True):
    """A model whose provider is configured. `model` is the provider's own name for it, which may hold slashes."""

    provider: ProviderConfig
    model: str
    profile: ModelConfig


def split_model(text: str) -> tuple[str, str]:
    """Split `provider/model` at the first slash. Raises ConfigError when a part is missing."""
    provider, _, model = text.partition("/")
    if not provider.strip() or not model.strip():
        raise ConfigError("model", f'expects "provider/model"; it is {described(text)}')
    return provider, model


def resolve_model(config: Config, text: str) -> ResolvedModel:
    """Find the provider of `provider/model`. Raises ConfigError for a text of another form, ProviderError
    `model.unconfigured`, which says what to write, when there is no such provider."""
    name, model = split_model(text)
    provider = config.provider(name)
    if provider is None:
        hint = near(name, tuple(row.name for row in config.providers))
        raise ProviderError(
            "model.unconfigured",
            f"no provider {name!r} is configured for the model {text!r}; "
            + (hint or f"add [providers.{name}] with dialect and base_url to the configuration file"),
        )
    return ResolvedModel(provider, model, config.profile(text))


def call_config(config: Config, settings: SessionSettings) -> CallConfig:
    """Give the canonical call config of a session with `settings`. Raises like `resolve_model`."""
    found = resolve_model(config, settings.model or config.model)
    profile = found.profile
    return canonical_config(
        CallConfig(
            provider=found.provider.name,
            model=found.model,
            dialect=found.provider.dialect,
            dialect_options=profile.options or found.provider.options,
            temperature=profile.temperature,
            top_p=profile.top_p,
            max_tokens=profile.max_output,
            stop=profile.stop,
            reasoning_effort=settings.effort or profile.reasoning_effort,
            extra=profile.extra,
        )
    )


def permission_mode(config: Config, settings: SessionSettings) -> Mode:
    """Give what becomes of calls that change something. A word that a later release wrote counts as `deny`."""
    given = None if settings.permissions is None else settings.permissions.mode
    if given is None:
        return config.permissions.mode
    return given if given in ("ask", "allow") else "deny"


def step_limit(config: Config, settings: SessionSettings) -> int:
    """Give the largest number of steps of a turn in a session with `settings`."""
    limits = settings.limits
    return config.limits.steps if limits is None or limits.steps is None else limits.steps
