"""Owns the measure of one handler: how often it was called, how often it failed, how long it took.

Kept with the handler for as long as the process lives, written on the loop's thread, read by `daemon/health`. Times are the
handler's own: what it waits for `next()` is not its doing.
"""

from __future__ import annotations

from typing import Final

SLOW_S: Final = 0.05
"""What a handler that nobody waits for may take before it is named: every event of every session stands behind it."""


class Tally:
    """Counts of one handler. `total_s` and `slowest_s` are in seconds."""

    __slots__ = ("calls", "failures", "slowest_s", "told_s", "total_s")

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.total_s = 0.0
        self.slowest_s = 0.0
        self.told_s = SLOW_S / 2

    def add(self, seconds: float, *, failed: bool = False) -> None:
        """Count one call."""
        self.calls += 1
        self.failures += failed
        self.total_s += seconds
        if seconds > self.slowest_s:
            self.slowest_s = seconds

    def is_news(self, seconds: float) -> bool:
        """Tell whether a call was slow, and twice as slow as any that was told: one that is always slow fills no log."""
        if seconds < 2 * self.told_s:
            return False
        self.told_s = seconds
        return True
