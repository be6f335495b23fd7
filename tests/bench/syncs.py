"""How often a text turn waits for the disk, by a trace of the daemon's system calls.

`python -m tests.bench.syncs [--json] [--turns N]`: commits, syncs and synchronous writes of each turn, from the reading of
`turn/start` to the reply of `turn/wait`, and how many of all were made by the event loop's thread. The first turn also
loads what speaks to the provider, so a background commit may fall into it; the median is that of the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path

from tests.support.chat_stream import reply
from tests.support.daemons import SERVE, Place, new_session
from tests.support.fake_provider import FakeProvider, answer
from tests.support.system_calls import HOW_TO_GET_STRACE, Call, can_trace, commits, read_calls, syncs, traced


def main() -> int:
    """Measure and print. Code 2 where nothing can be traced."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    if not can_trace():
        print(HOW_TO_GET_STRACE, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Place(Path(folder)), options.turns))
    print(json.dumps(figures) if options.json else "\n".join(f"{name:>34}: {value}" for name, value in figures.items()))
    return 0


async def measure(place: Place, turns: int) -> dict[str, object]:
    """Run the turns and count."""
    trace = place.root / "trace.txt"
    async with FakeProvider(*[answer(reply("ok"))] * turns) as provider:
        place.provider(provider.base_url)
        async with place.daemon(traced(SERVE, trace)) as client:
            loop_thread, session = client.pid, await new_session(client, place)
            for _ in range(turns):
                await client.prompt(session, "go")
    calls = read_calls(trace.read_text())
    made, waits = commits(calls), syncs(calls)
    begins = [call.ended for call in calls if call.name == "read" and r"\"method\":\"turn/start\"" in call.text]
    ends = [call.began for call in calls if call.name == "write" and r"\"result\":{\"type\":\"turn/end\"" in call.text]
    spans = list(zip(begins, ends, strict=True))
    per_turn = [sum(begin < commit.ended < end for commit in made) for begin, end in spans]
    return {
        "commits of the first turn": per_turn[0],
        "commits of a turn, median": statistics.median(per_turn[1:] or per_turn),
        "commits of a turn, most": max(per_turn[1:] or per_turn),
        "syncs of a turn, median": _median(waits, spans, written=False),
        "synchronous writes of a turn, median": _median(waits, spans, written=True),
        "of all, by the loop's thread": sum(call.thread == loop_thread for call in waits),
    }


def _median(waits: list[Call], spans: list[tuple[int, int]], *, written: bool) -> float:
    chosen = [call for call in waits if ("write" in call.name) == written]
    return statistics.median(sum(begin < call.ended < end for call in chosen) for begin, end in spans[1:] or spans)


if __name__ == "__main__":
    sys.exit(main())
