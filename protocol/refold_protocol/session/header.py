"""Owns the rules of the epoch header: its canonical form, its fold, and the draft that records a change of it.

Canonical: an empty system text, tool list, prefix or stop list is absent, numbers that stand for fractions are floats.
Headers are compared by value, on every step; nobody announces changes, because an announcement can be forgotten. How a
change is put into a delta is `header_delta.py`'s business; when a delta is written, and when a snapshot, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.session.events import Draft, Event, RequestHeader, RequestHeaderDelta
from refold_protocol.session.header_delta import apply_delta, diff_header
from refold_protocol.session.header_types import CallConfig, EpochHeader
from refold_protocol.session.messages import encode_compact


def canonical_config(config: CallConfig) -> CallConfig:
    """Give `config` with an empty stop list absent and its fractions as floats."""
    return replace(
        config,
        stop=config.stop or None,
        temperature=_fraction(config.temperature),
        top_p=_fraction(config.top_p),
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
    """Fold one event into the header in force (None: no request was made yet).

    Raises SessionCorruptionError, with the `seq`, for a delta before any snapshot and for one that does not fit.
    """
    data = event.data
    if isinstance(data, RequestHeader):
        return data.header
    if not isinstance(data, RequestHeaderDelta):
        return state
    if state is None:
        raise SessionCorruptionError(f"event {event.seq} changes a header, but none was recorded before", seq=event.seq)
    try:
        return apply_delta(state, data)
    except SessionCorruptionError as error:  # it does not know the place, which is said here
        raise SessionCorruptionError(
            f"event {event.seq} does not fit the header that it changes: {error.message}", seq=event.seq
        ) from None


def fold_header(events: Iterable[Event], state: EpochHeader | None = None) -> EpochHeader | None:
    """Fold `events`, going on from `state`. Raises what `header_step` raises."""
    for event in events:
        state = header_step(state, event)
    return state


def header_draft(recorded: EpochHeader | None, wanted: EpochHeader, *, anchored: bool) -> Draft | None:
    """Give the event that makes `wanted` (canonical) the header in force, or None when it is already.

    `anchored` tells whether this instance has written a header before: its first request records a snapshot in any case,
    which marks the process boundary. The reason looks at the log alone: `initial` without a header in it, else `resume`.
    Later changes are deltas, each tried on `recorded` first; where no delta says it, or one would be no shorter than the
    whole header, a snapshot with the reason `fallback` stands in.
    """
    if recorded is None:
        return Draft(RequestHeader(wanted, "initial"))
    if not anchored:
        return Draft(RequestHeader(wanted, "resume"))
    if recorded == wanted:
        return None
    snapshot = RequestHeader(wanted, "fallback")
    delta = diff_header(recorded, wanted)
    if delta is None or not _leads_to(recorded, delta, wanted) or not _is_shorter(delta, snapshot):
        return Draft(snapshot)
    return Draft(delta)


def _leads_to(recorded: EpochHeader, delta: RequestHeaderDelta, wanted: EpochHeader) -> bool:
    try:
        return apply_delta(recorded, delta) == wanted
    except SessionCorruptionError:  # a fault of ours, and the snapshot that is written instead is right all the same
        return False


def _is_shorter(delta: RequestHeaderDelta, snapshot: RequestHeader) -> bool:
    try:
        return len(encode_compact(delta)) < len(encode_compact(snapshot))
    except UnicodeEncodeError:  # text that no line can hold: `seal` refuses the snapshot, and says why
        return False


def _fraction(number: float | None) -> float | None:
    return None if number is None else float(number) + 0.0  # -0.0 equals 0.0 but is written otherwise
