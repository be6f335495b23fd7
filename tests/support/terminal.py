"""Terminal for tests: a command runs on it as a person's would, what it shows is read, and what is typed is typed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import termios
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tests.support.commands import start
from tests.support.daemons import WAIT_S, Place

COLOURS = re.compile(rb"\x1b\[\d+m")


class Terminal:
    """A command that runs on a terminal of its own, which it is controlled by. `shown` is all that was read so far; `typed`
    is what was typed before the command began."""

    def __init__(self, place: Place, *arguments: str, typed: str = "", **popen: Any) -> None:
        self._controller, end = pty.openpty()
        os.write(self._controller, typed.encode())
        streams: dict[str, Any] = {"stdin": end, "stdout": end, "stderr": end} | popen
        self.process = start(
            place,
            *arguments,
            env={"TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            **streams,
        )
        os.close(end)
        self._data = b""

    @property
    def shown(self) -> str:
        """What stands on the terminal, without colours."""
        return COLOURS.sub(b"", self._data).replace(b"\r\n", b"\n").decode()

    def until(self, text: str) -> str:
        """Read until `text` stands at the end of what is shown; give all of it."""
        while not self.shown.endswith(text):
            assert self._read(), f"never shown: {text!r}; shown: {self.shown!r}"
        return self.shown

    def types(self, text: str) -> None:
        """Type; `\\x03` is Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._controller, text.encode())

    def end(self) -> int:
        """Read all that is still shown, and give the exit code."""
        while self._read():
            pass
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        """End the command, if it runs, and the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self._controller)

    def _read(self) -> bool:
        try:
            data = os.read(self._controller, 65_536)
        except OSError:  # the terminal has no other end any more
            return False
        self._data += data
        return bool(data)


@contextmanager
def on_terminal(place: Place, *arguments: str, typed: str = "", **popen: Any) -> Generator[Terminal]:
    """Run a command on a terminal, on which `typed` was typed before."""
    terminal = Terminal(place, *arguments, typed=typed, **popen)
    try:
        yield terminal
    finally:
        terminal.close()
