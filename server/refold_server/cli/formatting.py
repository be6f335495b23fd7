"""Formatting for people: text that cannot steer a terminal, calls, ends of turns, transcript entries, header changes.

Pure: gives text, prints nothing. The caller says whether colours are wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile, pairwise
from typing import Final

import msgspec

from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    RequestHeader,
    RequestHeaderDelta,
    TurnEndReason,
)
from refold_protocol.session.header import diff_lines, lines_of
from refold_protocol.session.messages import CallConfig, EpochHeader, ReasoningBlock, ToolCallBlock, ToolSchema, text_of
from refold_protocol.session.transcript import TranscriptEntry
from refold_server.cli.terminal import Style

RESULT_LINES: Final = 6
"""Lines of a tool's answer that a transcript shows."""

CALL_CHARACTERS: Final = 160
"""How much of a call's arguments one line shows."""

LINE_CHARACTERS: Final = 48
"""How much of a line of the system text, or of a setting, is shown."""

_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1: terminals act on them
    "\u202a-\u202e\u2066-\u2069"  # bidi controls: text reads in another order than it stands
    "\u2028\u2029\ud800-\udfff]"  # line separators of Unicode's own; halves of pairs, from file names that are not UTF-8
)

_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\ufff0-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Code points that show nothing, or a blank that is none: zero-width ones, joiners, soft hyphens, fillers, tags, selectors of
variants (but U+FE0F, which emoji have)."""


def printable(text: str) -> str:
    """Give `text` without characters that steer a terminal: they show as `\\x1b` or `\\u202e`. Tabs and line breaks stay
    (CR LF as LF), and so does everything else that people write."""
    return _STEERING.sub(_escaped, text.replace("\r\n", "\n"))


def unmasked(text: str) -> str:
    """Give `text` printable, and with what shows nothing made visible as well: for what a person decides about."""
    return _INVISIBLE.sub(_escaped, printable(text))


def one_line(text: str, characters: int) -> str:
    """Give `text` on one line, printable, cut to `characters` code points; a long text costs no more than a short one."""
    line = " ".join(printable(text[: characters * 4]).split())
    return line if len(line) <= characters and len(text) <= characters * 4 else line[: characters - 1] + "…"


def whole_line(text: str) -> str:
    """Give `text` whole on one line: a line break in a name of somebody else's must not begin a line of its own."""
    return " ".join(printable(text).split())


def call_line(name: str, arguments: str) -> str:
    """Give a call as one line."""
    return f"{one_line(name, CALL_CHARACTERS)} {one_line(arguments, CALL_CHARACTERS)}"


def end_sentence(reason: TurnEndReason) -> str:
    """Say how a turn ended, on one line that begins with a verb's form: "turn 1 …"."""
    if reason.error is not None:
        place = "" if reason.error.step is None else f" in step {reason.error.step}"
        return whole_line(f"failed{place}: {reason.error.kind}: {reason.error.message}")
    if reason.cause is not None:
        why = f": {reason.cause.reason}" if reason.cause.reason else ""
        return whole_line(f"{_CAUSES.get(reason.cause.kind, f'was stopped by {reason.cause.kind}')}{why}")
    if reason.reason is not None:
        return whole_line(f"{reason.kind}: {reason.reason}")
    return _ENDS.get(reason.kind, whole_line(reason.kind))


def subject_lines(subject: ApprovalSubject, style: Style) -> Iterator[str]:
    """Give what a person is asked about, line by line and nothing left out; a diff in its colours. A CR before LF shows where
    other lines of the diff have none: it may be what changes."""
    lines = subject.text.removesuffix("\n").split("\n")
    told = subject.kind == "diff" and _ends_differ(lines)
    for whole in lines:
        line = unmasked(whole if told else whole.removesuffix("\r"))
        if subject.kind == "diff" and line.startswith("+"):
            yield style.green(line)
        elif subject.kind == "diff" and line.startswith("-"):
            yield style.red(line)
        else:
            yield line


def _ends_differ(diff: list[str]) -> bool:
    """Tell whether some lines of a diff's texts end with CR LF and others with LF; one without an end is neither."""
    hunks = dropwhile(lambda line: not line.startswith("@@"), (*diff, ""))
    ends = {
        line.endswith("\r")
        for line, following in pairwise(hunks)
        if line.startswith((" ", "+", "-")) and not following.startswith("\\")
    }
    return len(ends) > 1


