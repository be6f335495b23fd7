"""Owns the ways in which a connection can be ended from outside its stream: signals, and the death of the editor.

Costs nothing while nothing happens: a process is watched through a descriptor of the kernel, not by asking again and
again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Final, Literal, TypeAlias

EndReason: TypeAlias = Literal["exit", "inputEnded", "outputClosed", "parentGone", "brokenFrame", "terminated"]
"""Why a connection ended: the client said `exit`, closed its writing or its reading end, died, lost its framing; or a
signal came. `terminated` is the strongest: it replaces an ending that is under way."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What ends the daemon in good order."""


@contextmanager
def signals_watched(end: Callable[[EndReason], None]) -> Generator[None]:
    """Call `end` on the running loop when one of SIGNALS comes. For the main thread only."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for number in SIGNALS:
            loop.add_signal_handler(number, end, "terminated")
            stack.callback(loop.remove_signal_handler, number)
        yield


def watch_process(descriptor: int, end: Callable[[EndReason], None]) -> Callable[[], None]:
    """Call `end` on the running loop when the process behind `descriptor` ends; give the function that stops watching.

    Takes over the descriptor, which `open_ancestor` gave."""
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(descriptor)  # it stays readable for ever
        end("parentGone")

    def stop() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)

    loop.add_reader(descriptor, gone)
    return stop
