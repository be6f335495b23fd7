"""Context of a command: its configuration, store and sessions, all closed at the end, and what signals do to it.

The first SIGINT, SIGTERM or SIGHUP asks a command to stop, a second one ends the process at once. That is safe: the log
survives a kill at any moment, and the next opener closes the turn. The handlers stay from before the command's first work
until its exit code is known, so that no signal falls into a gap and shows a traceback. A signal that was ignored when the
process began (`nohup`, a shell's background job) stays ignored. `refold serve` handles its signals itself.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import select
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.events import AbortCause
from refold_server.cli.exit_codes import INTERRUPTED, first_error
from refold_server.cli.formatting import printable
from refold_server.config import Config, ToolsConfig
from refold_server.config_file import load_config
from refold_server.runner import run_to_its_end
from refold_server.secret_text import ScrubbingFormatter
from refold_server.services import Services, load_services, open_configured_store
from refold_server.sessions.session_registry import Sessions
from refold_server.tools.tool_failure import Interrupted
from refold_storage.interface import Store

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a command to stop."""

_EXIT_NOTE: Final = b"refold: left at once; what was recorded is kept, and an open turn is closed by whoever opens it next\n"

_REPORTED: Final = "refold_server.sessions."
"""Loggers of errors that whoever waits for a turn gets as exceptions too."""


class CommandContext(Struct, frozen=True):
    """What a command works with. `sessions` run their turns in a task group that ends with the command."""

    config: Config
    store: Store
    sessions: Sessions
    shared: Services

    def session(self, text: str) -> SessionId:
        """Give the session that a person names: by its id, by the beginning of it that no other has, or as `latest`. What names
        none is given as it is, for whoever opens it. Raises ConfigError for a beginning that several have."""
        if text == LATEST:
            rows = self.store.recent(limit=1)
            return rows[0][1].id if rows else SessionId(text)
        if len(text) < LEAST_PREFIX or len(text) >= ID_LENGTH:
            return SessionId(text)
        found = sorted(one for one in self.store.survey() if isinstance(one, str) and one.startswith(text))
        if len(found) > 1:
            raise ConfigError("SESSION", f"{text!r} begins the ids of {len(found)} sessions, such as {found[0]} and {found[1]}")
        return SessionId(found[0] if found else text)


LATEST: Final = "latest"
"""Names the session that was active last."""

LEAST_PREFIX: Final = 4
"""Characters of an id that name a session at least."""

ID_LENGTH: Final = 36


def read_config(options: argparse.Namespace, *, model: str | None = None) -> Config:
    """Read the configuration that `--config`, `--store` and the environment name, and set up logging as it says. Raises
    ConfigError."""
    named = None if options.config is None else Path(options.config)
    config = load_config(named, os.environ, store=options.store, model=model)
    _log_to_stderr(config.log.level.upper())
    return config


def current_folder() -> str:
    """Give the path of the current folder. Raises ConfigError when there is none, or none that a log can name."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed, or may not be looked at
        raise ConfigError("cwd", "the current folder is not there any more; go to another one") from None
    if any("\ud800" <= character <= "\udfff" for character in folder):
        raise ConfigError("cwd", f"the path of the current folder is not UTF-8, and logs hold text only: {folder!r}")
    return folder


def named_folder(folder: str | None) -> str:
    """Give the absolute path of the folder that an option names, the current one where it names none. Raises ConfigError."""
    if folder is None:
        return current_folder()
    path = os.path.abspath(folder)  # noqa: PTH100 - links stay as they were named
    if not os.path.isdir(path):  # noqa: PTH112 - a name may be any text
        raise ConfigError("--cwd", f"there is no folder {path}")
    return path


def standing_folder(recorded: str, named: str | None) -> str | None:
    """Give the folder that a session is to have in place of the one that is `recorded`: the one that an option names, or the
    current one where the recorded one was moved or renamed; None where it keeps its own. Raises ConfigError."""
    from refold_server.sessions.session_registry import is_gone, same_folder

    if named is None and not is_gone(recorded):
        return None
    folder = named_folder(named)
    return None if same_folder(folder, recorded) else folder


@asynccontextmanager
async def open_context(
    config: Config, *, create: bool = False, plugins: bool = True, turns: bool = False
) -> AsyncGenerator[CommandContext, None]:
    """Open the store (a new one only with `create`), with the user's plugins unless the command needs none. Raises what opening
    raises; a plugin that cannot be loaded is told and left out unless the command runs `turns`. At the end turns are stopped,
    sessions flushed and closed, and the first trouble of that is raised. What plugins print while they are loaded goes to
    standard error, as does all that is printed to `sys.stdout` while a command runs `turns`: such a command takes its own
    stream before."""
    with redirect_stdout(sys.stderr):
        left_out = None if turns else _tell_left_out
        shared = await load_services(config, left_out=left_out) if plugins else Services(replace(config, tools=ToolsConfig(())))
    try:
        with redirect_stdout(sys.stderr) if turns else nullcontext():
            async with _open_sessions(config, shared, create=create) as context:
                yield context
    finally:
        with anyio.CancelScope(shield=True):
            await shared.close()


def _tell_left_out(error: ConfigError) -> None:
    sys.stderr.write(f"refold: note: {printable(error.message)} This command only reads, and goes on without it.\n")


def run_until_signal(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a command and give its exit code. The first signal ends it wherever it is, by Interrupted: it may be deep in a long
    log, and has nothing to bring to an end."""
    with Interrupts().installed():
        try:
            return run_to_its_end(work)
        except BaseExceptionGroup as group:  # a task group wraps whatever ends it
            if group.subgroup(KeyboardInterrupt) is not None:
                raise Interrupted from None
            raise