def question_of(asked: ApprovalAsked) -> str:
    """Give the question in a line: of a change which file, whether it is new, and how many lines come and go."""
    found = _changed(asked.subject.text) if asked.subject.kind == "diff" else None
    if found is None:
        return f"May {unmasked(one_line(asked.tool, CALL_CHARACTERS))} run?"
    path, added, removed, new = found
    verb, count = ("Write", f"+{added} lines, new") if new else ("Change", f"+{added} −{removed} lines")
    return f"{verb} {unmasked(one_line(path, CALL_CHARACTERS))} ({count})?"


def _changed(diff: str) -> tuple[str, int, int, bool] | None:
    """Give path, lines added, lines removed, and whether the file is new; None for what names no file."""
    head, _, body = diff.partition("\n@@")
    names = [line[4:].rstrip("\r") for line in head.split("\n") if line.startswith("+++ ")]
    if not names:
        return None
    lines = f"@@{body}".split("\n")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return names[-1].removeprefix("b/"), added, removed, "--- /dev/null" in head


def asked_sentence(asked: ApprovalAsked) -> str:
    """Say what was asked, on one line."""
    tool, subject = (unmasked(one_line(text, CALL_CHARACTERS)) for text in (asked.tool, asked.subject.text))
    return f"may {tool} run? {subject}"


def decided_sentence(decided: ApprovalDecided) -> str:
    """Say how a question was settled and by whom, on one line."""
    reach = " for the session" if decided.scope == "session" else ""
    by = decided.by.kind if decided.by.name is None else f"{decided.by.kind}: {decided.by.name}"
    return whole_line(f"{decided.outcome}{reach} ({by})")


def entry_lines(entry: TranscriptEntry, style: Style) -> Iterator[str]:
    """Give one entry of a transcript as lines of text, which may hold line breaks."""
    text = printable(text_of(entry.content))
    match entry.kind:
        case "user":
            yield style.bold(f"> {text}")
        case "context" | "steering":
            yield style.dim(f"[{entry.kind}] {text}")
        case "assistant":
            yield from _reply_lines(entry, text, style)
        case "tool":
            yield from _result_lines(entry, text, style)
        case "blocked":
            yield f"{style.red('blocked')}: {whole_line(entry.note or '')} > {text}"
        case "pending":
            yield f"{style.red('pending')}: {entry.note} > {text}"
        case "compaction":
            yield style.dim("--- the older part of what stands above was summarised for the model ---")
        case "end":
            sentence = "ended" if entry.reason is None else end_sentence(entry.reason)
            yield style.red(f"[turn {entry.turn} {sentence}]")
        case _:
            yield style.dim(f"[{whole_line(entry.kind)}] {text}")


def _reply_lines(entry: TranscriptEntry, text: str, style: Style) -> Iterator[str]:
    for block in entry.content:
        if isinstance(block, ReasoningBlock):
            yield style.dim(printable(block.text))
    if entry.interrupted:
        yield (text + style.red(" [interrupted]")).lstrip()
    elif text:
        yield text
    for block in entry.content:
        if isinstance(block, ToolCallBlock):
            yield style.dim(f"→ {call_line(block.name, block.arguments)}")


def _result_lines(entry: TranscriptEntry, text: str, style: Style) -> Iterator[str]:
    lines = text.split("\n")
    shown = lines[:RESULT_LINES]
    if len(lines) > RESULT_LINES:
        shown.append(f"… {len(lines) - RESULT_LINES} more lines")
    mark = style.red("✗") if entry.is_error else "│"
    for line in shown:
        yield f"{mark} {style.dim(line)}"


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
            yield f"{field.encode_name} {_setting_text(old)} → {_setting_text(new)}"


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


def _setting_text(setting: object) -> str:
    return "(none)" if setting is None else one_line(msgspec.json.encode(setting).decode(), LINE_CHARACTERS)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


_CAUSES: Final = {
    "user": "was stopped by the user",
    "disposed": "was stopped together with what ran it",
}

_ENDS: Final = {
    "max-steps": "was stopped at the limit of steps (limits.steps in the configuration, or the session's own)",
    "max-tokens": "was cut off at the limit of output tokens (max_output in the configuration, or the model's own)",
    "interrupted": "was interrupted: its process ended first",
    "forked": "was cut by a fork",
}
