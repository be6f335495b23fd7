"""Owns the time limits of one call to a provider: to its first output, between two outputs, in all.

Output is what the decoder gives: comments that keep a connection alive are none. A stream has thousands of waits, and a
cancel scope with a deadline costs 11 µs for each, nearly as much as reading; so there is one timer for a call, which looks
again when it fires too early. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from refold_protocol.errors import ProviderError
from refold_server.config import TimeoutsConfig

GRACE_SECONDS: Final = 1.0
"""How much longer a limit is when it passes while nobody waits: what came meanwhile may lie there unread."""

T = TypeVar("T")


class Patience:
    """The limits of one call, from its making on. Belongs to one task; `close` must be called."""

    def __init__(self, timeouts: TimeoutsConfig) -> None:
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + timeouts.total_s
        self._limit = self._loop.time() + timeouts.first_output_s
        self._rewarded = False
        self._waiting: asyncio.Task[object] | None = None
        self._expired = False
        self._timer = self._loop.call_at(min(self._limit, self._end), self._look)

    def rewarded(self) -> None:
        """Note that output came: the limit between two outputs begins anew."""
        self._limit = self._loop.time() + self._timeouts.progress_s
        if not self._rewarded:  # the first time, the limit may come closer
            self._rewarded = True
            self._reset()

    def end_within(self, seconds: float) -> None:
        """Lower what is left of the call: all that matters has come."""
        self._end = min(self._end, self._loop.time() + seconds)
        self._reset()

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await something for as long as is left. Raises ProviderError `provider.timeout`, which names the limit."""
        task = asyncio.current_task()
        assert task is not None
        requests = task.cancelling()
        self._waiting = task
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._expired and task.uncancel() <= requests:  # the timer's request, and nobody else's
                raise self._error() from None
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _reset(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(min(self._limit, self._end), self._look)

    def _look(self) -> None:
        deadline = min(self._limit, self._end)
        if self._loop.time() < deadline:
            self._timer = self._loop.call_at(deadline, self._look)
        elif self._waiting is None:
            self._timer = self._loop.call_later(GRACE_SECONDS, self._look)
        else:
            self._expired = True
            self._waiting.cancel()

    def _error(self) -> ProviderError:
        limits = self._timeouts
        if self._end <= self._limit:
            what = f"no complete answer within {limits.total_s:g} s (timeouts.total_s)"
        elif self._rewarded:
            what = f"no further output within {limits.progress_s:g} s (timeouts.progress_s)"
        else:
            what = f"no output within {limits.first_output_s:g} s of the request (timeouts.first_output_s)"
        return ProviderError("provider.timeout", f"the provider gave {what}; try again, or raise the limit")