class Interrupts:
    """The signals of one command. Install once, on the main thread, around all of it."""

    def __init__(self) -> None:
        self._received = 0
        self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: Callable[[signal.Signals], None] | None = None

    @contextmanager
    def installed(self) -> Generator[None]:
        """Take the signals. A command that was asked to stop leaves them ignored: nothing follows but the process's end."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        taken = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
        for number in taken:
            signal.signal(number, self._arrived)
        try:
            yield
        finally:
            self._over = True
            for number in taken:
                signal.signal(number, signal.SIG_IGN if self._received else before[number])

    def run(self, work: Callable[[], Awaitable[int]]) -> int:
        """Run a command's asynchronous part and give its exit code; a signal cancels it, unless `handled` says otherwise."""
        return run_to_its_end(lambda: self._run(work))

    @contextmanager
    def handled(self, handle: Callable[[signal.Signals], None]) -> Generator[None]:
        """Within the block, call `handle` on the event loop for the first signal in place of cancelling the command."""
        before, self._handle = self._handle, handle
        try:
            yield
        finally:
            self._handle = before

    async def _run(self, work: Callable[[], Awaitable[int]]) -> int:
        with anyio.CancelScope() as scope:
            self._handle = lambda _: scope.cancel()
            self._loop = asyncio.get_running_loop()
            try:
                return await work()
            finally:
                self._over = True  # the outcome is known; only cleaning up is left
        return INTERRUPTED

    def _arrived(self, number: int, frame: FrameType | None) -> Any:
        del frame
        self._received += 1
        if self._received > 1:
            _exit_at_once()
        if self._over:
            return
        if self._loop is None:
            raise Interrupted
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(number))

    def _stop(self, number: signal.Signals) -> None:
        if self._handle is not None:
            self._handle(number)


def _exit_at_once() -> None:
    """End the process, with a sentence if standard error takes one without blocking."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    try:
        if poll.poll(0):
            os.write(2, _EXIT_NOTE)
    finally:
        os._exit(INTERRUPTED)


class _PatientHandler(logging.StreamHandler[Any]):
    """Writes log lines to standard error where that takes one at once: a command never waits for who reads its log. What was
    left out is counted, and the count said where the lines would stand."""

    def __init__(self) -> None:
        super().__init__()
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        try:
            poll = select.poll()
            poll.register(self.stream.fileno(), select.POLLOUT)
            takes_one = bool(poll.poll(0))
        except OSError:  # no descriptor: whoever put another stream there reads it
            takes_one = True
        if not takes_one:
            self._left_out += 1
            return
        if self._left_out:
            self.stream.write(f"refold: {self._left_out} lines were left out here: nobody read standard error in time\n")
            self._left_out = 0
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """Give a record's text, cut to what a pipe that takes anything takes whole."""
        text = super().format(record)
        data = text.encode()
        return text if len(data) < select.PIPE_BUF else f"{data[: select.PIPE_BUF - 100].decode(errors='ignore')}…"


def _log_to_stderr(level: str) -> None:
    """Show what is logged on standard error, but not what sessions log of an error that the command itself will tell."""
    root = logging.getLogger()
    if not root.handlers:  # else the program that this command runs in has set up logging
        handler = _PatientHandler()
        handler.setFormatter(ScrubbingFormatter("refold: %(levelname)s: %(name)s: %(message)s"))
        handler.addFilter(lambda record: not record.name.startswith(_REPORTED) or record.exc_info is not None)
        root.addHandler(handler)
        root.setLevel(level)


@asynccontextmanager
async def _open_sessions(config: Config, shared: Services, *, create: bool) -> AsyncGenerator[CommandContext, None]:
    store = await open_configured_store(config.store, create=create, client="refold command")
    troubles: list[RefoldError] = []
    try:
        async with anyio.create_task_group() as tasks:

            def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
                tasks.start_soon(work)

            sessions = Sessions(store, shared.host, spawn, plugins=shared.plugins)
            try:
                yield CommandContext(config, store, sessions, shared)
            finally:
                with anyio.CancelScope(shield=True):
                    troubles = await sessions.close_all(AbortCause("disposed"))
        if troubles:
            raise troubles[0]
    except ExceptionGroup as group:
        raise first_error(group) from None
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()
