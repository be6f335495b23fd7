"""Owns the rules of the epoch header: its canonical form, its fold, and the draft that records a change of it.

Canonical: an empty system text, tool list, prefix or stop list is absent, numbers that stand for fractions are floats.
Headers are compared by value, on every step; nobody announces changes, because an announcement can be forgotten.
Header deltas are part of the vocabulary but not of this release: it writes snapshots and refuses a log that holds a delta.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from refold_protocol.errors import SessionFormatUnsupportedError
from refold_protocol.session.events import Draft, Event, RequestHeader, RequestHeaderDelta
from refold_protocol.session.header_types import CallConfig, EpochHeader


def canonical_config(config: CallConfig) -> CallConfig:
    """Give `config` with an empty stop list absent and its fractions as floats."""
    return replace(
        config,
        stop=config.stop or None,
        temperature=None if config.temperature is None else float(config.temperature),
        top_p=None if config.top_p is None else float(config.top_p),
    )


def canonical_header(header: EpochHeader) -> EpochHeader:
    """Give `header` in its canonical form: the only one that is recorded, folded and compared."""
    return EpochHeader(
        config=canonical_config(header.config),
        system=header.system or None,
        tools=header.tools or None,
        message_prefix=header.message_prefix or None,
    )


def header_step(state: EpochHeader | None, event: Event) -> EpochHeader | None:
    """Fold one event into the header in force (None: no request was made yet)."""
    match event.data:
        case RequestHeader(header=header):
            return header
        case RequestHeaderDelta():
            raise SessionFormatUnsupportedError(
                f"event {event.seq} is a header delta, which this release does not read; use a later one", seq=event.seq
            )
        case _:
            return state


def fold_header(events: Iterable[Event], state: EpochHeader | None = None) -> EpochHeader | None:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = header_step(state, event)
    return state


def header_draft(recorded: EpochHeader | None, wanted: EpochHeader, *, anchored: bool) -> Draft | None:
    """Give the event that makes `wanted` (canonical) the header in force, or None when it is already.

    `anchored` tells whether this instance has written a header before: its first request records a snapshot in any case,
    which marks the process boundary. The reason looks at the log alone: `initial` without a header in it, else `resume`.
    """
    if not anchored:
        return Draft(RequestHeader(wanted, "initial" if recorded is None else "resume"))
    if recorded == wanted:
        return None
    return Draft(RequestHeader(wanted, "fallback"))
