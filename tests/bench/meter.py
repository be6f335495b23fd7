"""CPU of one read of the meter after each turn, as a session grows, and of reading the whole log at once.

`python -m tests.bench.meter [TURNS]` writes turns of one step with two dozen chunks each, and tells the cost per
read over a hundred turns at an eighth, a quarter, a half and the whole of the log, with the exponent by which it grows.
"""

from __future__ import annotations

import math
import sys
import time

from refold_protocol.session.messages import BlockEnd, BlockStart, FinishChunk, TextDelta, Usage
from refold_protocol.session.meter_profile import MeterProfile
from refold_server.meters import ModelTokenMeter
from tests.support.logs import Log

PROFILE = MeterProfile("engine/chain", 1_000_000)
SPAN = 100


class Paper:
    """A log whose end moves."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self.tail = -1

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give lines, by the thousand: `max_bytes` is not counted out."""
        del max_bytes, chunks
        return self._lines[first : min(self.tail if last is None else last, first + 999) + 1]


def written(turns: int) -> tuple[list[bytes], list[int]]:
    """Give the lines of a log, and the seq at which each turn ends."""
    log, ends = Log(), list[int]()
    for number in range(turns):
        log.turn(f"Question {number}: " + "why? " * 20)
        log.step()
        log.stream(BlockStart(0, "text"), *(TextDelta(0, " a few words") for _ in range(20)), BlockEnd(0), FinishChunk("stop"))
        log.reply(" a few words" * 20, usage=Usage(100 + number * 90, 60))
        log.end_step()
        log.end_turn()
        ends.append(log.events[-1].seq)
    return log.lines, ends


def main() -> None:
    turns = max(8 * SPAN, int(sys.argv[1]) if len(sys.argv) > 1 else 4_000)
    lines, ends = written(turns)
    log, meter = Paper(lines), ModelTokenMeter(PROFILE)
    places = [turns // 8, turns // 4, turns // 2, turns]
    costs: dict[int, float] = {}
    for number, end in enumerate(ends, 1):
        log.tail = end
        began = time.process_time()
        meter.measure(log)
        meter.measure_surface(log)
        spent = time.process_time() - began
        for place in places:
            if place - SPAN < number <= place:
                costs[place] = costs.get(place, 0.0) + spent
    for place in places:
        spent = costs[place] / SPAN * 1e6
        print(f"turns {place - SPAN + 1:6}-{place:6}: {spent:7.0f} CPU µs a read of {len(lines) // turns} events")
    print(f"exponent of a read over the log's length: {math.log(costs[places[-1]] / costs[places[0]], 8):+.2f}")
    began = time.process_time()
    cold = ModelTokenMeter(PROFILE)
    cold.measure(log)
    spent = time.process_time() - began
    print(f"whole log of {len(lines):,} events at once: {spent:.2f} CPU s, {spent / len(lines) * 1e6:.1f} µs an event")


if __name__ == "__main__":
    main()
