"""Owns one kill: a child is forked, lives, and is killed; another is forked that looks at what it left.

Forked, because a process that has everything imported costs milliseconds then. The parent itself never opens a store and
runs no event loop, so there is nothing that a child could inherit half-way.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.crash.check import Examined, Look, examine
from tests.crash.child import Ground, Life, run
from tests.crash.pipe import now_ms
from tests.crash.points import Point
from tests.crash.told import Told

PATIENCE_S = 4.0
"""How long a child may take to get to its fail point, before it is killed wherever it is."""

CHECK_S = 120.0
"""How long a look at a store may take."""


class Plan(Struct, frozen=True):
    """How a child is to end: at a fail point, after `lines` were read from it, or after `seconds`. `cold`: nobody opens what
    it left for writing before the next child does. `last`: no kill of this store follows."""

    seed: str
    point: Point | None = None
    nth: int = 1
    lines: int | None = None
    seconds: float = PATIENCE_S
    cold: bool = False
    last: bool = False


def plan_of(seed: str, point: Point | None, *, cold: bool, last: bool) -> Plan:
    """Draw the rest of a plan."""
    rng = random.Random(f"{seed} plan")
    if point is not None:
        return Plan(seed, point, rng.randrange(1, point.most + 1), cold=cold, last=last)
    if rng.random() < 0.5:
        return Plan(seed, lines=rng.randrange(10, 900), cold=cold, last=last)
    return Plan(seed, seconds=rng.uniform(0.02, 0.6), cold=cold, last=last)


def kill_one(ground: Ground, told: Told, plan: Plan, *, sabotage: bool = False) -> Examined:
    """Let a child live and die by the plan; take in what it told, and give what is found then."""
    told.begin()
    life = Life(plan.seed, plan.point, plan.nth, sabotage)
    child, pipe = forked(ground, lambda descriptor: run(ground, life, descriptor))
    data = _heard(pipe, plan)
    killed = now_ms()
    os.kill(child, signal.SIGKILL)
    data += _rest(pipe)
    _, status = os.waitpid(child, 0)
    told.hear(data)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        return Examined([f"the child ended by itself: {errors_of(ground)}"])
    killed = killed if told.hit is None else told.hit[1]
    found = look(ground, lambda: examine(ground, told, killed, Look(plan.cold, plan.last, plan.seed)))
    if "Traceback" in errors_of(ground):
        found.faults.append(f"a process complained: {errors_of(ground)}")
    return found


def look(ground: Ground, looking: Callable[[], Examined]) -> Examined:
    """Look at a store in a process of its own."""

    def work(descriptor: int) -> None:
        with os.fdopen(descriptor, "wb") as out:
            out.write(msgspec.msgpack.encode(looking()))

    child, pipe = forked(ground, work)
    timer = Plan("", seconds=CHECK_S)
    data = _heard(pipe, timer)
    if not _ended(pipe):
        os.kill(child, signal.SIGKILL)
    os.close(pipe)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        return Examined([f"the look at the store failed: {errors_of(ground)}"])
    return msgspec.msgpack.decode(data, type=Examined)


def forked(ground: Ground, work: Callable[[int], None]) -> tuple[int, int]:
    """Do `work` in a forked child, which is given the writing end of a pipe; give its pid and the reading end."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        os.close(reading)
        errors = os.open(ground.root / "errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        work(writing)
    except BaseException:  # noqa: BLE001 - it must not go on as the parent does
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def errors_of(ground: Ground) -> str:
    """Give the end of what children said on standard error."""
    path = ground.root / "errors.txt"
    return path.read_text()[-2_000:] if Path(path).exists() else ""


def _heard(pipe: int, plan: Plan) -> bytes:
    """Read until it is time: so many lines, so many seconds, or the child is gone."""
    deadline = time.monotonic() + plan.seconds
    pieces: list[bytes] = []
    lines = 0
    while (left := deadline - time.monotonic()) > 0 and (plan.lines is None or lines < plan.lines):
        if not select.select([pipe], [], [], left)[0]:
            break
        piece = os.read(pipe, 1 << 16)
        if not piece:
            break
        pieces.append(piece)
        lines += piece.count(b"\n")
    return b"".join(pieces)


def _ended(pipe: int) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


def _rest(pipe: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(pipe, 1 << 16):
        pieces.append(piece)
    os.close(pipe)
    return b"".join(pieces)
