"""Running `refold` commands in tests: in this process where that is enough, in one of their own where it is not.

A command in this process is fast and leaves its output to pytest's `capfd`; signals, closed streams, encodings and kills
need a process. Both live in a `Place`, so that nothing of the machine's own configuration is found.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

import pytest
from msgspec import Struct

from refold_server.cli.command_line import run
from tests.support.daemons import WAIT_S, Json, Place

REFOLD = (sys.executable, "-P", "-m", "refold_server")
"""The command line. `-P`: what lies in the workspace is no code."""


class Done(Struct, frozen=True):
    """What a command left: its exit code, the bytes of its output, and what it told beside it."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """The output as text."""
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        """The output's lines; the last one must be complete."""
        assert self.out.endswith(b"\n"), self.out[-100:]
        return self.text[:-1].split("\n")

    @property
    def values(self) -> list[Any]:
        """The output's lines as JSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def session(self) -> str:
        """The session that the last line names, or that the first line names to programs."""
        if self.out.startswith(b"{"):
            return self.values[0]["session"]
        word, name = self.lines[-1].split(" ")
        assert word == "session"
        return name


class Here:
    """Runs commands in this process, in the place's workspace."""

    def __init__(self, place: Place, capfd: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.place = place
        self._capfd = capfd
        for name in ("REFOLD_STORE", "REFOLD_CONFIG", "NO_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in places(place).items():
            patch.setenv(name, value)
        patch.chdir(place.workspace)

    def __call__(self, *arguments: str) -> Done:
        """Run a command to its end."""
        self._capfd.readouterr()
        code = run(arguments)
        out, err = self._capfd.readouterr()
        return Done(code, out.encode(), err)

    def events(self, session: str) -> list[Json]:
        """Give the events of a session."""
        shown = self("log", session, "--view", "events", "--json")
        assert shown.code == 0, shown.err
        return shown.values


def places(place: Place) -> dict[str, str]:
    """Give the environment variables that say where a place keeps what. Output is buffered, as it is for most people."""
    return {
        "PYTHONUNBUFFERED": "",
        "REFOLD_STORE": str(place.store),
        "REFOLD_CONFIG": str(place.config),
        "XDG_CONFIG_HOME": str(place.root),
        "XDG_DATA_HOME": str(place.root),
        "REFOLD_LIVE_CHECK": "always",
    }


def start(place: Place, *arguments: str, env: Mapping[str, str] | None = None, **popen: Any) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own, with pipes to its output; end it by its pid, or wait for it."""
    settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | popen
    environment = place.env | places(place) | dict(env or {})
    made: Any = subprocess.Popen([*REFOLD, *arguments], cwd=place.workspace, env=environment, **settings)
    return made


def finish(process: subprocess.Popen[bytes], given: bytes | None = None) -> Done:
    """Wait for the end of a command."""
    out, err = process.communicate(given, timeout=WAIT_S)
    return Done(process.returncode, out or b"", (err or b"").decode())


def there(place: Place, *arguments: str, given: bytes | None = None, **settings: Any) -> Done:
    """Run a command in a process of its own, with `given` as its standard input."""
    stdin = {} if given is None else {"stdin": subprocess.PIPE}
    return finish(start(place, *arguments, **stdin, **settings), given)


def shell(place: Place, script: str, *arguments: str) -> Done:
    """Run a command through a shell: `"$@"` in the script stands for `refold` and its arguments."""
    command: Sequence[str] = ["bash", "-c", script, "bash", *REFOLD, *arguments]
    done = subprocess.run(
        command, cwd=place.workspace, env=place.env | places(place), capture_output=True, timeout=WAIT_S, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


def is_full(file: IO[Any] | int) -> bool:
    """Tell whether the pipe that ends here takes nothing more: all its pages are in use, however little each one holds."""
    number = file if isinstance(file, int) else file.fileno()
    end = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return not select.select([], [end], [], 0)[1]
    finally:
        os.close(end)
