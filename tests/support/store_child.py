"""Other process in tests of the store: `python -m tests.support.store_child COMMAND FOLDER [ARGUMENT]`.

It says `ready` or a number a line on standard output, does a further step for each line on standard input, and ends when
that is closed. `StoreChild` is the parent's side.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

from refold_protocol.errors import (
    LogBusyError,
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionNotFoundError,
)
from refold_protocol.ids import SessionId
from refold_storage import store_opening as opening
from refold_storage.interface import Handle, Store
from refold_storage.lmdb_store import open_store
from refold_storage.locks import OpeningTurn, StoreLock, occupy
from refold_storage.store import LmdbStore
from refold_storage.store_compaction import compact_store
from refold_storage.store_format import LOCK_FILE
from tests.support.stores import NEW, SESSION, chunks, filled, new, new_uuid, prompt, tool_result


class StoreChild:
    """A child process with a store open. It is ended by its pid."""

    def __init__(self, command: str, folder: Path, argument: object = "") -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.support.store_child", command, str(folder), str(argument)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._popen.pid

    def __enter__(self) -> StoreChild:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()

    def answer(self) -> str:
        """Wait for the next line; empty at the end."""
        assert self._popen.stdout is not None
        return self._popen.stdout.readline().strip()

    def ask(self) -> str:
        """Let the child do a further step; give what it says."""
        assert self._popen.stdin is not None
        self._popen.stdin.write("\n")
        self._popen.stdin.flush()
        return self.answer()

    def rest(self) -> list[str]:
        """Give all that it says until its end."""
        assert self._popen.stdout is not None
        return self._popen.stdout.read().split("\n")[:-1]

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._popen.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self._popen.wait()

    def ended(self) -> bool:
        """Tell whether it has ended."""
        return self._popen.poll() is not None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


def say(word: object) -> None:
    """Answer the parent."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def asked() -> bool:
    """Wait for the parent; False when it is done with us."""
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return line != ""


async def writable(store: Store) -> Handle:
    """Open the session for writing, or create it."""
    try:
        return await store.open(SESSION, "write")
    except SessionNotFoundError:
        return await store.create(NEW)


async def write(store: LmdbStore, argument: str) -> None:
    """Append and flush `argument` chunks at each step; say the durable seq."""
    handle = await writable(store)
    say(handle.tail)
    while await asked():
        handle.append(chunks(int(argument)))
        say(await handle.flush())


async def accept(store: LmdbStore, argument: str) -> None:
    """Append without a flush; the background commit does the rest. Say the durable seq whenever it rises."""
    handle = await writable(store)
    handle.watch_durable(say)
    handle.append(chunks(int(argument)))
    await asked()
    os.kill(os.getpid(), signal.SIGKILL)


async def read(store: LmdbStore, argument: str) -> None:
    """Say the tail after each refresh, `gone` when the session was deleted."""
    handle = await store.open(SESSION, "read")
    say(handle.tail)
    while await asked():
        try:
            handle.refresh()
        except SessionNotFoundError:
            say("gone")
        else:
            say(len(list(handle.read())) - 1)


async def own(store: LmdbStore, argument: str) -> None:
    """Try to open for writing; say who has it when that fails."""
    try:
        await writable(store)
    except SessionAlreadyOwnedError as error:
        say(f"owned {error.details.get('pid')}")
    except SessionAlreadyExistsError:
        say("exists")
    else:
        say("ready")
        await asked()


async def hold(store: LmdbStore, argument: str) -> None:
    """Hold the store's write lock until asked to let go."""
    with store.environment.writing():
        say("ready")
        await asked()
    say("free")


async def pin(store: LmdbStore, argument: str) -> None:
    """Hold a read transaction open."""
    with store.environment.reading():
        say("ready")
        await asked()


async def made(store: LmdbStore, argument: str) -> None:
    """Say the number of the store's last transaction."""
    say(store.last_transaction())


async def cut(store: LmdbStore, argument: str) -> None:
    """Commit so many events and die as a process does that is killed right behind its commit: with LMDB's write lock, and
    before LMDB's lock file has the number of that transaction."""
    handle = await writable(store)
    handle.append(chunks(int(argument)))
    await handle.flush()
    file = os.open(store.environment.folder / LOCK_FILE, os.O_RDWR)
    with store.environment.writing():
        number = int.from_bytes(os.pread(file, 8, 48), sys.byteorder)
        os.pwrite(file, (number - 1).to_bytes(8, sys.byteorder), 48)
        os.kill(os.getpid(), signal.SIGKILL)


async def show(store: LmdbStore, argument: str) -> None:
    """Say which sessions there are, and stay."""
    say(" ".join(sorted(str(found) for found in store.survey())))
    await asked()


