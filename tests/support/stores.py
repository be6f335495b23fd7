"""What tests of the store share: drafts, a clock that is turned by hand, fault injection, and the two kinds of store.

Both kinds are driven through one small class, so that the conformance suite cannot tell them apart.
"""

from __future__ import annotations

import asyncio
import errno
import json
import uuid
from base64 import b85encode
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import lmdb

from refold_protocol.errors import LogUnwritableError, StorageFullError
from refold_protocol.ids import CallId, InputId, SessionId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import AssistantChunk, Draft, ForeignData, InputAccepted, ToolResult, TurnEnd, TurnEndReason
from refold_protocol.session.messages import Source, TextDelta, text_content
from refold_storage.interface import Handle, NewSession, Store
from refold_storage.lmdb_store import open_store
from tests.support.memory_store import MemoryStore

T = TypeVar("T")

SESSION = SessionId("0198f3a2-0000-7000-8000-00000000000a")
OTHER = SessionId("0198f3a2-0000-7000-8000-00000000000b")
NEW = NewSession(SESSION, "/work", 1_000)


def chunk(text: str = " word", turn: int = 1) -> Draft:
    """A streamed piece of text: the smallest and most frequent event."""
    return Draft(AssistantChunk(turn, 1, 1, TextDelta(0, text)))


def chunks(count: int, first: int = 0) -> list[Draft]:
    """Chunks that can be told apart."""
    return [chunk(f" {number}") for number in range(first, first + count)]


def prompt(text: str = "Where?") -> Draft:
    """An accepted input: activity that the summary counts."""
    return Draft(InputAccepted(InputId(new_uuid()), "prompt", text_content(text), Source("cli")))


def notes(count: int, first: int = 0) -> list[Draft]:
    """Events of a plugin that can be told apart; they may stand anywhere."""
    numbers = range(first, first + count)
    return [Draft(ForeignData(JsonText(f'" {number}"')), type="acme/note", ignorable=True) for number in numbers]


def long_note(size: int, letter: str = "x") -> Draft:
    """An event of a plugin with `size` characters, as those of `tool_result`; it may stand anywhere."""
    return Draft(ForeignData(JsonText(json.dumps(_text(size, letter)))), type="acme/note", ignorable=True)


def tool_result(size: int, letter: str = "x") -> Draft:
    """A tool's answer of `size` characters: one letter again and again, or noise that deflates by a sixth at most."""
    return Draft(ToolResult(1, 1, CallId("call_1"), text_content(_text(size, letter)), is_error=False), "append")


def _text(size: int, letter: str) -> str:
    return letter * size if letter else b85encode(Random(size).randbytes(size)).decode()[:size]


def turn_end() -> Draft:
    """The end of a turn."""
    return Draft(TurnEnd(1, TurnEndReason("completed")))


def new_uuid() -> str:
    """A fresh id. (Not a version 7, which no test needs.)"""
    return str(uuid.uuid4())


def new(session: str, created_at: int = 1_000) -> NewSession:
    """A session to be created."""
    return NewSession(SessionId(session), "/work", created_at)


def lines_of(handle: Handle) -> list[bytes]:
    """All lines that the handle shows."""
    return [event.line for event in handle.read()]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens; the time-out of the test ends what does not."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function in an event loop of its own: for properties, whose examples share no loop."""
    return asyncio.run(work())


class HandClock:
    """A clock that stands still until it is set."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Faults:
    """A fail point: `full` and `broken` make commits fail; `stages` remembers what was passed."""

    def __init__(self) -> None:
        self.full = False
        self.broken = False
        self.stages: list[str] = []

    def __call__(self, stage: str) -> None:
        self.stages.append(stage)
        if stage == "written" and self.full:
            raise StorageFullError("the disk is full, says the test")
        if stage == "written" and self.broken:
            raise LogUnwritableError("the disk is broken, says the test")


class DiskFaults(Faults):
    """The same through what LMDB raises."""

    def __call__(self, stage: str) -> None:
        self.stages.append(stage)
        if stage == "written" and self.full:
            raise lmdb.DiskError("mdb_txn_commit", errno.ENOSPC)
        if stage == "written" and self.broken:
            raise lmdb.Error("mdb_txn_commit", errno.EIO)


class StoreKind:
    """One kind of store, in one place. `open` opens it; a further `open` shows what the first one made durable."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.faults = Faults() if folder is None else DiskFaults()
        self._memory: MemoryStore | None = None

    async def open(self, *, backlog_bytes: int = 1 << 26) -> Store:
        """Open the store, as a process would that comes after the last one."""
        if self.folder is None:
            if self._memory is None:
                self._memory = MemoryStore(clock=self.clock, backlog_bytes=backlog_bytes, fail_point=self.faults)
            else:
                self._memory = self._memory.after_crash()
            return self._memory
        return await open_store(
            self.folder, new_uuid=new_uuid, clock=self.clock, backlog_bytes=backlog_bytes, fail_point=self.faults
        )


async def filled(store: Store, drafts: Sequence[Draft], session: NewSession = NEW) -> Handle:
    """Create a session and make `drafts` durable in it."""
    handle = await store.create(session)
    handle.append(drafts)
    await handle.flush()
    return handle
