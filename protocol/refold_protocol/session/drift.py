"""Owns what differs between two headers, part by part and short enough to be told.

Looks at the two headers alone, so it does not matter how the log recorded the change. It explains; the exact codec of
header deltas is another matter and never uses this. Parts have the names of a body's segments.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import fields

from refold_protocol.dialects.segments import common_prefix, excerpt
from refold_protocol.session.header_types import CallConfig, EpochHeader, ToolSchema
from refold_protocol.session.messages import Message, encode_compact


class Drift(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that differs. `part` is `config`, `tools`, `system` or `prefix`; `how` is `added`, `removed`, `changed` or
    `reordered`. `name` is that of a config member or a tool; `at` counts lines of the system text or messages of the
    prefix, from 1. `before` and `after` are excerpts around the difference, on one line."""

    part: str
    how: str
    name: str | None = None
    at: int | None = None
    before: str | None = None
    after: str | None = None

    @property
    def sentence(self) -> str:
        """Say it, for a person."""
        what = self._what()
        if self.before is None and self.after is None:
            return f"{what} {self.how}"
        if self.before is None:
            return f"{what} added: “{self.after}”"
        return f"{what} removed: “{self.before}”" if self.after is None else f"{what}: “{self.before}” → “{self.after}”"

    def _what(self) -> str:
        match self.part:
            case "config":
                return f"config {self.name}"
            case "tools":
                return "tools" if self.name is None else f"tool {self.name}"
            case "system":
                return f"system text, line {self.at}"
            case _:
                return f"prefix message {self.at}"


def drifts(before: EpochHeader, after: EpochHeader) -> tuple[Drift, ...]:
    """Give what differs between two canonical headers, in the order of a body; nothing exactly when they are equal."""
    if before == after:
        return ()
    return (
        *_config_drifts(before.config, after.config),
        *_tool_drifts(before.tools or (), after.tools or ()),
        *_system_drifts(before.system, after.system),
        *_prefix_drifts(before.message_prefix or (), after.message_prefix or ()),
    )


def _config_drifts(before: CallConfig, after: CallConfig) -> Iterator[Drift]:
    for field in fields(CallConfig):
        was, now = getattr(before, field.name), getattr(after, field.name)
        if was != now:
            quoted = _quoted(*(None if value is None else _plain(value) for value in (was, now)))
            yield Drift("config", _how(was, now), field.encode_name, None, *quoted)


def _tool_drifts(before: tuple[ToolSchema, ...], after: tuple[ToolSchema, ...]) -> Iterator[Drift]:
    if before == after:
        return
    was, now = ({tool.name: tool for tool in tools} for tools in (before, after))
    for name in (*was, *(name for name in now if name not in was)):
        one, other = was.get(name), now.get(name)
        if one is None or other is None:
            yield Drift("tools", _how(one, other), name)
        elif one != other:
            yield Drift("tools", "changed", name, None, *_quoted(_tool_text(one), _tool_text(other)))
    shared = [tool.name for tool in before if tool.name in now], [tool.name for tool in after if tool.name in was]
    if shared[0] != shared[1]:
        yield Drift("tools", "reordered")


def _system_drifts(before: str | None, after: str | None) -> Iterator[Drift]:
    if before == after:
        return
    if before is None or after is None:
        yield Drift("system", _how(before, after), None, 1, *_quoted(before, after))
        return
    was, now = before.split("\n"), after.split("\n")
    start = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), min(len(was), len(now)))
    kept = min(len(was), len(now)) - start
    same = next((count for count in range(kept) if was[-1 - count] != now[-1 - count]), kept)
    gone, new = was[start : len(was) - same], now[start : len(now) - same]
    yield Drift("system", _how(gone or None, new or None), None, start + 1, *_quoted(_lines(gone), _lines(new)))


def _prefix_drifts(before: tuple[Message, ...], after: tuple[Message, ...]) -> Iterator[Drift]:
    if before == after:
        return
    pairs = enumerate(zip(before, after, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))
    one, other = (messages[at] if at < len(messages) else None for messages in (before, after))
    yield Drift("prefix", _how(one, other), None, at + 1, *_quoted(_message_text(one), _message_text(other)))


def _how(before: object, after: object) -> str:
    return "added" if before is None else "removed" if after is None else "changed"


def _quoted(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Quote both around the first byte in which they differ; a lone one from its beginning."""
    was, now = (None if text is None else text.encode() for text in (before, after))
    offset = 0 if was is None or now is None else common_prefix(was, now)
    return tuple(None if text is None else excerpt(text, offset) for text in (was, now))  # pyright: ignore[reportReturnType]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else encode_compact(value).decode()


def _lines(lines: list[str]) -> str | None:
    return "\n".join(lines) if lines else None


def _tool_text(tool: ToolSchema) -> str:
    return f"{tool.description}\n{tool.parameters}"


def _message_text(message: Message | None) -> str | None:
    return None if message is None else encode_compact(message).decode()
