"""Standard streams of a command: made usable at its start, then written either blocking or from an event loop.

The reader of the output may leave, or stop reading without leaving; the disk may be full; a stream may be closed, or have
an encoding without arrows. None of that may show a traceback, delay a signal, or cost the log. Knows nothing of sessions.
Imports no event loop before one is needed.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TextIO

PIECE_BYTES: Final = 4096
"""What is written at once: a pipe that can be written to takes this much without blocking (PIPE_BUF)."""

PROGRESS_EVENTS: Final = 20_000
"""Logs longer than this show the progress of a command that reads all of them, on a terminal."""

CLEAR_LINE: Final = "\r\x1b[K"
"""What empties the line that shows progress."""

_DIM, _BOLD, _RED, _GREEN, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"


class OutputLostError(Exception):
    """Standard output takes nothing more. `reader_left`: its reader is gone, which is no fault."""

    def __init__(self, error: OSError | ValueError) -> None:
        super().__init__(f"standard output cannot be written: {getattr(error, 'strerror', None) or error}")
        self.reader_left = isinstance(error, BrokenPipeError)


def prepare_streams() -> None:
    """Open closed standard streams on /dev/null, lest a database gets their descriptor; make streams block again that another
    program left non-blocking."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - takes the lowest free descriptor; stays open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            os.set_blocking(stream.fileno(), True)


def discard_output(stream: TextIO) -> None:
    """Point a stream's descriptor at /dev/null, so that what its buffer still holds cannot fail a second time."""
    try:
        file = stream.fileno()
    except (OSError, ValueError):  # closed, or no real stream: there is nothing to redirect
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, file)
    os.close(nothing)


class Style:
    """How text is marked for one stream: with colours, or not at all."""

    def __init__(self, *, colour: bool) -> None:
        self.colour: Final = colour

    def dim(self, text: str) -> str:
        """Give `text` as something less important."""
        return self._marked(_DIM, text)

    def bold(self, text: str) -> str:
        """Give `text` as something more important."""
        return self._marked(_BOLD, text)

    def red(self, text: str) -> str:
        """Give `text` as something that is wrong."""
        return self._marked(_RED, text)

    def green(self, text: str) -> str:
        """Give `text` as something that is new."""
        return self._marked(_GREEN, text)

    def _marked(self, mark: str, text: str) -> str:
        return f"{mark}{text}{_PLAIN}" if self.colour and text else text


def style_for(*, terminal: bool) -> Style:
    """Give the style of a stream: colours on a terminal that has them, unless NO_COLOR is set (no-color.org)."""
    return Style(colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


class OutputStream:
    """A stream and its style; it blocks while it writes. Raises OutputLostError, unless it is `best_effort`: then what cannot
    be written is dropped."""

    def __init__(self, stream: TextIO, *, best_effort: bool = False) -> None:
        self.terminal: Final = stream.isatty()
        self.style: Final = style_for(terminal=self.terminal)
        self._sink = stream.buffer
        self._encoding = stream.encoding or "utf-8"
        self._best_effort = best_effort
        self._try(stream.flush)

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.put(text + "\n")

    def put(self, text: str, *, now: bool = False) -> None:
        """Print text as it is; without waiting for more on a terminal, on standard error, and with `now`."""
        self.put_bytes(text.encode(self._encoding, "backslashreplace"))
        if now or self.terminal or self._best_effort:
            self.flush()

    def put_bytes(self, data: bytes) -> None:
        """Print bytes after what was printed before."""
        rest = memoryview(data)

        def write() -> None:
            nonlocal rest
            while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may take less than it is given
                rest = rest[self._sink.write(rest) :]

        self._try(write)

    def put_json(self, *values: object) -> None:
        """Print each value as JSON on a line of its own."""
        import msgspec

        for value in values:
            self.put_bytes(msgspec.json.encode(value) + b"\n")

    def flush(self) -> None:
        """Hand everything over to the operating system."""
        self._try(self._sink.flush)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except (OSError, ValueError) as error:  # ValueError: closed
            if not self._best_effort:
                raise OutputLostError(error) from error


def standard_output() -> OutputStream:
    """Give standard output, whose loss ends a command."""
    return OutputStream(sys.stdout)


def standard_error() -> OutputStream:
    """Give standard error, which a command can do without."""
    return OutputStream(sys.stderr, best_effort=True)


@contextmanager
def show_progress(err: OutputStream, events: int) -> Generator[Callable[[int, int], None] | None]:
    """Give a function that shows how many of a log's `events` were read, None where there is no terminal or the log is short.
    Leaves the line empty at the end."""
    if events <= PROGRESS_EVENTS or not err.terminal:
        yield None
        return
    try:
        yield lambda done, of: err.put(f"\r{done * 100 // max(of, 1):>3} % of {of} events", now=True)
    finally:
        err.put(CLEAR_LINE, now=True)


class AsyncOutputStream:
    """A stream that is written to from an event loop. Raises OutputLostError, unless it is `best_effort`.

    A full pipe makes the writing task wait, not the loop, so that a reader never delays a signal or a provider.
    """

    def __init__(self, stream: TextIO, *, best_effort: bool = False) -> None:
        stream.flush()
        self.terminal: Final = stream.isatty()
        self.encoding: Final = stream.encoding or "utf-8"
        self._file = stream.fileno()
        self._best_effort = best_effort
        self._lost = False
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write all of `data`."""
        rest = memoryview(data)
        while rest and not self._lost:
            await self._writable()
            try:
                rest = rest[os.write(self._file, rest[:PIECE_BYTES]) :]
            except BlockingIOError:  # non-blocking, and another writer was quicker
                continue
            except OSError as error:
                self._lost = True
                if not self._best_effort:
                    raise OutputLostError(error) from error

    async def _writable(self) -> None:
        import asyncio

        import anyio

        if self._poll.poll(0):  # always so for files, which an event loop cannot watch
            await anyio.lowlevel.checkpoint()
            return
        loop = asyncio.get_running_loop()
        ready = anyio.Event()
        loop.add_writer(self._file, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._file)
