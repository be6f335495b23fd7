"""CPU of one read of the meter after each turn, as a session grows, and of reading the whole log at once.

`python -m tests.bench.meter [TURNS]` writes turns of one step with two dozen chunks each, and tells the cost per
read over a hundred turns at an eighth, a quarter, a half and the whole of the log, with the exponent by which it grows.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator

from refold_protocol.session.events import Event
from refold_protocol.session.messages import BlockEnd, BlockStart, FinishChunk, TextDelta, Usage
from refold_protocol.session.session_state import NO_EVENTS, fold_all
from refold_protocol.session.token_estimate import MeterProfile
from refold_server.requests.session_meters import ModelTokenMeter
from tests.support.logs import Log

PROFILE = MeterProfile("engine/chain", 1_000_000)
SPAN = 100


class OpenLog:
    """A log that is open, with its state. Its own handle."""

    def __init__(self) -> None:
        self.folds = NO_EVENTS
        self._events: list[Event] = []

    @property
    def handle(self) -> OpenLog:
        """What gives its events."""
        return self

    def read(self, first: int, last: int | None = None) -> Iterator[Event]:
        """Iterate over events."""
        return iter(self._events[first : None if last is None else last + 1])

    def grow(self, events: list[Event]) -> None:
        """Append a turn."""
        self._events += events
        self.folds = fold_all(events, self.folds)


def written(turns: int) -> list[list[Event]]:
    """Give the events of a log, by turns."""
    log, found = Log(), list[list[Event]]()
    for number in range(turns):
        begins = len(log.events)
        log.turn(f"Question {number}: " + "why? " * 20)
        log.step()
        log.stream(BlockStart(0, "text"), *(TextDelta(0, " a few words") for _ in range(20)), BlockEnd(0), FinishChunk("stop"))
        log.reply(" a few words" * 20, usage=Usage(100 + number * 90, 60))
        log.end_step()
        log.end_turn()
        found.append(log.events[begins:])
    return found


def main() -> None:
    turns = max(8 * SPAN, int(sys.argv[1]) if len(sys.argv) > 1 else 4_000)
    written_turns = written(turns)
    log, meter = OpenLog(), ModelTokenMeter(PROFILE)
    places = [turns // 8, turns // 4, turns // 2, turns]
    costs: dict[int, float] = {}
    for number, events in enumerate(written_turns, 1):
        log.grow(events)
        began = time.process_time()
        meter.measure(log)
        meter.measure_surface(log)
        spent = time.process_time() - began
        for place in places:
            if place - SPAN < number <= place:
                costs[place] = costs.get(place, 0.0) + spent
    for place in places:
        spent = costs[place] / SPAN * 1e6
        print(f"turns {place - SPAN + 1:6}-{place:6}: {spent:7.0f} CPU µs a read of {log.folds.revision // turns} events")
    print(f"exponent of a read over the log's length: {math.log(costs[places[-1]] / costs[places[0]], 8):+.2f}")
    began = time.process_time()
    cold = ModelTokenMeter(PROFILE)
    cold.measure(log)
    spent = time.process_time() - began
    print(f"whole log of {log.folds.revision:,} events at once: {spent:.2f} CPU s")


if __name__ == "__main__":
    main()
