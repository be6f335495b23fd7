"""Owns the params that say when a session's history is summed up, and what the log records of them. Shapes only.

Whether the figures go with the window of the session's model is not known here: the server checks that.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from refold_protocol.session.events import CompactionSettings


class CompactionParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """When the history is summed up; an absent member stays as it is. `auto`: without being asked to. `threshold_ratio` is the
    share of the window at which that begins, above 0 and below 1; `retain_tokens` at the end stay as they are."""

    auto: bool | None = None
    threshold_ratio: Annotated[float, Meta(gt=0, lt=1)] | None = None
    retain_tokens: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if (self.auto, self.threshold_ratio, self.retain_tokens) == (None,) * 3:
            raise ValueError("say what of compaction is set: auto, thresholdRatio or retainTokens")


def compaction_settings(params: CompactionParams | None) -> CompactionSettings | None:
    """Give settings of compaction as the log records them."""
    return None if params is None else CompactionSettings(params.auto, params.threshold_ratio, params.retain_tokens)
