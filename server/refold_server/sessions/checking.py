"""Owns the check of a session's settings before they are recorded: a value that cannot hold is refused with its reason.

Changes nothing. Settings that stand in a log already are not checked again: what has become wrong there is told when it
matters.
"""

from __future__ import annotations

from refold_protocol.errors import ConfigError
from refold_protocol.session.events import SessionSettings
from refold_protocol.session.meter_profile import UNCONFIGURED, TokenMeterError
from refold_protocol.session.session_state import NO_SETTINGS
from refold_server.compaction.policy import bounds_of
from refold_server.loop.instance import Host

_WIRE_NAMES = {"threshold_ratio": "thresholdRatio", "retain_tokens": "retainTokens"}


def check_settings(host: Host, settings: SessionSettings, before: SessionSettings = NO_SETTINGS) -> None:
    """Raise ConfigError and ProviderError `model.unconfigured` for a model that cannot be used; where model or compaction are
    not those of `before`, ConfigError `compaction` and TokenMeterError for figures that do not go with the model's window."""
    config = host.call_config(settings)
    changed = (settings.model, settings.compaction) != (before.model, before.compaction)
    if settings.compaction is None or not changed:
        return
    model = f"{config.provider}/{config.model}"
    try:
        window = host.meter(model).profile.window
    except TokenMeterError as error:
        if error.code != UNCONFIGURED:
            raise
        return  # nobody said how large the window is: then nothing is compacted by itself
    try:
        bounds_of(host.compaction(model, settings), window)
    except ConfigError as error:
        reason = error.message.removeprefix(f"{error.key}: ")
        raise ConfigError("compaction", f"{_WIRE_NAMES[error.key]} {reason} (model {model})") from None
