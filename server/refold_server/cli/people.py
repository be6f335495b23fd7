"""Owns how a log is shown to a person on a terminal: the transcript, a status, an error. Colour only where one looks."""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

from refold_protocol.errors import RefoldError
from refold_protocol.session.events import TurnEndReason
from refold_protocol.session.messages import ReasoningBlock, ToolCallBlock, text_of
from refold_protocol.session.transcript import TranscriptEntry

RESULT_LINES: Final = 6
"""Lines of a tool's answer that a transcript shows."""

_DIM, _BOLD, _RED, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[0m"


class Screen:
    """A stream that a person may be looking at. Control characters in shown text never reach a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.stream.write(text + "\n")

    def dim(self, text: str) -> str:
        """Give `text` as something of less weight."""
        return f"{_DIM}{text}{_PLAIN}" if self.colour else text

    def bold(self, text: str) -> str:
        """Give `text` as something of more weight."""
        return f"{_BOLD}{text}{_PLAIN}" if self.colour else text

    def red(self, text: str) -> str:
        """Give `text` as something that is wrong."""
        return f"{_RED}{text}{_PLAIN}" if self.colour else text


def complain(error: RefoldError) -> None:
    """Tell an error on standard error: its kind, its sentence."""
    screen = Screen(sys.stderr)
    screen.line(f"{screen.red('refold: ' + error.error_kind)}: {error.message}")


def printable(text: str) -> str:
    """Give `text` without control characters that could steer a terminal; tabs and line breaks stay."""
    return "".join(mark if mark in "\n\t" or mark.isprintable() else f"\\x{ord(mark):02x}" for mark in text)


def end_sentence(reason: TurnEndReason) -> str:
    """Say how a turn ended."""
    if reason.error is not None:
        place = "" if reason.error.step is None else f" in step {reason.error.step}"
        return f"failed{place}: {reason.error.kind}: {reason.error.message}"
    if reason.cause is not None:
        why = f": {reason.cause.reason}" if reason.cause.reason else ""
        return f"stopped by {reason.cause.kind}{why}"
    if reason.reason is not None:
        return f"{reason.kind}: {reason.reason}"
    return reason.kind


def show_entry(screen: Screen, entry: TranscriptEntry) -> None:
    """Print one entry of a transcript."""
    text = printable(text_of(entry.content))
    match entry.kind:
        case "user":
            screen.line(screen.bold(f"> {text}"))
        case "context" | "steering":
            screen.line(screen.dim(f"[{entry.kind}] {text}"))
        case "assistant":
            _show_reply(screen, entry, text)
        case "tool":
            _show_result(screen, entry, text)
        case "blocked":
            screen.line(f"{screen.red('blocked')}: {entry.note or ''} > {text}")
        case "compaction":
            screen.line(screen.dim("--- what stands above was summarised for the model ---"))
        case "end":
            sentence = entry.kind if entry.reason is None else end_sentence(entry.reason)
            screen.line(screen.red(f"[turn {entry.turn} {printable(sentence)}]"))
        case _:
            screen.line(screen.dim(f"[{entry.kind}] {text}"))


def call_line(name: str, arguments: str) -> str:
    """Give a call as one line."""
    shown = " ".join(printable(arguments).split())
    return f"{printable(name)} {shown if len(shown) <= 160 else shown[:159] + '…'}"


def _show_reply(screen: Screen, entry: TranscriptEntry, text: str) -> None:
    for block in entry.content:
        if isinstance(block, ReasoningBlock):
            screen.line(screen.dim(printable(block.text)))
    if text:
        screen.line(text + (screen.red(" [interrupted]") if entry.interrupted else ""))
    for block in entry.content:
        if isinstance(block, ToolCallBlock):
            screen.line(screen.dim(f"→ {call_line(block.name, block.arguments)}"))


def _show_result(screen: Screen, entry: TranscriptEntry, text: str) -> None:
    lines = text.split("\n")
    shown = lines[:RESULT_LINES]
    if len(lines) > RESULT_LINES:
        shown.append(f"… {len(lines) - RESULT_LINES} more lines")
    for line in shown:
        mark = screen.red("✗") if entry.is_error else "│"
        screen.line(screen.dim(f"{mark} {line}"))