def occupy_late(folder: Path) -> StoreLock:
    """Say `late` where the store is about to be occupied, and do it when asked."""
    say("late")
    sys.stdin.readline()
    return occupy(folder)


async def flood(store: LmdbStore, argument: str) -> None:
    """Append batches of all sizes, flush now and then, and say each durable seq, until killed."""
    rng = random.Random(int(argument))
    handle = await writable(store)
    handle.watch_durable(say)
    while True:
        for _ in range(rng.randrange(1, 6)):
            many = chunks(rng.choice((1, 1, 1, 7, 40, 300)))
            handle.append(rng.choice((many, [prompt(), *many], [*many, tool_result(rng.randrange(9_000), "")])))
            await asyncio.sleep(0)
        if rng.random() < 0.7:
            await handle.flush()


async def remake(store: LmdbStore, argument: str) -> None:
    """Make sessions, forks of them, and delete some, for ever. Say `+ ID` when one is durable, `? ID` when one is about to
    go, `- ID` when it is gone."""
    rng = random.Random(int(argument))
    known = [record.id for _, record in store.recent(limit=1_000)]
    for number in itertools.count():
        name, choice = SessionId(f"{argument}.{number}"), rng.random()
        if choice > 0.7 and known:
            gone = known.pop(rng.randrange(len(known)))
            say(f"? {gone}")
            await store.delete(gone)
            say(f"- {gone}")
            continue
        if choice > 0.2 and known:
            parent = rng.choice(known)
            await store.fork(parent, rng.randrange(store.get(parent).tail + 1), new(name))
            say(f"+ {name}")
            handle = await store.open(name, "write")
        else:
            handle = await filled(store, chunks(rng.randrange(1, 400)), new(name))
            say(f"+ {name}")
        known.append(name)
        handle.append(chunks(rng.randrange(60)))
        await handle.close()


def compact(folder: str, fatal_stage: str) -> None:
    """Compact the store and die at a stage; say what came out when there is no such stage."""

    def fatal(stage: str) -> None:
        if stage == fatal_stage:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        done = compact_store(folder, fail_point=fatal)
    except LogBusyError as error:
        say(f"busy: {error.message}")
    else:
        say(f"from {done.before_bytes} to {done.after_bytes}")


def zero(folder: str) -> None:
    """Have LMDB's lock file say that there was no transaction, as an opener does that is alone."""
    file = os.open(Path(folder) / LOCK_FILE, os.O_RDWR)
    os.pwrite(file, bytes(8), 48)
    say("zero")


def dying(folder: str) -> None:
    """Do the same under LMDB's lock, and die as soon as somebody waits for that."""
    path = Path(folder) / LOCK_FILE
    file = os.open(path, os.O_RDWR)
    fcntl.lockf(file, fcntl.LOCK_EX, 1)
    os.pwrite(file, bytes(8), 48)
    say("locked")
    waiting = f":{path.stat().st_ino} "
    while not any("->" in line and waiting in line for line in Path("/proc/locks").read_text().split("\n")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def turn(folder: str) -> None:
    """Have the turn to open or close the store until told."""
    with OpeningTurn(Path(folder)).taken(5):
        say("taken")
        sys.stdin.readline()
    say("left")


RAW: dict[str, Callable[[str], None]] = {"zero": zero, "dying": dying, "turn": turn}
"""Commands that do not open the store."""

COMMANDS: dict[str, Callable[[LmdbStore, str], Awaitable[None]]] = {
    "write": write,
    "accept": accept,
    "read": read,
    "own": own,
    "hold": hold,
    "pin": pin,
    "made": made,
    "late": show,
    "cut": cut,
    "flood": flood,
    "die": flood,
    "remake": remake,
    "remake and die": remake,
}


async def main() -> None:
    """Open the store and run the command."""
    command, folder, argument = sys.argv[1:]
    stages = random.Random(argument)
    left = stages.randrange(1, 12 if command == "die" else 60)

    def fatal(stage: str) -> None:
        """Die in the middle of some commit, at some stage."""
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def harmless(stage: str) -> None:
        pass

    fail_point = fatal if command.endswith("die") else harmless
    if command == "late":
        opening.open_environment.__kwdefaults__ = {"occupied": occupy_late, "accept": False}
    store = await open_store(folder, new_uuid=new_uuid, commit_seconds=0.01, fail_point=fail_point)
    await COMMANDS[command](store, argument)
    await store.close()


if __name__ == "__main__":
    if sys.argv[1] == "compact":
        compact(*sys.argv[2:])
    elif sys.argv[1] in RAW:
        RAW[sys.argv[1]](sys.argv[2])
    else:
        asyncio.run(main())
