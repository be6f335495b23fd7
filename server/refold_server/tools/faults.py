"""Owns the question whose fault it is what leaves somebody's code, a tool's or a plugin's: its own, or a sign from outside.

Python lets anybody raise what ends tasks and processes. Here it ends neither: a `KeyboardInterrupt` counts as a person's only
where it is an `Interrupted`, which nothing but a signal's handler of refold's own raises. Asyncio hands a signal to its main
task and never into the frame of what happens to run, so there is no other that could be one; where Python's own handler is in
place, before a command took its signals, no foreign code runs.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import anyio


class Interrupted(KeyboardInterrupt):
    """A person wants an end of the process, now: raised where a signal found it. Never by a tool or a plugin."""


def is_own_fault(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Tell whether what left somebody's code is that code's own fault, or a sign from outside: a cancellation of the turn, an
    interrupt of the process, the end of a coroutine that nobody waits for any more. `task` is the one that ran the code.
    A cancellation was meant for nobody here where somebody awaits a future that was cancelled."""
    match error:
        case Interrupted():
            return False
        case GeneratorExit():
            return asyncio.current_task() is task
        case asyncio.CancelledError():
            return anyio.current_effective_deadline() > -inf and (task is None or task.cancelling() == 0)
        case _:
            return True


def first_line(error: BaseException) -> str:
    """Give the first line of what an exception says, empty where it says nothing or cannot be printed: it may be anybody's."""
    try:
        return str.strip(str(error)).split("\n", 1)[0]
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001 - printing it runs its code, whose fault says no more than silence would
        return ""
