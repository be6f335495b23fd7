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
from refold_protocol.session.events import Event, RequestHeader, RequestHeaderDelta
from refold_protocol.session.header import fold_header
from refold_protocol.session.projection import derive_message
from refold_protocol.session.rebuild import Horizon
from refold_protocol.session.surface import Surface
from refold_protocol.session.work import Work
from refold_protocol.session.work_state import Route


class SkimmedTurns(Struct, frozen=True, gc=False):
    """Whole turns that follow each other, and what was accepted, settled or set between them. `turn` is the number of the
    last one, `steps` how many it had, `prompted` whether it had a prompt, `end` its `turn/end`.

    The events that folds need, in order, by what they are for: `starts` open the turns and `ends` are the seqs that close
    them; `inputs` change what waits; `nodes` are appended to the surface, those of `inputs` that join it too; `headers`;
    `rules` set or grant something.
    """

    turn: int
    steps: int
    prompted: bool
    starts: tuple[Event, ...]
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
    first = passed.turn - len(passed.starts) + 1
    if state.turn is not None or first != state.last_turn + 1:
        found = f"turn {first} after turn {state.last_turn}" if state.turn is None else f"turn {state.turn} is open"
        seq = passed.starts[0].seq
        raise InvalidEventError(f"event {seq} (turn/start) may not stand here: {found}", seq=seq)
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
