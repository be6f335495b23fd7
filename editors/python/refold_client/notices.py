"""Owns a listener's queue of notifications that only inform. Unbounded: whoever listens reads, or stops listening."""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio


class Notices:
    """An asynchronous iterator over params, in the order of arrival; it ends with the connection."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._ended = False
        self._changed = anyio.Event()

    def __aiter__(self) -> Notices:
        return self

    async def __anext__(self) -> Any:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            await self._changed.wait()
        return self._waiting.popleft()

    def take(self, params: Any) -> None:
        """Take a notification's params."""
        self._waiting.append(params)
        self._wake()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
