"""Owns what SIGINT, SIGTERM and SIGHUP do to a command: the first asks it to stop, a second ends the process at once.

Ending at once is safe: the log survives a kill at any moment, and the next opener closes the turn. The handlers stay in
place from before the command's first work until its exit code is known, so that no signal falls into a gap and shows a
traceback. A signal that was ignored when the process began (`nohup`, a shell's background job) stays ignored. `refold
serve` does not come through here: its signals are the daemon's.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import anyio

from refold_server.cli.exits import INTERRUPTED
from refold_server.enduring import run_to_its_end
from refold_server.tools.tool_failure import Interrupted

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a command to stop."""

_FAREWELL: Final = b"refold: left at once; what was recorded is kept, and an open turn is closed by whoever opens it next\n"


def run_reading(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a command that only reads and give its exit code. The first signal ends it wherever it is, by Interrupted:
    it may be deep in a long log, and has nothing to bring to an end."""
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
        """Take the signals. A command that was asked to stop leaves them ignored: only the process's end is to come."""
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
                self._over = True  # the outcome is known; what is left is to give things back
        return INTERRUPTED

    def _arrived(self, number: int, frame: FrameType | None) -> Any:
        del frame
        self._received += 1
        if self._received > 1:
            _leave_at_once()
        if self._over:
            return
        if self._loop is None:
            raise Interrupted
        self._loop.call_soon_threadsafe(self._ask, signal.Signals(number))

    def _ask(self, number: signal.Signals) -> None:
        if self._handle is not None:
            self._handle(number)


def _leave_at_once() -> None:
    """End the process, with a sentence if standard error takes one without blocking."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    try:
        if poll.poll(0):
            os.write(2, _FAREWELL)
    finally:
        os._exit(INTERRUPTED)
