"""Event loop on which waiting takes no time: when nothing is ready, its clock jumps to the next timer.

For code that waits for moments, not for input: a day passes in a millisecond, in the right order, always the same.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop. Its time starts at 0."""

    def __init__(self) -> None:
        self._selector_of_time = _Selector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        return self._selector_of_time.now

    def block(self, seconds: float) -> None:
        """Let time go by while nothing else happens, as code that blocks does."""
        self._selector_of_time.now += seconds

    def timers(self) -> int:
        """Count the timers that are still to come."""
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - asyncio has no public name for it
        return sum(not timer.cancelled() for timer in scheduled)


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on such a loop."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self.now += max(timeout, 0.0)
        return ready
