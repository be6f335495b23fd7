"""What kills lose where four campaigns run at once on one machine: `python -m tests.bench.kills [--kills N] [--json]`.

Each campaign kills N times (60 unless told), every second time at a fail point; 10,000 kills are `--kills 2500`. Says the
seconds that it took, kills, facts and what was lost; code 1 where anything was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.crash.__main__ import say
from tests.crash.campaign import Wanted, campaigns

AT_ONCE = 4


def main() -> int:
    """Kill and print. Code 1 where something was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kills", type=int, default=60, help="in each of the four campaigns")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    outcome = campaigns(Wanted(options.kills, options.seed), AT_ONCE, lambda _: None)
    faults = [f"{failure.again}: {fault}" for failure in outcome.failures for fault in failure.faults]
    figures = {
        "campaigns at once": AT_ONCE,
        "kills": outcome.kills,
        "facts": outcome.facts,
        "lost": len(faults),
        "seconds": round(time.monotonic() - began),
    }
    say(json.dumps(figures) if options.json else "\n".join(f"{name:>20}: {value}" for name, value in figures.items()))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
