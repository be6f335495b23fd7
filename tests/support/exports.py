"""Exports for tests: sessions to export, their bytes, and what damage does to bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.ids import InputId, SessionId
from refold_protocol.session.codec import chain
from refold_protocol.session.events import Draft, InputAccepted
from refold_protocol.session.messages import Source, text_content
from refold_protocol.session.session_totals import EMPTY_SUMMARY
from refold_storage.interface import SessionRecord, Store
from refold_storage.session_file import Incoming, export_lines, plan_export
from tests.support.logs import Log
from tests.support.memory_store import MemoryStore
from tests.support.stores import NEW, OTHER, SESSION, HandClock, long_note, notes

Damaging = Callable[[bytes, int, int, bytes], bytes]


def memory() -> MemoryStore:
    """An empty store."""
    return MemoryStore(clock=HandClock(2_000))


async def exported(store: Store, session: SessionId = SESSION, at: int | None = None) -> bytes:
    """Give the export of a session that is whole."""
    handle = await store.open_damaged(session)
    plan = plan_export(handle, at)
    assert plan.damage is None
    data = b"".join(export_lines(handle, plan))
    await handle.close()
    return data


async def taken(store: Store, data: bytes, size: int = 1_000, renamed: tuple[SessionId, int] | None = None) -> SessionRecord:
    """Import an export, which is read in pieces of `size` bytes."""
    return await Incoming(pieces(data, size)).land(store, renamed=renamed)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Give data as it is read of a file."""
    return (data[at : at + size] for at in range(0, len(data), size))


async def small_store() -> MemoryStore:
    """A store with SESSION, of 42 events, without a parent."""
    store = memory()
    handle = await store.create(NEW)
    asked = InputAccepted(InputId("i"), "prompt", text_content("Where is the “zebra”? \u2028 🙂"), Source("cli"))
    handle.append([Draft(asked), *notes(30), long_note(3_000, ""), *notes(10)])
    await handle.close()
    return store


async def family_store() -> MemoryStore:
    """A store with SESSION, of 42 events, archived, a fork of OTHER at event 30."""
    store = memory()
    handle = await store.create(replace(NEW, id=OTHER))
    handle.append(notes(40))
    await handle.close()
    await store.fork(OTHER, 30, NEW)
    handle = await store.open(SESSION, "write")
    handle.append(notes(11, 100))
    await handle.close()
    await store.set_archived(SESSION, True)
    return store


async def store_of(log: Log) -> MemoryStore:
    """A store with SESSION, whose events are those of a log."""
    store = memory()
    record = SessionRecord(SESSION, "/w", 1, len(log.lines) - 1, chain(log.lines).hex(), (), EMPTY_SUMMARY)
    await store.import_session(record, iter(log.lines))
    return store


def refold_lines(file: Path) -> list[str]:
    """Lines of a file."""
    return file.read_text().split("\n")[:-1]


def long_export(session: str, count: int = 2_000) -> bytes:
    """An export of a session of plain events, of half a kilobyte each."""
    lines = [b'{"type":"x/%s","seq":%d,"time":%d,"data":{},"ignorable":true}' % (b"y" * 500, seq, seq) for seq in range(count)]
    head = {"type": "refold/session", "format": 0, "id": session, "cwd": "/", "createdAt": 1, "tail": count - 1}
    return b"\n".join([json.dumps(head | {"headDigest": chain(lines).hex(), "writers": []}).encode(), *lines]) + b"\n"


def _flip(data: bytes, at: int, length: int, other: bytes) -> bytes:
    del other
    return data[:at] + bytes([data[at] ^ (length or 1)]) + data[at + 1 :]


DAMAGES: Final[dict[str, Damaging]] = {
    "flip": _flip,
    "cut out": lambda data, at, length, other: data[:at] + data[at + length :],
    "cut off": lambda data, at, length, other: data[:at],
    "put in": lambda data, at, length, other: data[:at] + other + data[at:],
    "write over": lambda data, at, length, other: data[:at] + other + data[at + len(other) :],
    "repeat": lambda data, at, length, other: data[: at + length] + data[at:],
    "carriage returns": lambda data, at, length, other: data.replace(b"\n", b"\r\n"),
}
"""What may happen to bytes: at a place, for a length of up to 255, with other bytes."""


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes to which something of that happened, up to three times; sometimes where lines end."""
    for _ in range(draw(st.integers(1, 3))):
        if not data:
            break
        breaks = [place for place, byte in enumerate(data) if byte == 0x0A]
        anywhere = st.integers(0, len(data) - 1)
        at = draw(st.one_of(anywhere, st.sampled_from(breaks)) if breaks else anywhere)
        damage = DAMAGES[draw(st.sampled_from(sorted(DAMAGES)))]
        data = damage(data, at, draw(st.integers(0, 255)), draw(st.binary(max_size=40)))
    return data
