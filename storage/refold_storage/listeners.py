"""Owns who is told of a handle's progress: observers of accepted batches, watchers of the durable seq.

They run synchronously, in the order in which they came. What one raises is logged and contained, because the log has
changed already when it is called; one that takes long is named in the log, because everybody waits for it. Knows nothing
of where events are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Final, Generic, TypeVar

Told = TypeVar("Told")

SLOW_SECONDS: Final = 0.05
"""A listener that takes longer than this is named in the log."""


class Listeners(Generic[Told]):
    """Callables that are told one value each time. One that leaves while all are being told is not called any more."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[Told], None]] = {}
        self._next = 0

    def add(self, listener: Callable[[Told], None]) -> Callable[[], None]:
        """Tell `listener` from now on; give the function that stops it (idempotent)."""
        place = self._next
        self._next += 1
        self._listeners[place] = listener

        def stop() -> None:
            self._listeners.pop(place, None)

        return stop

    def tell(self, told: Told) -> None:
        """Call every listener with `told`. Raises nothing that a listener raises, cancellation and exit excepted."""
        if not self._listeners:
            return
        for place in list(self._listeners):
            listener = self._listeners.get(place)
            if listener is None:
                continue
            began = perf_counter()
            try:
                listener(told)
            except Exception:  # noqa: BLE001 - the event is accepted whatever its listeners think of it
                _LOG.exception("a listener of the log failed: %r", listener)
            spent = perf_counter() - began
            if spent > SLOW_SECONDS:
                _LOG.warning("a listener of the log took %.0f ms: %r", spent * 1000, listener)

    def clear(self) -> None:
        """Forget all listeners."""
        self._listeners.clear()


_LOG: Final = logging.getLogger(__name__)
