"""Owns turns that went the ordinary way as one item, and what they do to the folds of work and horizon.

Each of their steps was sent, replied to and ended; nothing was retried, compacted or replaced, and no event is foreign. Then
most events leave nothing behind, and the folds after them follow from the few that do. `turn_skim.py` finds such turns.
"""

from __future__ import annotations

from heapq import merge
from operator import attrgetter
from typing import Final

from msgspec import Struct

from refold_protocol.errors import InvalidEventError
from refold_protocol.ids import InputId
from refold_protocol.session.events import Event, RequestHeader, RequestHeaderDelta
from refold_protocol.session.header import fold_header
from refold_protocol.session.projection import derive_message
from refold_protocol.session.rebuild import Horizon
from refold_protocol.session.surface import Surface
from refold_protocol.session.work import Work
from refold_protocol.session.work_state import Route


class SkimmedTurns(Struct, frozen=True, gc=False):
    """Whole turns that follow each other, and what was accepted, settled or set between them. `first` and `turn` are the
    numbers of the first and the last, `steps` how many the last one had, `prompted` whether it had a prompt, `end` its
    `turn/end`; `opening` is the seq of the first one's `turn/start`, `started` says which turn an input started, `ends` are
    the seqs at which they close.

    The events that folds need, in order, by what they are for: `inputs` change what waits, without those that came and went;
    `nodes` are appended to the surface, those of `inputs` that join it too; `headers`; `rules` set or grant something.
    """

    first: int
    turn: int
    steps: int
    prompted: bool
    opening: int
    started: dict[InputId, int]
    ends: tuple[int, ...]
    end: Event
    inputs: tuple[Event, ...]
    nodes: tuple[Event, ...]
    headers: tuple[Event, ...]
    rules: tuple[Event, ...]

    @property
    def shaping(self) -> tuple[Event, ...]:
        """Nodes and headers in order: what requests are made of."""
        return tuple(merge(self.nodes, self.headers, key=_SEQ)) if self.headers else self.nodes


def work_over(state: Work, passed: SkimmedTurns) -> Work:
    """Give the work fold behind the turns. Raises InvalidEventError where they may not stand."""
    if state.turn is not None or passed.first != state.last_turn + 1:
        found = f"turn {passed.first} after turn {state.last_turn}" if state.turn is None else f"turn {state.turn} is open"
        message = f"event {passed.opening} (turn/start) may not stand here: {found}"
        raise InvalidEventError(message, seq=passed.opening)
    return Work(
        instance=state.instance,
        began=state.began,
        last_turn=passed.turn,
        last_step=passed.steps,
        prompted=passed.prompted,
        route=_route(state.route, passed.headers),
        sent=True,
        compaction=state.compaction,
        landed=state.landed,
    )


def horizon_over(state: Horizon, passed: SkimmedTurns) -> Horizon:
    """Give the horizon behind the turns. Raises what the folds of surface and header raise."""
    messages = [message for message in map(derive_message, passed.nodes) if message is not None]
    return Horizon(
        Surface(state.surface.nodes.then(*passed.nodes), state.surface.replace_generation),
        state.history.then(*messages),
        fold_header(passed.headers, state.header),
        None,
        passed.turn,
        passed.steps,
        state.compaction,
    )


def _route(route: Route | None, headers: tuple[Event, ...]) -> Route | None:
    for event in headers:
        data = event.data
        config = data.header.config if isinstance(data, RequestHeader) else None
        if isinstance(data, RequestHeaderDelta):
            config = data.config
        if config is not None:
            route = Route(config.provider, config.model)
    return route


_SEQ: Final = attrgetter("seq")
