"""The matching lines of a file for `search_text`: found literally, here, or by a regular expression, in a process of its own.

Both give the same rows for the same lines. Lines end at `\\n` only, a `\\r` before it is not part of the line, and bytes
that are not UTF-8 become U+FFFD. A trailing line break opens no further line.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Protocol, cast

from refold_server.tools import regex_child
from refold_server.tools.tool_failure import ToolFailure, invalid_arguments
from refold_server.tools.tool_output import text_of
from refold_server.tools.workspace_path import WorkspacePath, shown

SECONDS: Final = 10
"""How long a regular expression may work on one file, in seconds of wall time."""

_LOOK_S: Final = 0.05
"""Seconds between two looks whether the call was cancelled, while the other process works."""

Row = tuple[int, int]
"""A line's number, from 1, and the column of its first match, in characters from 0."""


class Matcher(Protocol):
    """Finds matching lines in one file after the other. Used as a context manager."""

    def rows(self, place: WorkspacePath, data: bytes, limit: int) -> list[Row]:
        """Give the first `limit` rows of `data`, the content of `place`, in order. Raises ToolFailure."""
        ...

    def __enter__(self) -> Matcher: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class LiteralMatcher:
    """Finds a text as it is, upper and lower case told apart."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bytes = text.encode("utf-8", "replace")

    def rows(self, place: WorkspacePath, data: bytes, limit: int) -> list[Row]:  # noqa: ARG002 - the protocol names the file
        """Give the rows; bytes are searched, and only lines that hold the text are decoded."""
        rows: list[Row] = []
        number, counted, at = 1, 0, data.find(self._bytes)
        while at >= 0 and len(rows) < limit:
            number += data.count(b"\n", counted, at)
            start = data.rfind(b"\n", 0, at) + 1
            rows.append((number, len(text_of(data[start:at]))))
            counted = at
            end = data.find(b"\n", at)
            at = -1 if end < 0 else data.find(self._bytes, end)
        return rows

    def __enter__(self) -> LiteralMatcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


class RegexMatcher:
    """Holds one process of `regex_child.py`. `check` is called while waiting for it and may raise to stop."""

    def __init__(self, pattern: str, check: Callable[[], None], *, seconds: int | None = None) -> None:
        self._pattern = pattern
        self._check = check
        self._seconds = seconds or SECONDS
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(regex_child.__file__)), str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt at the terminal is the daemon's to handle
        )

    def rows(self, place: WorkspacePath, data: bytes, limit: int) -> list[Row]:
        """Give the rows. Raises ToolFailure TIMED_OUT when the pattern takes too long on this file."""
        answer = self._ask(regex_child.LENGTH.pack(limit) + data, place.shown)
        return [(row[0], row[1]) for row in json.loads(answer)]

    def __enter__(self) -> RegexMatcher:
        try:
            fault = self._ask(self._pattern.encode("utf-8", "replace"), "the pattern itself")
            if fault:
                raise invalid_arguments(f"pattern is not a regular expression: {text_of(fault)}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _ask(self, payload: bytes, subject: str) -> bytes:
        source = cast("BinaryIO", self._child.stdout)
        try:
            regex_child.write_frame(
                cast("BinaryIO", self._child.stdin), payload
            )  # cannot wait for ever: the child reads a frame before it matches
            while not select.select([source], [], [], _LOOK_S)[0]:
                self._check()
            return next(regex_child.read_frames(source))
        except (BrokenPipeError, StopIteration):  # it ended: by its alarm, or somebody ended it
            raise self._ended(subject) from None

    def _ended(self, subject: str) -> ToolFailure:
        if self._child.wait() != -signal.SIGALRM:
            return ToolFailure("TOOL_FAILED", "SearchEnded", "the process that searches was ended from outside; try again")
        return ToolFailure(
            "TIMED_OUT",
            "PatternTimedOut",
            f"the pattern {shown(self._pattern)!r} took longer than {self._seconds} s on {subject}; "
            "use a simpler one, without nested repetition, or name a smaller path",
        )

    def _end(self) -> None:
        self._child.kill()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what was buffered for a dead child has no reader
                    stream.close()
        self._child.wait()
