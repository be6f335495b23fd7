"""Owns how arguments of the command line are read: text to a value, or ArgumentTypeError with a sentence."""

from __future__ import annotations

import argparse
import re


def turn_and_step(text: str) -> tuple[int, int]:
    """Read `TURN.STEP`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([1-9]\d{0,8})\.([1-9]\d{0,8})", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not TURN.STEP, for example 1.2 (both count from 1)")
    return int(found[1]), int(found[2])


def request_place(text: str) -> tuple[int, int] | int:
    """Read `TURN.STEP`, or `compact:SEQ` as the seq of a compaction's start. Raises ArgumentTypeError."""
    found = re.fullmatch(r"compact:(\d{1,18})", text, re.ASCII)
    if found is None and text.startswith("compact"):
        raise argparse.ArgumentTypeError(f"{text!r} is not compact:SEQ, the number of a compact/start event behind the colon")
    return turn_and_step(text) if found is None else int(found[1])


def unicode_text(text: str) -> str:
    """Take text that the log can hold. Raises ArgumentTypeError for bytes that are not UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8")
    return text


def count(text: str) -> int:
    """Read a number that is at least 1. Raises ArgumentTypeError."""
    if re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def seq(text: str) -> int:
    """Read the place of an event. Raises ArgumentTypeError."""
    if re.fullmatch(r"\d{1,18}", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an event, from 0 on")
    return int(text)


def title(text: str) -> str:
    """Take a title, of 1 to 200 characters. Raises ArgumentTypeError."""
    if not 1 <= len(unicode_text(text)) <= 200:
        raise argparse.ArgumentTypeError("a title has 1 to 200 characters")
    return text
