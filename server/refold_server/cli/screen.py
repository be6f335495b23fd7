"""Owns writing to a stream that a person may be looking at: lines, and colour only where one looks. Blocks while it writes."""

from __future__ import annotations

import os
from typing import Final, TextIO

from refold_server.cli.streams import OutputLostError

_DIM, _BOLD, _RED, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[0m"


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
        self._stream = stream
        self._vital = vital

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.put(text + "\n")

    def put(self, text: str, *, now: bool = False) -> None:
        """Print text as it is; `now` does not wait for the end of a line."""
        try:
            self._stream.write(text)
            if now:
                self._stream.flush()
        except (OSError, ValueError) as error:  # ValueError: closed
            self._fail(error)

    def put_bytes(self, data: bytes) -> None:
        """Print bytes behind what was printed before."""
        try:
            self._stream.flush()
            self._stream.buffer.write(data)
        except (OSError, ValueError) as error:  # ValueError: closed
            self._fail(error)

    def flush(self) -> None:
        """Hand everything over to the operating system."""
        self.put("", now=True)

    def _fail(self, error: OSError | ValueError) -> None:
        if self._vital:
            raise OutputLostError(error) from error
