"""Owns turns that went the ordinary way as one item, and what they do to the folds of work and horizon.

Each of their steps was sent, replied to and ended; nothing was retried, compacted or replaced, and no event is foreign. Then
most events leave nothing behind, and the folds after them follow from the few that do. `turn_skim.py` finds such turns.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from refold_protocol.errors import InvalidEventError
from refold_protocol.session.events import (
    Event,
    ForeignData,
    Replace,
    RequestHeader,
    RequestHeaderDelta,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.header import header_step
from refold_protocol.session.projection import derive_message
from refold_protocol.session.rebuild import Horizon
from refold_protocol.session.surface import Surface
from refold_protocol.session.work import Work
from refold_protocol.session.work_state import Route


class SkimmedTurns(Struct, frozen=True, gc=False):
    """Whole turns that follow each other, and what was accepted or settled between them: the events that folds need, in
    order, each `turn/start` and `turn/end` among them. `turn` is the number of the last turn, `steps` how many it had."""

    turn: int
    steps: int
    lasting: tuple[Event, ...]


def whole_turns(lasting: tuple[Event, ...], steps: int) -> SkimmedTurns | None:
    """Give the turns that such events are of, the last with so many steps; None where numbers of turns do not agree, or
    anything replaces what stood before or is foreign."""
    turn, started = None, None
    for event in lasting:
        data = event.data
        if isinstance(event.surface_op, Replace) or isinstance(data, ForeignData):
            return None
        if isinstance(data, TurnStart):
            if started is not None or (turn is not None and data.turn != turn + 1):
                return None
            started = data.turn
        elif isinstance(data, TurnEnd):
            if data.turn != started:
                return None
            turn, started = started, None
    return None if turn is None or started is not None else SkimmedTurns(turn, steps, lasting)


def work_over(state: Work, passed: SkimmedTurns) -> Work:
    """Give the work fold behind the turns. Raises InvalidEventError where they may not stand."""
    route, prompted = state.route, False
    for event in passed.lasting:
        data = event.data
        if isinstance(data, UserMessage):
            prompted = True
        elif isinstance(data, TurnStart):
            prompted = False
        elif isinstance(data, RequestHeader):
            route = Route(data.header.config.provider, data.header.config.model)
        elif isinstance(data, RequestHeaderDelta) and data.config is not None:
            route = Route(data.config.provider, data.config.model)
    _check_begin(state, passed)
    return Work(
        instance=state.instance,
        began=state.began,
        last_turn=passed.turn,
        last_step=passed.steps,
        prompted=prompted,
        route=route,
        sent=True,
        compaction=state.compaction,
        landed=state.landed,
    )


def horizon_over(state: Horizon, passed: SkimmedTurns) -> Horizon:
    """Give the horizon behind the turns. Raises what the folds of surface and header raise."""
    nodes = [event for event in passed.lasting if event.surface_op is not None]
    messages = [message for message in map(derive_message, nodes) if message is not None]
    header = state.header
    for event in passed.lasting:
        if type(event.data) in _HEADERS:
            header = header_step(header, event)
    return Horizon(
        Surface(state.surface.nodes.then(*nodes), state.surface.replace_generation),
        state.history.then(*messages),
        header,
        None,
        passed.turn,
        passed.steps,
        state.compaction,
    )


def _check_begin(state: Work, passed: SkimmedTurns) -> None:
    for event in passed.lasting:
        if isinstance(event.data, TurnStart):
            if state.turn is not None or event.data.turn != state.last_turn + 1:
                found = f"turn {state.turn} is open" if state.turn else f"turn {event.data.turn} after turn {state.last_turn}"
                raise InvalidEventError(f"event {event.seq} (turn/start) may not stand here: {found}", seq=event.seq)
            return


_HEADERS: Final = frozenset((RequestHeader, RequestHeaderDelta))
