"""Owns the fold of what a person allowed for the rest of a session: tools whose further calls need no new question.

It holds as long as the session does, over resumes; a fork is another session and inherits none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from refold_protocol.ids import ApprovalId
from refold_protocol.session.events import ApprovalAsked, ApprovalDecided, Event, InstanceStart


class Granted(Struct, frozen=True, gc=False):
    """State of the fold. `tools` are those allowed for the session, in the order of the answers; `asked` has the tools of
    open questions."""

    tools: tuple[str, ...] = ()
    asked: tuple[tuple[ApprovalId, str], ...] = ()


NOTHING_GRANTED = Granted()


def granted_step(state: Granted, event: Event) -> Granted:
    """Fold one event."""
    if type(event.data) not in _TOUCHING:
        return state
    match event.data:
        case ApprovalAsked(id=approval, tool=tool):
            return Granted(state.tools, (*state.asked, (approval, tool)))
        case ApprovalDecided(id=approval, outcome=outcome, scope=scope):
            rest = tuple(row for row in state.asked if row[0] != approval)
            named = tuple(tool for one, tool in state.asked if one == approval and tool not in state.tools)
            for_good = outcome == "allowed" and scope == "session"
            return Granted((*state.tools, *named) if for_good else state.tools, rest)
        case InstanceStart(reason="fork"):
            return NOTHING_GRANTED
        case _:
            return state


def fold_granted(events: Iterable[Event], state: Granted = NOTHING_GRANTED) -> Granted:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = granted_step(state, event)
    return state


_TOUCHING: Final = frozenset((ApprovalAsked, ApprovalDecided, InstanceStart))
"""Data that may change the state."""
