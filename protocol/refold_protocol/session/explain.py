"""Owns the explanation of one request against an earlier one of the same log, whichever two they are.

Gathers the requests of a log while it is fed, then compares any two. Keeps no bodies: requests share their histories, so
a gathered request costs little. Words and verdicts are `cache_words.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import TurnMismatchError
from refold_protocol.session.cache import NO_BLOBS, NOTHING_ASKED, Attribution, RequestRow, attribution_step, course_of
from refold_protocol.session.cache_words import prompt_tokens
from refold_protocol.session.comparison import SentRequest, compare
from refold_protocol.session.events import Event, RequestSent


class Explanation(Struct, frozen=True):
    """`row` is the later request, with what it shares with the earlier one, `against`, and all causes between the two;
    both are rows of a step's last attempt. `against` is None for the first request of a log. `state` is that of the log."""

    row: RequestRow
    against: RequestRow | None
    state: Attribution


class RequestHistory:
    """The requests of one log. Feed all events, oldest first, then ask."""

    def __init__(self, blobs: Mapping[str, bytes] = NO_BLOBS) -> None:
        self._blobs = blobs
        self._sent: dict[tuple[int, int], SentRequest] = {}
        self.state = NOTHING_ASKED

    def feed(self, event: Event) -> None:
        """Take the next event. Raises what the attribution fold raises."""
        self.state = attribution_step(self.state, event, self._blobs)
        if isinstance(event.data, RequestSent) and self.state.last is not None and self.state.last.seq == event.seq:
            self._sent[event.data.turn or 0, event.data.step or 0] = self.state.last

    def explain(self, request: tuple[int, int], against: tuple[int, int] | None = None) -> Explanation:
        """Explain the request of step `request` (turn, step) by that of step `against`, by default the step before it that
        sent one. In whichever order they are named, the later one is compared with the earlier one. Raises
        TurnMismatchError for a step that sent none, and for one compared with itself."""
        places = list(self._sent)
        later = self._place(places, request)
        if against is None:
            if later == 0:
                return Explanation(self._rows(request)[-1], None, self.state)
            earlier = later - 1
        else:
            earlier, later = sorted((self._place(places, against), later))
        if earlier == later:
            raise TurnMismatchError(f"step {_name(request)} cannot be compared with itself", turn=request[0])
        return self._explained(places[earlier], places[later], adjacent=later == earlier + 1)

    def _explained(self, earlier: tuple[int, int], later: tuple[int, int], *, adjacent: bool) -> Explanation:
        before, rows = self._rows(earlier)[-1], self._rows(later)
        found = compare(self._sent[earlier], self._sent[later], self._blobs)
        course = course_of(found, moved=rows[-1].provider != before.provider)
        known = rows[0].cacheable if adjacent else prompt_tokens(before)
        between = [row for row in self.state.rows if before.seq < row.seq <= rows[-1].seq]
        row = replace(
            rows[-1],
            course=course,
            common=found.common,
            parting=found.parting,
            causes=tuple(cause for row in between for cause in row.causes),
            idle_ms=self._sent[later].time - self._sent[earlier].time,
            cacheable=known if course == "kept" else None,
            summary=max((row.summary for row in between if row.summary is not None), default=None),
        )
        return Explanation(row, before, self.state)

    def _rows(self, place: tuple[int, int]) -> list[RequestRow]:
        return [row for row in self.state.rows if (row.turn, row.step) == place]

    def _place(self, places: list[tuple[int, int]], wanted: tuple[int, int]) -> int:
        if wanted not in self._sent:
            raise TurnMismatchError(f"no request of step {_name(wanted)} is in this log", turn=wanted[0])
        return places.index(wanted)


def _name(place: tuple[int, int]) -> str:
    return f"{place[0]}.{place[1]}"
