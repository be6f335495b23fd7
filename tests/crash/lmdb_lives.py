"""LMDB alone, beside processes that are killed: `python -m tests.crash.lmdb_lives [--lives N] [--unlocked] [WAY...]`.

Processes open one data file, write, say the number of each commit, close, and begin again, until they are killed. Then the
file must have each commit that was said, and its numbers must go on. Each way has them do one thing more often than refold
does. They open and close it in their turn, as refold does; with `--unlocked` they leave that to LMDB, which loses commits.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import lmdb
from msgspec import Struct

from refold_storage.locks import TURN_SECONDS, OpeningTurn
from tests.crash.child import Ground
from tests.crash.children import Child, listen

WAYS: Final = ("openers", "closers", "growth", "readers", "twice")
"""What the processes do often: open and write a little; open and close at once; write more than the map holds; leave views
open; die two at one moment."""

ROUNDS: Final = 20
"""Rounds over one file."""

WAIT_S: Final = 20.0


class Found(Struct):
    """What came of one way: lives that were killed, commits that were said, those of them that the file lacks, files whose
    rows are not those of their number, and lives that LMDB refused something."""

    lives: int = 0
    said: int = 0
    lost: int = 0
    torn: int = 0
    refused: int = 0


class Round(Struct, frozen=True):
    """The data file of some lives, and how they are lived."""

    folder: Path
    way: str
    locked: bool


@contextmanager
def opened(given: Round) -> Generator[lmdb.Environment]:
    """Have the environment open within the block."""
    turn = OpeningTurn(given.folder)
    with turn.taken(TURN_SECONDS) if given.locked else nullcontext():
        environment = mapped(given)
    try:
        yield environment
    finally:
        with turn.taken(TURN_SECONDS) if given.locked else nullcontext():
            environment.close()
        turn.release()


def mapped(given: Round) -> lmdb.Environment:
    """Open it with a map that holds it, which others may be enlarging."""
    size = 1 << 16 if given.way == "growth" else 1 << 26
    while True:
        try:
            return lmdb.open(str(given.folder), size, sync=False, lib_version=0, max_readers=1024)
        except lmdb.MapResizedError:
            size *= 2


def commit(environment: lmdb.Environment, size: int) -> int:
    """Write the row of the next number, and the number; give it. The map grows and is followed."""
    while True:
        try:
            with environment.begin(write=True) as transaction:
                number = int(transaction.get(b"n") or b"0") + 1
                transaction.put(b"row %d" % number, b"%d " % number + bytes(size))
                transaction.put(b"n", b"%d" % number)
            return number
        except lmdb.MapFullError:
            environment.set_mapsize(environment.info()["map_size"] * 2)
        except lmdb.MapResizedError:
            environment.set_mapsize(0)


def live(given: Round, seed: str, descriptor: int) -> None:
    """Open, write, close, and so on."""
    rng = random.Random(seed)
    while True:
        with opened(given) as environment:
            views = [environment.begin() for _ in range(rng.randrange(4) if given.way == "readers" else 0)]
            if given.way == "readers":
                environment.reader_check()
            for _ in range(rng.randrange(2) if given.way == "closers" else rng.randrange(1, 6)):
                number = commit(environment, 1_500 if given.way == "growth" else 10)
                os.write(descriptor, b"%d\n" % number)
            for view in views:
                view.abort()


def examined(given: Round, descriptor: int) -> None:
    """Say the number that the file ends with, −1 where its rows are others than 1 to that number."""
    with opened(given) as environment, environment.begin() as transaction:
        number = int(transaction.get(b"n") or b"0")
        whole = all(
            (transaction.get(b"row %d" % one) or b"").startswith(b"%d " % one) for one in range(1, number + 1)
        ) and transaction.stat()["entries"] == number + (number > 0)
    os.write(descriptor, b"%d\n" % (number if whole else -1))


def one_round(given: Round, seed: str, known: int, found: Found) -> int:
    """Let three live; kill one, or two at once; the others go on, and are killed too. Then look at the file, which ended with
    the number `known`, and give its number."""
    errors, least = Ground(given.folder.parent), random.Random(f"{seed} least").randrange(1, 4)
    rng = random.Random(seed)
    children = [Child(errors, lambda out, n=n: live(given, f"{seed} {n}", out)) for n in range(3)]
    listen(children, lambda: children[0].lines >= least, WAIT_S)
    time.sleep(rng.random() * 0.005)
    dead = 2 if given.way == "twice" else 1
    for child in children[:dead]:
        os.kill(child.pid, signal.SIGKILL)
    rest = children[dead:]
    before = rest[0].lines
    listen(rest, lambda: rest[0].lines >= before + 3, WAIT_S)
    ends = [child.kill() for child in children]
    found.lives += len(children)
    found.refused += sum(end != -signal.SIGKILL for end in ends)
    said = [int(line) for child in children for line in child.data.split(b"\n")[:-1]]
    found.said += len(said)
    looker = Child(errors, lambda out: examined(given, out))
    if looker.over() != 0:
        found.torn += 1
        return known
    number = int(looker.data)
    found.torn += number < 0
    promised = {known, *said}
    found.lost += sum(one > number for one in promised) + len(said) + 1 - len(promised)
    return number


def lives(way: str, wanted: int, seed: str, *, locked: bool) -> Found:
    """Have `wanted` processes killed in one way, over files of a few rounds each."""
    found = Found()
    while found.lives < wanted:
        root = Path(tempfile.mkdtemp(prefix="refold-lmdb-"))
        given, known = Round(root / "data", way, locked), 0
        given.folder.mkdir()
        for number in range(ROUNDS):
            known = one_round(given, f"{seed} {way} {found.lives} {number}", known, found)
        shutil.rmtree(root)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Live in each way and print what came of it; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.lmdb_lives")
    parser.add_argument("ways", metavar="WAY", nargs="*", help=f"some of {', '.join(WAYS)} (default: all)")
    parser.add_argument("--lives", type=int, default=600, help="of each way")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--unlocked", action="store_true", help="leave opening and closing to LMDB's own lock")
    options = parser.parse_args(arguments)
    wrong = 0
    for way in options.ways or WAYS:
        found = lives(way, options.lives, options.seed, locked=not options.unlocked)
        wrong += found.lost + found.torn + found.refused
        sys.stdout.write(
            f"{way}: {found.lives} lives, {found.said} commits said, {found.lost} lost, {found.torn} files torn, "
            f"{found.refused} lives refused\n"
        )
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
