"""Loading: the lines of a stored log to the state of its session.

A log was judged when it was written, and import and `verify` judge it as well. So turns that are over are read for what lasts:
nodes, headers, inputs, settings, grants, compactions. The lines of other events, chunks above all, are not decoded. After the
last `turn/end` each event is judged and folded. Takes lines, reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from refold_protocol.session.codec import decode_at
from refold_protocol.session.events import Event
from refold_protocol.session.session_state import NO_EVENTS, SessionState, fold_over, fold_stored


class Loading:
    """The reading of one log, from its event 0 on. First `take` all its lines, then give `finish` those from `revision` on:
    then `state` is that of folding each event."""

    def __init__(self) -> None:
        self.state: SessionState = NO_EVENTS
        self._held: list[bytes] = []  # what came after the last `turn/end`

    @property
    def revision(self) -> int:
        """The number of events that `state` is made of."""
        return self.state.revision

    def take(self, lines: Sequence[bytes]) -> list[Event]:
        """Take the next lines, in which lines of chunks may be bare. Gives the events that were folded: those of turns that
        are over, but for those that leave nothing.

        Raises SessionCorruptionError with the seq of a line that is no event, or does not stand in its place, and what
        `fold_over` raises.
        """
        end = next((place for place in reversed(range(len(lines))) if lines[place].startswith(_TURN_END)), -1) + 1
        if end == 0:
            self._held += lines
            return []
        over, self._held = [*self._held, *lines[:end]], list(lines[end:])
        events: list[Event] = []
        state = self.state
        for seq, line in enumerate(over, state.revision):
            if not line.startswith(_TYPE) or line[_NAME : line.find(b'"', _NAME)] not in _LEAVING_NOTHING:
                event = decode_at(line, seq)
                state = fold_over(state, event)
                events.append(event)
        self.state = state
        return events

    def finish(self, lines: Sequence[bytes]) -> list[Event]:
        """Take the next whole lines from `revision` on. Raises SessionCorruptionError with the seq of the first event that may
        not stand where it stands, and SessionFormatUnsupportedError."""
        events = [decode_at(line, seq) for seq, line in enumerate(lines, self.revision)]
        for event in events:
            self.state = fold_stored(self.state, event)
        return events


_TYPE: Final = b'{"type":"'
"""How the line of an event begins, as `seal` writes it. Lines of other origin are decoded."""

_NAME: Final = len(_TYPE)

_TURN_END: Final = b'{"type":"turn/end",'

_LEAVING_NOTHING: Final = frozenset(
    {
        b"step/start",
        b"step/end",
        b"request/sent",
        b"llm/retry",
        b"plugin/failed",
        b"assistant/chunk",
        b"tool/call",
        b"compact/summary",
        b"session/title",
    }
)
"""Types of events of which nothing is left once their turn is over."""
