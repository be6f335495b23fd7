"""Owns the messages that wait for their turn: in order of arrival, bounded in bytes.

They wait in short bursts, and for long only while the client does not read its replies. Must not know what happens to
them; does nothing by itself.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MESSAGE_COST: Final = 1024
"""What a waiting message costs beside its bytes, roughly."""

FULL_BYTES: Final = 64 * 1024 * 1024
"""Above this nothing more should be read."""


class Intake(Generic[T]):
    """A queue that knows what it weighs."""

    def __init__(self, full_bytes: int = FULL_BYTES) -> None:
        self._full_bytes = full_bytes
        self._waiting: deque[tuple[T, int]] = deque()
        self._bytes = 0

    def add(self, item: T, size: int) -> None:
        """Put `item`, which holds `size` bytes, behind the others."""
        self._waiting.append((item, size + MESSAGE_COST))
        self._bytes += size + MESSAGE_COST

    def take(self) -> T:
        """Give the oldest. Raises IndexError where nothing waits."""
        item, cost = self._waiting.popleft()
        self._bytes -= cost
        return item

    def clear(self) -> None:
        """Forget all that waits."""
        self._waiting.clear()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it weighs so much that reading must stop."""
        return self._bytes >= self._full_bytes

    def __len__(self) -> int:
        return len(self._waiting)
