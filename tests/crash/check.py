"""Look at a store after a kill: that every fact is there, and that whoever opens it next finds it whole.

In this order: what is on disk, before anybody writes; what opening for writing adds, once; the next request. Reads as the
product does, through its own store and views, in a process of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
from msgspec import Struct, field

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import CHAIN_START, chain_step, decode_event
from refold_protocol.session.events import Event, InstanceStart, Replace, ToolResult, UserMessage
from refold_protocol.session.request import Request, sent_requests
from refold_protocol.session.session_state import fold_all
from refold_server.clock import epoch_ms, uuid7
from refold_server.requests.offline_check import check_log
from refold_server.sessions.session_views import header_view, pending_view, status_view, surface_view, transcript_view
from refold_storage.interface import Store
from refold_storage.lmdb_store import open_store
from tests.crash.child import Ground
from tests.crash.effects import unrecorded
from tests.crash.replaces import torn_compactions
from tests.crash.replies import broken_reply
from tests.crash.resume import prompted, reopened
from tests.crash.told import Told


class Lost(Struct, frozen=True):
    """What was accepted and is not on disk: events of all sessions together, and how long before the kill the oldest of
    them was accepted, in ms."""

    events: int = 0
    ms: int = 0


class Examined(Struct):
    """What was found: faults in words; what was lost that nobody was told; how many requests of the last life continued the
    bytes of the one before; how many regions became a summary in it, and how many results were cut; where each log ends now
    (seq and chain digest)."""

    faults: list[str] = field(default_factory=list[str])
    lost: Lost = Lost()
    continued: int = 0
    compacted: int = 0
    cut: int = 0
    heads: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])


class Stand(Struct, frozen=True):
    """A log as it is on disk."""

    session: str
    lines: list[bytes]
    events: list[Event]


class Look(Struct, frozen=True):
    """How to look: `cold` opens nothing for writing, so that what stands open is left to the next life; `last` counts the
    catalogue anew as well; `seed` chooses the session that is gone on with."""

    cold: bool
    last: bool
    seed: str


def open_damaged(ground: Ground, told: Told, killed_ms: int, look: Look) -> Examined:
    """Look at a store whose last process was killed at `killed_ms` (epoch ms)."""
    found = Examined([*told.faults])
    try:
        anyio.run(_examine, ground, told, killed_ms, found, look)
    except RefoldError as error:
        found.faults.append(f"{error.error_kind}: {error.message}")
    return found


async def _examine(ground: Ground, told: Told, killed_ms: int, found: Examined, look: Look) -> None:
    store = await open_store(ground.store, new_uuid=uuid7, clock=epoch_ms, client="check", map_bytes=1 << 20)
    try:
        stands = [await _stand(store, session, found) for session in _present(store, told, found)]
        for stand in stands:
            _facts(store, stand, told, found)
            handle = await store.open(SessionId(stand.session), "read")
            found.faults += [f"session {stand.session}: {fault}" for fault in _views(handle, stand)]
            found.faults += [
                f"session {stand.session}: {fault}" for fault in torn_compactions(stand.events, _inherited(handle))
            ]
            await handle.close()
        found.lost = _lost(stands, told, killed_ms)
        found.faults += unrecorded(ground, [stand.events for stand in stands], told)
        touched = [stand for stand in stands if stand.session in told.accepted or stand.session not in told.heads]
        if not look.cold:
            for stand in touched:
                faults = await reopened(store, stand.session, stand.lines, ground)
                found.faults += [f"session {stand.session}: {fault}" for fault in faults]
            if touched:
                chosen = random.Random(look.seed).choice(touched).session
                found.faults += [f"session {chosen}: {fault}" for fault in await prompted(ground, store, chosen)]
        for stand in touched if look.cold else [await _stand(store, stand.session, found) for stand in touched]:
            _prefixes(stand, told, found)
            _replaces(stand, told, found)
            stands = [stand if one.session == stand.session else one for one in stands]
        found.heads = {stand.session: (len(stand.lines) - 1, _digest(stand.lines)) for stand in stands}
        if look.last:
            found.faults += await _catalogue(store)
        vitals = store.vitals()
        if vitals.sessions != len(stands) or vitals.used_bytes > vitals.map_bytes or vitals.readers:
            found.faults.append(f"the store's health: {vitals}")
    finally:
        await store.close()


def _present(store: Store, told: Told, found: Examined) -> list[SessionId]:
    """Give the sessions that are there; note those that should be, and those that should not."""
    there: list[SessionId] = []
    for one in store.survey():
        if isinstance(one, RefoldError):
            found.faults.append(f"a record cannot be read: {one.message}")
        else:
            there.append(one)
    listed = {record.id for _, record in store.recent(limit=1_000)}
    if listed != set(there):
        found.faults.append(f"the list of sessions has {sorted(listed)}, the store {sorted(there)}")
    must = {session for session, durable in told.durable.items() if durable >= 0} | set(told.heads)
    found.faults += [f"session {one} is not there" for one in must - set(there) - told.under_way("session/delete")]
    found.faults += [f"session {one} was deleted and is there" for one in told.gone & set(there)]
    return there


async def _stand(store: Store, session: str, found: Examined) -> Stand:
    handle = await store.open_damaged(SessionId(session))
    report = await check_log(handle)
    await handle.close()
    found.faults += [f"session {session}: {one.check} at {one.seq}: {one.message}" for one in report.differences]
    handle = await store.open(SessionId(session), "read")
    lines = handle.lines(0)
    await handle.close()
    events = [decode_event(line) for line in lines]
    if [event.seq for event in events] != list(range(len(events))):
        found.faults.append(f"session {session}: its seqs are not 0 to {len(events) - 1}")
    if store.is_owned(SessionId(session)):
        found.faults.append(f"session {session}: a dead process owns it")
    return Stand(session, lines, events)


def _facts(store: Store, stand: Stand, told: Told, found: Examined) -> None:
    """Hold the log against what was told of it."""
    session, lines = stand.session, stand.lines
    for seq, line in (told.lines.get(session, {}) | told.loose.get(session, {})).items():
        if seq < len(lines) and lines[seq] != line:
            found.faults.append(f"session {session}: event {seq} is {lines[seq]!r}, told was {line!r}")
    if (durable := told.durable.get(session, -1)) >= len(lines):
        found.faults.append(f"session {session}: told as durable up to {durable}, on disk up to {len(lines) - 1}")
    seq, digest = told.heads.get(session, (-1, CHAIN_START.hex()))
    if _digest(lines[: seq + 1]) != digest:
        found.faults.append(f"session {session}: what was on disk up to {seq} has changed")
    for reply in told.replies.get(session, ()):
        fault = broken_reply(reply, stand.events, lines)
        if fault is not None:
            found.faults.append(f"session {session}: {reply.method} was told {reply.raw.decode()}, but {fault}")
    archived = told.archived.get(session)
    if archived not in (None, store.get(SessionId(session)).archived):
        found.faults.append(f"session {session}: archived={archived} was told, and is not so")


async def _catalogue(store: Store) -> list[str]:
    """Count everything anew: what lists show was right. A fork's figures are its parent's until it is written."""
    estimated = sum(record.parent is not None for _, record in store.recent(limit=1_000))
    recount = await store.rebuild_catalogue()
    wrong = recount.changed > estimated or recount.misplaced or recount.skipped
    return [f"the catalogue was wrong: {recount}"] if wrong else []


def _digest(lines: Sequence[bytes]) -> str:
    digest = CHAIN_START
    for line in lines:
        digest = chain_step(digest, line)
    return digest.hex()


def _views(handle: Any, stand: Stand) -> Iterator[str]:
    """Read every view as one who does not write: an open turn is balanced in memory."""
    tail = handle.tail
    status = status_view(handle, tail, owned=False)
    if status.status != "idle":
        yield f"its status is {status.status}"
    list(transcript_view(handle, tail, owned=False))
    surface_view(handle, tail, owned=False)
    header_view(handle, tail)
    pending = pending_view(handle, tail)
    begun = any(isinstance(event.data, InstanceStart) and event.seq > _inherited(handle) for event in stand.events)
    if pending != (fold_all(stand.events).pending if begun else ()):
        yield f"it lists {pending} as waiting"


def _inherited(handle: Any) -> int:
    parent = handle.record.parent
    return -1 if parent is None else parent.at


def _lost(stands: Sequence[Stand], told: Told, killed_ms: int) -> Lost:
    ends = {stand.session: len(stand.lines) - 1 for stand in stands}
    events, oldest = 0, killed_ms
    for session, batches in told.accepted.items():
        missing = [(tail, ms) for tail, ms in batches if tail > ends.get(session, -1)]
        if missing:
            events += missing[-1][0] - ends.get(session, -1)
            oldest = min(oldest, missing[0][1])
    return Lost(events, killed_ms - oldest)


def _prefixes(stand: Stand, told: Told, found: Examined) -> None:
    """Each new request whose header is that of the one before continues its bytes, unless something was replaced meanwhile."""
    replaces = [event.seq for event in stand.events if isinstance(event.surface_op, Replace)]
    known = told.heads.get(stand.session, (-1, ""))[0]
    before: tuple[int, Request, bytes] | None = None
    for event, sent, request in sent_requests(stand.events):
        dialect = dialect_named(sent.encoder.name)
        body = dialect.encode(request, {})
        same = before is not None and before[1].header == request.header
        if event.seq > known and before is not None and same and not any(before[0] < seq < event.seq for seq in replaces):
            found.continued += 1
            kept = len(before[2]) - dialect.moved_end(before[1], request)
            if not body.startswith(before[2][:kept]):
                found.faults.append(f"session {stand.session}: the request at {event.seq} does not continue the one before")
        before = event.seq, request, body


def _replaces(stand: Stand, told: Told, found: Examined) -> None:
    """Count what was replaced in the last life."""
    known = told.heads.get(stand.session, (-1, ""))[0]
    new = [event for event in stand.events if event.seq > known and isinstance(event.surface_op, Replace)]
    found.compacted += sum(isinstance(event.data, UserMessage) for event in new)
    found.cut += sum(isinstance(event.data, ToolResult) for event in new)
