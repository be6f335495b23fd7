"""Kill: a child lives, alone or beside another one, and is killed; then a third process looks at what was left.

A neighbour works on the same store and goes on when the other one is dead, whatever that held: the store's write lock, a
session. It is killed too, somewhat later.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

import msgspec
from msgspec import Struct

from tests.crash.check import Examined, Look, open_damaged
from tests.crash.child import Ground, Life, run
from tests.crash.children import Child, errors_of, listen
from tests.crash.pipe import now_ms
from tests.crash.points import Point
from tests.crash.told import Told

PATIENCE_S = 10.0
"""How long a child may take to get to its fail point, before it is killed wherever it is."""

CHECK_S = 120.0
"""How long a look at a store may take."""

NEIGHBOUR_S = 20.0
"""How long a neighbour may take to be told so many further messages, when the other one is dead."""

NEIGHBOUR_TOLD = 20

ALONE = ("closers", "wire", "approval", "turn", "input")
"""Beginnings of the fail points which a neighbour would take from a life, by opening its sessions."""


TOGETHER = "opening"
"""Beginning of the fail points that are for two: a neighbour opens the store at the same moment."""


class Plan(Struct, frozen=True):
    """How a child is to end: at a fail point, after `lines` were read from it, or after `seconds`. `cold`: nobody opens what
    it left for writing before the next child does. `last`: no kill of this store follows. `beside`: with a neighbour.
    `tries`: how many further lives are to get to the fail point if this one does not."""

    seed: str
    point: Point | None = None
    nth: int = 1
    lines: int = 1 << 30
    seconds: float = PATIENCE_S
    cold: bool = False
    last: bool = False
    beside: bool = False
    tries: int = 4


def plan_of(seed: str, point: Point | None, *, cold: bool, last: bool) -> Plan:
    """Draw the rest of a plan."""
    rng = random.Random(f"{seed} plan")
    beside = rng.random() < 0.25
    if point is not None:
        beside = point.name.startswith(TOGETHER) or (beside and not point.name.startswith(ALONE))
        return Plan(seed, point, rng.randrange(1, point.most + 1), cold=cold, last=last, beside=beside)
    if rng.random() < 0.5:
        return Plan(seed, lines=rng.randrange(10, 900), cold=cold, last=last, beside=beside)
    return Plan(seed, seconds=rng.uniform(0.02, 0.6), cold=cold, last=last, beside=beside)


def kill_one(ground: Ground, told: Told, plan: Plan, *, sabotage: bool = False) -> Examined:
    """Let a child live and die by the plan; take in what it told, and give what is found then. One that did not get to its
    fail point is looked at cold: the next try may need what it left open."""
    told.begin()
    child = _alive(ground, Life(plan.seed, plan.point, plan.nth, sabotage))
    beside = [_alive(ground, Life(f"{plan.seed}n"))] if plan.beside else []
    listen([child, *beside], lambda: child.lines >= plan.lines, plan.seconds)
    killed = now_ms()
    faults: list[str] = []
    if child.kill() != -signal.SIGKILL:
        faults.append(f"the child ended by itself: {errors_of(ground)}")
    for neighbour in beside:
        before = neighbour.told
        if not listen([neighbour], lambda: neighbour.told >= before + NEIGHBOUR_TOLD, NEIGHBOUR_S):  # noqa: B023 - used here
            faults.append("a neighbour stood still after the kill")
        if neighbour.kill() != -signal.SIGKILL:
            faults.append(f"the neighbour ended by itself: {errors_of(ground)}")
    for one in (child, *beside):
        told.hear(one.data)
    killed = killed if told.hit is None else told.hit[1]
    cold = plan.cold or (plan.point is not None and told.hit is None)
    found = look(ground, lambda: open_damaged(ground, told, killed, Look(cold, plan.last, plan.seed)))
    if "Traceback" in errors_of(ground):
        faults.append(f"a process complained: {errors_of(ground)}")
    found.faults += faults
    return found


def look(ground: Ground, looking: Callable[[], Examined]) -> Examined:
    """Look at a store in a process of its own."""

    def work(descriptor: int) -> None:
        with os.fdopen(descriptor, "wb") as out:
            out.write(msgspec.msgpack.encode(looking()))

    looker = Child(ground, work)
    listen([looker], lambda: False, CHECK_S)
    if not looker.ended:
        os.kill(looker.pid, signal.SIGKILL)
    if looker.over() != 0:
        return Examined([f"the look at the store failed: {errors_of(ground)}"])
    return msgspec.msgpack.decode(looker.data, type=Examined)


def _alive(ground: Ground, life: Life) -> Child:
    return Child(ground, lambda descriptor: run(ground, life, descriptor))
