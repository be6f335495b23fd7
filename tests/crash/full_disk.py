"""`python -m tests.crash.full_disk [--moments N] [--seed S] [--way tmpfs|limit]`: the disk of a working daemon becomes
full at N different moments, stays so until the daemon has said it, and has space again; then the same daemon must go on.

`tmpfs` fills a file system of 4 MiB of its own (as root, where the machine lets us mount one); `limit` has no file become
longer than the data file is. Nothing that was told may be lost, every refusal names the cause, and the next turn completes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from tests.crash.check import Examined, Look, open_damaged
from tests.crash.child import Ground, place_model, serve, tell_of_accepted
from tests.crash.children import Child, errors_of
from tests.crash.kill import look
from tests.crash.model import SeededModel
from tests.crash.pipe import Pipe, now_ms
from tests.crash.script import Person
from tests.crash.told import Told

STEP: Final = 9
"""Accepted batches between two moments."""

DISK: Final = "4m"
WAIT_S: Final = 60.0


class Disk:
    """The disk under a store. `accepted` is called for each accepted batch, and fills it at the chosen one."""

    def __init__(self, ground: Ground, moment: int, way: str) -> None:
        self.full = False
        self._ground = ground
        self._left = moment
        self._way = way
        self._ballast = ground.root / "ballast"

    def accepted(self) -> None:
        """Count; fill the disk when it is time."""
        self._left -= 1
        if self._left == 0:
            self.full = True
            if self._way == "limit":
                size = (self._ground.store / "data.mdb").stat().st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            else:
                self._fill()

    def free(self) -> None:
        """There is space again."""
        if self._way == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        else:
            self._ballast.unlink()

    def _fill(self) -> None:
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        size = 1 << 16
        while size:
            try:
                os.write(file, bytes(size))
            except OSError:  # no room for so much
                size //= 2
        os.close(file)


class Sufferer:
    """Somebody who works while the disk becomes full, notices, and goes on when there is space."""

    def __init__(self, person: Person, disk: Disk) -> None:
        self.client = person.client
        self._person = person
        self._disk = disk

    async def live(self) -> None:
        """Do so. Raises AssertionError where refold does not say what is wrong, or does not go on."""
        person, disk = self._person, self._disk
        await person.start()
        await person.work(lambda: disk.full)
        person.aim = "map"
        async with asyncio.timeout(WAIT_S):
            await person.work(self._noticed)
        disk.free()
        for error in self._refusals():
            assert "space" in error["message"], error
        async with asyncio.timeout(WAIT_S):
            went_on = [await self._goes_on(session) for session in tuple(person.open)]
        assert any(went_on)
        assert any(one["kind"] == "cleared" for one in self.client.troubles)

    async def _goes_on(self, session: str) -> bool:
        """Go on with a session. False for one that was closed while the disk was full, and of which nothing was stored."""
        if await self.client.ask("session/open", session=session) is None:
            assert self.client.errors[-1]["data"]["kind"] == "session.unknown", self.client.errors[-1]
            return False
        flushed = await self.client.ask("session/flush", session=session)
        assert flushed is not None, self.client.errors[-1]
        await self.client.ask("turn/interrupt", session=session, turn=1)
        content = [{"type": "text", "text": "And now?"}]
        begun = await self.client.ask("turn/start", session=session, content=content, ifRunning="queue")
        assert begun is not None, self.client.errors[-1]
        ended = await self.client.ask("turn/wait", session=session, input=begun["input"])
        assert ended is not None, self.client.errors[-1]
        return True

    def _refusals(self) -> list[Any]:
        return [error for error in self.client.errors if error.get("data", {}).get("kind") == "log.full"]

    def _noticed(self) -> bool:
        """Whether it was said: to one who asked for something, and to who listens."""
        return len(self._refusals()) >= 3 and any(one["kind"] == "log.full" for one in self.client.troubles)


class FullDisks(Struct):
    """What came of all moments."""

    moments: int = 0
    facts: int = 0
    faults: list[str] = field(default_factory=list[str])


@contextmanager
def small_disk() -> Generator[Path | None]:
    """A file system of 4 MiB, None where the machine does not let us mount one."""
    place = Path(tempfile.mkdtemp(prefix="refold-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
        shutil.rmtree(place)


def suffer(place: Path, seed: int, number: int, way: str) -> tuple[Told, Examined]:
    """Fill the disk at one moment, in a process of its own; give what was told and what is found afterwards."""
    ground, told = Ground(place / f"moment-{number}"), Told()
    ground.prepare()

    def work(descriptor: int) -> None:
        pipe, rng = Pipe(descriptor), random.Random(f"{seed} {number}")
        disk = Disk(ground, 1 + number * STEP, way)
        place_model(SeededModel(pipe, rng, f"{seed}.{number}"))
        tell_of_accepted(pipe, disk.accepted)
        asyncio.run(serve(ground, Sufferer(Person(pipe, rng, str(ground.workspace)), disk)))

    child = Child(ground, work)
    code = child.over()
    told.hear(child.data)
    found = look(ground, lambda: open_damaged(ground, told, now_ms(), Look(cold=False, last=True, seed=str(seed))))
    if code != 0 or "Traceback" in errors_of(ground):
        found.faults.append(f"the daemon and its client ended in {errors_of(ground)}")
    shutil.rmtree(ground.root)
    return told, found


def full_disks(moments: int, seed: int, way: str, say: Callable[[str], None]) -> FullDisks:
    """Fill the disk at `moments` different moments, each of another daemon. Where no file system can be mounted, the way is
    `limit`."""
    outcome = FullDisks()
    with small_disk() as disk:
        place = disk if way == "tmpfs" and disk is not None else Path(tempfile.mkdtemp(prefix="refold-disk-"))
        for number in range(moments):
            told, found = suffer(place, seed, number, "limit" if place is not disk else "tmpfs")
            outcome.moments += 1
            outcome.facts += told.total
            outcome.faults += [f"moment {number}: {fault}" for fault in found.faults]
            say(f"moment {number}: {told.total} facts, {len(found.faults)} faults")
        if place is not disk:
            shutil.rmtree(place)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print what came of it; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.full_disk")
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=("tmpfs", "limit"), default="tmpfs")
    options = parser.parse_args(arguments)

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    outcome = full_disks(options.moments, options.seed, options.way, say)
    for fault in outcome.faults:
        say(fault)
    say(f"{outcome.moments} moments, {outcome.facts} facts, {len(outcome.faults)} lost")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
