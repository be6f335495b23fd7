"""Owns writing to a stream that a person may be looking at: lines, and colour only where one looks. Blocks while it writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TextIO

from refold_server.cli.streams import OutputLostError

_DIM, _BOLD, _RED, _GREEN, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"


class Look:
    """How text is marked for one stream: with colours, or not at all."""

    def __init__(self, *, colour: bool) -> None:
        self.colour: Final = colour

    def dim(self, text: str) -> str:
        """Give `text` as something of less weight."""
        return self._marked(_DIM, text)

    def bold(self, text: str) -> str:
        """Give `text` as something of more weight."""
        return self._marked(_BOLD, text)

    def red(self, text: str) -> str:
        """Give `text` as something that is wrong."""
        return self._marked(_RED, text)

    def green(self, text: str) -> str:
        """Give `text` as something that is new."""
        return self._marked(_GREEN, text)

    def _marked(self, mark: str, text: str) -> str:
        return f"{mark}{text}{_PLAIN}" if self.colour and text else text


def look_of(*, terminal: bool) -> Look:
    """Give the look of a stream: colours on a terminal that has them, unless NO_COLOR is set (no-color.org)."""
    return Look(colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


class Screen:
    """A stream and its look. Raises OutputLostError, unless the stream is not `vital`: then what it cannot take is lost."""

    def __init__(self, stream: TextIO, *, vital: bool = True) -> None:
        self.terminal: Final = stream.isatty()
        self.look: Final = look_of(terminal=self.terminal)
        self._sink = stream.buffer
        self._encoding = stream.encoding or "utf-8"
        self._vital = vital
        self._hand_over(stream.flush)

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.put(text + "\n")

    def put(self, text: str, *, now: bool = False) -> None:
        """Print text as it is; without waiting for more on a terminal, beside the output, and with `now`."""
        self.put_bytes(text.encode(self._encoding, "backslashreplace"))
        if now or self.terminal or not self._vital:
            self.flush()

    def put_bytes(self, data: bytes) -> None:
        """Print bytes behind what was printed before."""
        rest = memoryview(data)
        try:
            while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may take less than it is given
                rest = rest[self._sink.write(rest) :]
        except (OSError, ValueError) as error:  # ValueError: closed
            self._fail(error)

    def flush(self) -> None:
        """Hand everything over to the operating system."""
        self._hand_over(self._sink.flush)

    def _hand_over(self, flush: Callable[[], None]) -> None:
        try:
            flush()
        except (OSError, ValueError) as error:  # ValueError: closed
            self._fail(error)

    def _fail(self, error: OSError | ValueError) -> None:
        if self._vital:
            raise OutputLostError(error) from error
