"""How a tool says that it failed, and whose fault an exception is: the code's own, or a sign from outside.

A ToolFailure is an outcome that the model reads and reacts to, not a fault of refold's: it ends no turn and crosses no layer,
because `tool_runner.py` turns it into an error result. So it is not in the tree of `refold_protocol.errors`.

Python lets anybody raise what ends tasks and processes. Here it ends neither: a `KeyboardInterrupt` counts as a person's only
where it is an `Interrupted`, which only refold's own signal handler raises. Asyncio hands a signal to its main task and never
into the frame of what happens to run; where Python's own handler is in place, before a command took its signals, no foreign
code runs.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, Final

import anyio

from refold_server.secret_text import SECRETS

CODES: Final[dict[str, str]] = {
    "UNKNOWN_TOOL": "no tool of that name",
    "INVALID_ARGUMENTS": "the arguments are not strict JSON, or not what the tool takes",
    "DENIED": "a rule or a person forbids it; nothing was read or changed",
    "TIMED_OUT": "the tool did not end in time and was stopped",
    "STALE": "the file is not what the model read, or what was proposed; nothing was changed, and reading again helps",
    "TOOL_FAILED": "the tool ran and did not succeed",
}
"""The codes that tools and their pipeline give. Those of calls that a turn's end cut off are in `session/closers.py`."""


class ToolFailure(Exception):  # noqa: N818 - an outcome of a tool; "error" is the word for what the result records
    """A tool could not do what was asked. `code` is one of CODES, `name` the class of the failure in CamelCase, and
    `message` a sentence for the model, which should say what to do instead."""

    def __init__(self, code: str, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message


def invalid_arguments(message: str) -> ToolFailure:
    """Give the failure of arguments that cannot be what the model meant."""
    return ToolFailure("INVALID_ARGUMENTS", "InvalidArguments", message)


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
    """Give the first line of what an exception says, without secrets; empty where it says nothing or cannot be printed: it may
    be anybody's."""
    try:
        return SECRETS.scrub(str.strip(str(error)).split("\n", 1)[0])
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001 - printing it runs its code, whose fault says no more than silence would
        return ""
