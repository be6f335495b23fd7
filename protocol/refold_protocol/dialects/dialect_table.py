"""Owns the one table of dialects: the name that a header's `dialect` holds, to what it means."""

from __future__ import annotations

from typing import Final

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS
from refold_protocol.dialects.dialect import Dialect
from refold_protocol.errors import ConfigError
from refold_protocol.session.events import EncoderId

DIALECTS: Final[dict[str, Dialect]] = {row.encoder.name: row for row in (CHAT_COMPLETIONS,)}
"""Every dialect that this release ships, by the name of its encoder."""


def dialect_named(name: str) -> Dialect:
    """Give a dialect. Raises ConfigError, which lists the names that there are."""
    row = DIALECTS.get(name)
    if row is None:
        raise ConfigError("dialect", f"there is no dialect {name!r}; known are: {', '.join(sorted(DIALECTS))}")
    return row


def ships_encoder(encoder: EncoderId) -> bool:
    """Tell whether bodies of that encoder, in that version, can be made again by this release."""
    row = DIALECTS.get(encoder.name)
    return row is not None and row.encoder == encoder
