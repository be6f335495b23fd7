"""Owns the way through a long iteration beside which the event loop stays alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import anyio.lowlevel

SLICE_ITEMS: Final = 512
"""Items between two turns of the event loop: a few milliseconds."""

Item = TypeVar("Item")
State = TypeVar("State")


async def folded(items: Iterable[Item], step: Callable[[State, Item], State], state: State) -> State:
    """Fold `items`, going on from `state`. Raises what iterating and `step` raise."""
    for number, item in enumerate(items, 1):
        state = step(state, item)
        if number % SLICE_ITEMS == 0:
            await anyio.lowlevel.checkpoint()
    return state


async def listed(items: Iterable[Item]) -> list[Item]:
    """Give `items` in a list. Raises what iterating raises."""
    found: list[Item] = []
    for item in items:
        found.append(item)
        if len(found) % SLICE_ITEMS == 0:
            await anyio.lowlevel.checkpoint()
    return found
