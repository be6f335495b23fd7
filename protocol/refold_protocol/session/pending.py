"""Owns the pending-inputs fold: inputs accepted and neither consumed by a message nor settled.

After a resume nothing pending runs by itself; it is listed and offered. Forks do not inherit it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from refold_protocol.ids import InputId
from refold_protocol.session.events import (
    ContextMessage,
    Event,
    InputAccepted,
    InputSettled,
    InstanceStart,
    SteeringMessage,
    UserMessage,
)
from refold_protocol.session.messages import InputBlock, Source


class PendingInput(Struct, frozen=True, gc=False, omit_defaults=True):
    """An input that waits; `seq` is that of its `input/accepted`."""

    input: InputId
    seq: int
    mode: str
    content: tuple[InputBlock, ...]
    source: Source
    key: str | None = None


Pending: TypeAlias = tuple[PendingInput, ...]
"""State of the fold, in the order of acceptance."""


def pending_step(state: Pending, event: Event) -> Pending:
    """Fold one event."""
    if type(event.data) not in _TOUCHING:
        return state
    match event.data:
        case InputAccepted(input=accepted, mode=mode, content=content, source=source, key=key):
            return (*state, PendingInput(accepted, event.seq, mode, content, source, key))
        case UserMessage(input=str(gone)) | ContextMessage(input=str(gone)) | SteeringMessage(input=str(gone)):
            return tuple(waiting for waiting in state if waiting.input != gone) if state else state
        case InputSettled(input=gone):
            return tuple(waiting for waiting in state if waiting.input != gone)
        case InstanceStart(reason="fork"):
            return ()
        case _:
            return state


def fold_pending(events: Iterable[Event], state: Pending = ()) -> Pending:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = pending_step(state, event)
    return state


_TOUCHING: Final = frozenset((InputAccepted, UserMessage, ContextMessage, SteeringMessage, InputSettled, InstanceStart))
"""Data that may change the state: the others, most of a log, are passed by without looking at them one by one."""
