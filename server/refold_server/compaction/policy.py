"""Owns what the settings of compaction come to for a session and a window: from how many tokens on, and how many stay.

Pure. Figures are tokens as the session model's meter counts them, whichever model sums up.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold_protocol.errors import ConfigError
from refold_protocol.session.events import SessionSettings
from refold_server.config import CompactionConfig

_WORTH: Final = 10
"""Room is made for a while where at least one in so many tokens of the window becomes free."""

RETAINED_SHARE: Final = 0.16
"""The share of the window that stays as it is at the end of the history, where nothing else is set."""


def policy_of(configured: CompactionConfig, settings: SessionSettings) -> CompactionConfig:
    """Give what holds for a session: field by field, what it says itself goes before the configuration."""
    given = settings.compaction
    if given is None:
        return configured
    return replace(configured, **{name: value for name, value in asdict(given).items() if value is not None})


class Bounds(Struct, frozen=True, gc=False):
    """Of a model with `window` tokens: the history is compacted when a request reaches `threshold`, and `retain` at its end
    stay as they are."""

    window: int
    threshold: int
    retain: int

    @property
    def brim(self) -> int:
        """From how many tokens on room is made whatever it costs: half-way from the threshold to the window's end."""
        return (self.threshold + self.window) // 2

    @property
    def worth(self) -> int:
        """How many tokens must be new to a summary before the brim, and become free where results are cut. Where header and
        tail alone come near the threshold, each message would else be summed up by itself: for a whole request each time, and
        the cache behind it."""
        return self.window // _WORTH

    @property
    def least(self) -> int:
        """The same at the brim, where room is needed: from fewer tokens no room comes that is worth a call."""
        return self.worth // 4


def bounds_of(policy: CompactionConfig, window: int) -> Bounds:
    """Give the bounds for a window. Raises ConfigError, with the key's last part, for a tail that reaches the threshold."""
    threshold = int(window * policy.threshold_ratio)
    retain = int(window * RETAINED_SHARE) if policy.retain_tokens is None else policy.retain_tokens
    if retain < threshold:
        return Bounds(window, threshold, retain)
    if policy.retain_tokens is None:
        reason = f"expects more than {RETAINED_SHARE}, the share of the window that stays as it is; it is "
        raise ConfigError("threshold_ratio", f"{reason}{policy.threshold_ratio:g}")
    reason = f"expects less than {threshold}, where compaction begins in a window of {window} tokens; it is {retain}"
    raise ConfigError("retain_tokens", reason)
