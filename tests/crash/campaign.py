"""Many kills in a row, and what they come to. A store lives through some kills, then another one is made.

Given the seed, the same kills come in the same order, as far as scheduling allows: which store, which script, which place.
"""

from __future__ import annotations

import functools
import os
import pickle
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from tests.crash.check import Examined
from tests.crash.child import Ground
from tests.crash.children import Child, errors_of
from tests.crash.kill import Plan, kill_one, plan_of
from tests.crash.points import POINTS, Point
from tests.crash.told import Told

STORE_KILLS: Final = 8
"""Kills that one store lives through."""


OPENING: Final = ("closers", "wire: an open")
"""Fail points for which the life before must leave something open."""


class Wanted(Struct, frozen=True):
    """How often to kill, from which seed, beginning with which store; in which folder stores are made (None: the system's
    for temporary files); whether children promise what they have not done, to see that it is noticed."""

    kills: int
    seed: int
    first: int = 0
    folder: Path | None = None
    sabotage: bool = False


class Failure(Struct, frozen=True):
    """A kill after which something was not as it must be: where the store is kept, how to repeat it, what was found."""

    kill: int
    store: str
    again: str
    faults: tuple[str, ...]


class Outcome(Struct):
    """What a campaign came to. `events` and `ms` have a number for each kill of a process that was alone, which all but
    `beside` were: what was accepted and not on disk; `hits` says
    how often a life ended at each fail point, `missed` how many lives ended before they got to theirs, `continued` how many
    requests continued the bytes of the one before, `compacted` how many regions became a summary, `cut` how many results were
    shortened, `slowest` is the largest of `ms` and the life in which it was: seed, store, place."""

    kills: int = 0
    facts: int = 0
    continued: int = 0
    compacted: int = 0
    cut: int = 0
    beside: int = 0
    events: list[int] = field(default_factory=list[int])
    ms: list[int] = field(default_factory=list[int])
    hits: Counter[str] = field(default_factory=Counter[str])
    missed: int = 0
    slowest: tuple[int, str] = (0, "")
    failures: list[Failure] = field(default_factory=list[Failure])


def plans(seed: int, store: int) -> list[Plan]:
    """Give the kills of store number `store`. Every second one is at a fail point, in their order over all stores."""
    rng = random.Random(f"{seed} {store}")
    points: list[Point | None] = []
    for place in range(STORE_KILLS):
        at = (store * STORE_KILLS + place) // 2
        points.append(POINTS[at % len(POINTS)] if place % 2 else None)
    closing = [point is not None and point.name.startswith(OPENING) for point in [*points[1:], None]]
    return [
        plan_of(
            f"{seed}.{store}.{place}",
            point,
            cold=closing[place] or rng.random() < 0.3,
            last=place == STORE_KILLS - 1,
        )
        for place, point in enumerate(points)
    ]


def campaign(wanted: Wanted, told: Callable[[str], None]) -> Outcome:
    """Kill as often as wanted; `told` is given a line about each store."""
    outcome = Outcome()
    store = wanted.first
    while outcome.kills < wanted.kills:
        if not _store(wanted, store, outcome):
            told(f"store {store}: {outcome.failures[-1].faults[0]}")
        told(f"{outcome.kills} kills, {outcome.facts} facts, {len(outcome.failures)} failures")
        store += 1
    return outcome


def campaigns(wanted: Wanted, number: int, told: Callable[[str], None]) -> Outcome:
    """Run so many campaigns at once, each in a process of its own and with a seed of its own, from the wanted one upwards:
    kills beside load, at moments that a campaign alone does not have. Give what they come to together."""
    ground = Ground(Path(tempfile.mkdtemp(prefix="refold-crash-", dir=wanted.folder)))
    children = [Child(ground, partial(_apart, replace(wanted, seed=wanted.seed + place))) for place in range(number)]
    ended: list[Outcome] = []
    for child in children:
        if child.over() != 0:
            raise RuntimeError(errors_of(ground))
        ended.append(pickle.loads(child.data))
        told(f"{ended[-1].kills} kills, {ended[-1].facts} facts, {len(ended[-1].failures)} failures")
    shutil.rmtree(ground.root)
    return functools.reduce(_together, ended)


def _apart(wanted: Wanted, descriptor: int) -> None:
    with os.fdopen(descriptor, "wb") as out:
        pickle.dump(campaign(wanted, lambda _: None), out)


def _together(one: Outcome, two: Outcome) -> Outcome:
    return Outcome(
        one.kills + two.kills,
        one.facts + two.facts,
        one.continued + two.continued,
        one.compacted + two.compacted,
        one.cut + two.cut,
        one.beside + two.beside,
        one.events + two.events,
        one.ms + two.ms,
        one.hits + two.hits,
        one.missed + two.missed,
        max(one.slowest, two.slowest),
        one.failures + two.failures,
    )


def _store(wanted: Wanted, store: int, outcome: Outcome) -> bool:
    """Kill along the plans over one store; stop at the first failure, and keep the store then."""
    if wanted.folder is not None:
        Path(wanted.folder).mkdir(parents=True, exist_ok=True)
    ground, told = Ground(Path(tempfile.mkdtemp(prefix="refold-crash-", dir=wanted.folder))), Told()
    ground.prepare()
    coming = plans(wanted.seed, store)
    number = 0
    while coming and outcome.kills < wanted.kills:
        plan, number = coming.pop(0), number + 1
        found = kill_one(ground, told, plan, sabotage=wanted.sabotage)
        told.settle(found.heads)
        _count(outcome, plan, found, told)
        if plan.point is not None and told.hit is None and plan.tries:
            coming.insert(0, replace(plan, seed=f"{plan.seed}+", tries=plan.tries - 1))
        if found.faults:
            outcome.facts += told.total
            again = f"python -m tests.crash --seed {wanted.seed} --first {store} --kills {number}"
            outcome.failures.append(Failure(outcome.kills, str(ground.root), again, tuple(found.faults)))
            return False
    outcome.facts += told.total
    shutil.rmtree(ground.root)
    return True


def _count(outcome: Outcome, plan: Plan, found: Examined, told: Told) -> None:
    outcome.kills += 1
    outcome.continued += found.continued
    outcome.compacted += found.compacted
    outcome.cut += found.cut
    if plan.beside:  # its neighbour may have gone on with its sessions
        outcome.beside += 1
    else:
        outcome.events.append(found.lost.events)
        outcome.ms.append(found.lost.ms)
        outcome.slowest = max(outcome.slowest, (found.lost.ms, plan.seed))
    if told.hit is not None:
        outcome.hits[told.hit[0]] += 1
    outcome.missed += plan.point is not None and told.hit is None
