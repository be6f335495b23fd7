"""Delta codec of the epoch header: what changed between two headers, and the header that follows from a change.

`system` changes by lines, split at `\n` only (a text that is absent has no lines): some lines at the start and at the end
are kept, what lay between them is replaced. `tools` change by name: removed, changed in their place, added at the end.
`config` and `messagePrefix` are replaced whole. Pure; knows neither events nor when a change is recorded.

Rules of the epoch header: its canonical form, its fold, and the draft that records a change of it.

Canonical: an empty system text, tool list, prefix or stop list is absent, numbers that stand for fractions are floats.
Headers are compared by value, on every step; nobody announces changes, because an announcement can be forgotten. How a
change is put into a delta is `header_delta.py`'s business; when a delta is written, and when a snapshot, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.session.events import Draft, Event, RequestHeader, RequestHeaderDelta
from refold_protocol.session.messages import CallConfig, EpochHeader, SystemDelta, ToolSchema, ToolsDelta, encode_compact

Lines = tuple[str, ...]
Tools = tuple[ToolSchema, ...]


def diff_header(old: EpochHeader, new: EpochHeader) -> RequestHeaderDelta | None:
    """Give the delta that makes `new` (canonical) of `old`; of equal headers it has no parts.

    None: no delta says it, because tools stand in another order, a new one stands before an old one, or two have one name.
    """
    tools = None
    if old.tools != new.tools:
        tools = _diff_tools(old.tools or (), new.tools or ())
        if tools is None:
            return None
    return RequestHeaderDelta(
        system=None if old.system == new.system else diff_lines(lines_of(old.system), lines_of(new.system)),
        tools=tools,
        config=None if old.config == new.config else new.config,
        message_prefix=None if old.message_prefix == new.message_prefix else (new.message_prefix or ()),
    )


def apply_delta(header: EpochHeader, delta: RequestHeaderDelta) -> EpochHeader:
    """Give the header that follows from `header` by `delta`; canonical if `header` and the delta's config are.

    Raises SessionCorruptionError (without a seq) when the delta does not fit: it keeps more lines than there are, names a
    tool twice, removes or changes one that is not there, or adds one that is.
    """
    return EpochHeader(
        config=header.config if delta.config is None else delta.config,
        system=header.system if delta.system is None else _apply_lines(lines_of(header.system), delta.system),
        tools=header.tools if delta.tools is None else _apply_tools(header.tools or (), delta.tools),
        message_prefix=header.message_prefix if delta.message_prefix is None else (delta.message_prefix or None),
    )


def lines_of(system: str | None) -> Lines:
    """Give the lines of a system text, split at `\\n` only; none when it is absent or empty."""
    return tuple(system.split("\n")) if system else ()


def diff_lines(old: Lines, new: Lines) -> SystemDelta:
    """Give the change that makes the lines `new` of `old`; it keeps all that it can at the start, then at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return SystemDelta(start, new[start : len(new) - end], end)


def _apply_lines(lines: Lines, delta: SystemDelta) -> str | None:
    start, end = delta.keep_start, delta.keep_end
    if start < 0 or end < 0 or start + end > len(lines):
        raise SessionCorruptionError(f"it keeps {start} and {end} lines of a system text that has {len(lines)}")
    return "\n".join((*lines[:start], *delta.insert, *lines[len(lines) - end :])) or None


def _diff_tools(old: Tools, new: Tools) -> ToolsDelta | None:
    before, after = {tool.name: tool for tool in old}, {tool.name: tool for tool in new}
    if len(before) != len(old) or len(after) != len(new):
        return None
    stay = [tool.name for tool in old if tool.name in after]
    kept, added = new[: len(stay)], new[len(stay) :]
    if [tool.name for tool in kept] != stay:
        return None
    return ToolsDelta(
        removed=tuple(tool.name for tool in old if tool.name not in after),
        changed=tuple(tool for tool in kept if tool != before[tool.name]),
        added=added,
    )


def _apply_tools(tools: Tools, delta: ToolsDelta) -> Tools | None:
    there = {tool.name for tool in tools}
    changed = {tool.name: tool for tool in delta.changed}
    named = [*delta.removed, *(tool.name for tool in (*delta.changed, *delta.added))]
    if len(there) != len(tools) or len(set(named)) != len(named):
        raise SessionCorruptionError("it changes tools of which two have one name")
    for name in (*delta.removed, *changed):
        if name not in there:
            raise SessionCorruptionError(f"it removes or changes the tool {name!r}, which is not there")
    for tool in delta.added:
        if tool.name in there:
            raise SessionCorruptionError(f"it adds the tool {tool.name!r}, which is there")
    kept = (changed.get(tool.name, tool) for tool in tools if tool.name not in delta.removed)
    return (*kept, *delta.added) or None


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
