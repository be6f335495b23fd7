"""The running of a process's main work on an event loop that outlives what foreign tasks throw at it.

Asyncio lets a KeyboardInterrupt or SystemExit of any task or callback out of the loop, which would end every session of the
process. Those that tools and plugins raise where refold called them never get that far; here it is what a task of their own
raises, which nobody waits for. Nothing of the loop is lost by that, so it goes on. Knows no plugins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from refold_server.tools.tool_failure import Interrupted

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)


def run_to_its_end(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on a loop of its own, with what other tasks start there, and give what it gives. Raises what it raises, and
    Interrupted; KeyboardInterrupt where Python's own handler took a SIGINT, which cancels `work` first."""
    started: list[asyncio.Task[T]] = []

    async def whole() -> None:
        if not started:
            started.append(asyncio.create_task(work()))
        try:
            await asyncio.wait(started)
        except asyncio.CancelledError:  # SIGINT: `work` is brought to its end before the loop is closed
            started[0].cancel()
            await asyncio.wait(started)
            if started[0].cancelled():
                raise

    with asyncio.Runner() as runner:
        while True:
            try:
                runner.run(whole())
            except (KeyboardInterrupt, SystemExit) as error:
                if isinstance(error, Interrupted) or not started or started[0].done():
                    raise
                kind = type(error).__name__
                _log.error("a task that nobody waits for ended with %s, which ends nothing else", kind, exc_info=error)
            else:
                return started[0].result()
