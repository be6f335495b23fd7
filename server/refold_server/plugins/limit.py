"""Owns the time that one handler may take: counted while it works, standing still while it waits for what is not its doing.

A limit can only stop code that waits for something; one that computes for ever, or swallows every cancellation, keeps the
process to itself. Knows nothing of seams.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from math import inf

import anyio


class Limit:
    """One handler's time, in seconds (None: as much as it takes). `spent` is what it used so far."""

    def __init__(self, seconds: float | None) -> None:
        self.spent = 0.0
        self._seconds = inf if seconds is None else seconds
        self._scope: anyio.CancelScope | None = None
        self._waits = 0
        self._stood = 0.0
        self._since = 0.0
        self._kept = 0.0

    @property
    def is_up(self) -> bool:
        """Whether nothing is left, as of the last time that `running` was left."""
        return self.spent >= self._seconds

    @property
    def is_standing(self) -> bool:
        """Whether the time is not counted just now."""
        return self._waits > 0

    @contextmanager
    def running(self) -> Generator[None]:
        """Count the time inside; stop what runs there when it is up. May be entered again and again, not twice at once."""
        began, stood = anyio.current_time(), self._stood
        try:
            with anyio.CancelScope(deadline=began + self._seconds - self.spent) as self._scope:
                yield
        finally:
            self.spent += anyio.current_time() - began - (self._stood - stood)

    @contextmanager
    def standing(self) -> Generator[None]:
        """Do not count the time inside; any number of these may overlap."""
        scope = self._scope
        if scope is None:
            yield
            return
        if self._waits == 0:
            self._since = anyio.current_time()
            self._kept = scope.deadline - self._since
            scope.deadline = inf
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if self._waits == 0:
                now = anyio.current_time()
                self._stood += now - self._since
                scope.deadline = now + self._kept
