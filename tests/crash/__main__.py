"""`python -m tests.crash --kills N --seed S [--first STORE] [--at-once C] [--json]`: kill that often, in each
of C campaigns at once, and say what was lost.

The last line is `N kills, F facts, L lost`. Exit code 1 where anything is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.crash.campaign import Outcome, Wanted, campaign, campaigns
from tests.crash.points import POINTS


def quantiles(numbers: Sequence[int]) -> dict[str, int]:
    """Give median, 95th percentile and largest."""
    ordered = sorted(numbers) or [0]
    return {"median": ordered[len(ordered) // 2], "p95": ordered[int(len(ordered) * 0.95)], "max": ordered[-1]}


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def quiet(_: str) -> None:
    """Print nothing of what is on its way."""


def report(outcome: Outcome) -> None:
    """Print what a campaign came to."""
    for failure in outcome.failures:
        say(f"\nkill {failure.kill} failed; its store is in {failure.store}; again: {failure.again}")
        for fault in failure.faults:
            say(f"  {fault}")
    say("\naccepted and not on disk at the kill:")
    for name, numbers in (("events", outcome.events), ("ms", outcome.ms)):
        figures = quantiles(numbers)
        say(f"  {name}: median {figures['median']}, p95 {figures['p95']}, max {figures['max']}")
    say(f"  the longest in life {outcome.slowest[1]}")
    say("lives that ended at a fail point:")
    for point in POINTS:
        say(f"  {outcome.hits[point.name]:4}  {point.name}")
    say(f"  {outcome.missed:4}  (did not get there)")
    say(f"kills with a neighbour that went on: {outcome.beside}")
    say(f"requests that continue the bytes of the one before: {outcome.continued}")
    say(f"regions that became a summary: {outcome.compacted}, results that were cut: {outcome.cut}")
    lost = sum(len(failure.faults) for failure in outcome.failures)
    say(f"{outcome.kills} kills, {outcome.facts} facts, {lost} lost")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and print it; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="Kill refold, and look for what it lost.")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first store")
    parser.add_argument("--at-once", type=int, default=1, help="campaigns beside each other, with seeds from --seed on")
    parser.add_argument("--folder", type=Path, help="where stores are made; those of failed kills stay")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--sabotage", action="store_true", help="have refold promise too early, to see that it is noticed")
    options = parser.parse_args(arguments)
    wanted = Wanted(options.kills, options.seed, options.first, options.folder, options.sabotage)
    tell = quiet if options.json else say
    outcome = campaign(wanted, tell) if options.at_once == 1 else campaigns(wanted, options.at_once, tell)
    if options.json:
        figures = {"accepted": {"events": quantiles(outcome.events), "ms": quantiles(outcome.ms)}}
        say(json.dumps({**json.loads(msgspec.json.encode(outcome)), **figures}))
    else:
        report(outcome)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
