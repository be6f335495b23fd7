"""Owns how a header event is put for a person: on one line, what it changed in the header before it.

Pure: gives text, prints nothing. What is long or could steer a terminal is made harmless by `people.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from refold_protocol.session.events import RequestHeader, RequestHeaderDelta
from refold_protocol.session.header_delta import diff_lines, lines_of
from refold_protocol.session.header_types import CallConfig, EpochHeader, ToolSchema
from refold_server.cli.people import one_line

LINE_CHARACTERS: Final = 48
"""How much of a line of the system text, or of a setting, is shown."""


def header_sentence(data: RequestHeader | RequestHeaderDelta, before: EpochHeader | None, after: EpochHeader) -> str:
    """Say on one line how a header event changed `before` (None: there was none) into `after`."""
    if before is None:
        tools, messages = len(after.tools or ()), len(after.message_prefix or ())
        counts = _count(len(lines_of(after.system)), "line"), _count(tools, "tool"), _count(messages, "message")
        model = one_line(f"{after.config.provider}/{after.config.model}", LINE_CHARACTERS)
        text = f"{model}, system of {counts[0]}, {counts[1]}, prefix of {counts[2]}"
    else:
        text = "; ".join(header_changes(before, after)) or "unchanged"
    return f"{one_line(data.reason, LINE_CHARACTERS)}: {text}" if isinstance(data, RequestHeader) else text


def header_changes(before: EpochHeader, after: EpochHeader) -> Iterator[str]:
    """Give a phrase for each part that changed: config, tools, system, prefix; none for equal headers."""
    if before.config != after.config:
        yield f"config {', '.join(_settings(before.config, after.config))}"
    if before.tools != after.tools:
        yield f"tools {' '.join(_tools(before.tools or (), after.tools or ())) or 'in another order'}"
    if before.system != after.system:
        yield _system(before.system, after.system)
    if before.message_prefix != after.message_prefix:
        old, new = len(before.message_prefix or ()), len(after.message_prefix or ())
        yield f"prefix of {_count(new, 'message')}, before {old}"


def _settings(before: CallConfig, after: CallConfig) -> Iterator[str]:
    for field in msgspec.structs.fields(CallConfig):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new:
            yield f"{field.encode_name} {_shown(old)} → {_shown(new)}"


def _tools(before: tuple[ToolSchema, ...], after: tuple[ToolSchema, ...]) -> Iterator[str]:
    old, new = {tool.name: tool for tool in before}, {tool.name: tool for tool in after}
    for name in old:
        if name not in new:
            yield f"−{one_line(name, LINE_CHARACTERS)}"
    for name, tool in new.items():
        if name not in old:
            yield f"+{one_line(name, LINE_CHARACTERS)}"
        elif tool != old[name]:
            yield f"~{one_line(name, LINE_CHARACTERS)}"


def _system(before: str | None, after: str | None) -> str:
    old = lines_of(before)
    change = diff_lines(old, lines_of(after))
    removed = old[change.keep_start : len(old) - change.keep_end]
    parts = [*_side("−", removed), *_side("+", change.insert)]
    return f"system at line {change.keep_start + 1}: {' '.join(parts)}"


def _side(sign: str, lines: tuple[str, ...]) -> Iterator[str]:
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    for first in lines[:1]:
        yield f'{sign}"{one_line(first, LINE_CHARACTERS)}"{more}'


def _shown(setting: object) -> str:
    return "(none)" if setting is None else one_line(msgspec.json.encode(setting).decode(), LINE_CHARACTERS)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
