"""Owns the standard streams of a command: made fit for any text at its start, and written without ever blocking the loop.

Whoever reads the output may leave, or stop reading without leaving; the disk behind it may be full; a stream may be closed
or speak an encoding without arrows. None of that may end in a traceback, stop a signal from being heard, or cost the log.
Knows nothing of sessions. Never writes to a stream whose output is lost.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
from typing import Final, TextIO

import anyio

PIECE_BYTES: Final = 4096
"""What is written at once: a pipe that can be written to takes this much without blocking (PIPE_BUF)."""


class OutputLostError(Exception):
    """Standard output takes nothing more. `reader_left`: whoever read it is gone, which is their right and no fault."""

    def __init__(self, error: OSError | ValueError) -> None:
        super().__init__(f"standard output cannot be written: {getattr(error, 'strerror', None) or error}")
        self.reader_left = isinstance(error, BrokenPipeError)


def prepare_streams() -> None:
    """Open closed standard streams on /dev/null, lest a database gets their descriptor; take streams that another program
    left non-blocking back to blocking."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - takes the lowest free descriptor; stays open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            os.set_blocking(stream.fileno(), True)


def forsake(stream: TextIO) -> None:
    """Point a stream's descriptor at /dev/null, so that what its buffer still holds cannot fail a second time."""
    try:
        file = stream.fileno()
    except (OSError, ValueError):  # closed, or no real stream: there is nothing to point anywhere
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, file)
    os.close(nothing)


class Outlet:
    """A stream that is written to from an event loop; `vital` tells whether its loss is anybody's business.

    A full pipe makes the writing task wait, not the loop, so that a signal or a provider is never kept waiting by a reader.
    """

    def __init__(self, stream: TextIO, *, vital: bool) -> None:
        stream.flush()
        self.terminal: Final = stream.isatty()
        self.encoding: Final = stream.encoding or "utf-8"
        self._file = stream.fileno()
        self._vital = vital
        self._lost = False
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises OutputLostError, on a vital stream."""
        rest = memoryview(data)
        while rest and not self._lost:
            await self._writable()
            try:
                rest = rest[os.write(self._file, rest[:PIECE_BYTES]) :]
            except BlockingIOError:  # non-blocking, and somebody else was quicker
                continue
            except OSError as error:
                self._lost = True
                if self._vital:
                    raise OutputLostError(error) from error

    async def _writable(self) -> None:
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
