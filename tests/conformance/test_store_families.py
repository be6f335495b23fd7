"""Any history of sessions that are made, forked, imported, archived, deleted, continued and reopened leaves exactly the logs
that plain lists would be, in both stores, and nothing besides.

Invariant: Whatever is made, forked, imported, archived, deleted, reopened or compacted, every session left is exactly its
lines and chain, and no record is there for nobody.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.errors import SessionAlreadyOwnedError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import chain
from refold_protocol.session.session_totals import EMPTY_SUMMARY, summary_step
from refold_storage.changes import hidden_numbers
from refold_storage.damage import walk_chain
from refold_storage.interface import Handle, Store
from refold_storage.record_keys import HIDDEN, parse_child_key, parse_record_key
from refold_storage.store import LmdbStore
from refold_storage.store_compaction import compact_store
from tests.support.stores import StoreKind, filled, long_note, new, notes, prompt, run

Move = tuple[str, int, int]

MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ("make", "append", "append", "flush", "close", "fork", "fork", "fork", "delete", "archive", "import", "reopen")
        ),
        st.integers(0, 50),
        st.integers(0, 1_000),
    ),
    max_size=25,
)


class Family:
    """A store, what should be in it, and who is open for writing."""

    def __init__(self, kind: StoreKind, store: Store) -> None:
        self.kind = kind
        self.store = store
        self.durable: dict[SessionId, list[bytes]] = {}
        self.archived: dict[SessionId, bool] = {}
        self.handles: dict[SessionId, Handle] = {}
        self.made = 0

    def fresh(self) -> SessionId:
        """A new id."""
        self.made += 1
        return SessionId(f"s{self.made}")

    def keep(self, session: SessionId, lines: list[bytes]) -> None:
        """Note what is on disk of a session."""
        self.durable[session] = lines
        self.archived.setdefault(session, False)

    async def writer(self, session: SessionId) -> Handle:
        """The handle that writes a session."""
        if session not in self.handles:
            self.handles[session] = await self.store.open(session, "write")
            assert self.handles[session].lines(0) == self.durable[session]
        return self.handles[session]

    async def close(self, session: SessionId) -> None:
        """Close a session's writer, if there is one."""
        handle = self.handles.pop(session, None)
        if handle is not None:
            self.keep(session, handle.lines(0))
            await handle.close()

    async def close_all(self) -> None:
        """Close every writer and the store."""
        for session in list(self.handles):
            await self.close(session)
        await self.store.close()


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
@settings(max_examples=40)
@given(moves=MOVES)
def test_any_history_of_a_family_leaves_the_logs_that_lists_would_be(kind: str, moves: list[Move]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(lambda: _play(StoreKind(None if kind == "memory" else Path(folder) / "store"), moves))


async def _play(kind: StoreKind, moves: list[Move]) -> None:
    family = Family(kind, await kind.open())
    try:
        for name, one, two in moves:
            kind.clock.now += 1
            await _move(family, name, one, two)
        await _check(family)
        await family.close_all()
        if kind.folder is not None:
            compact_store(kind.folder)
            family.store = await kind.open()
            await _check(family)
    finally:
        await family.store.close()


async def _move(family: Family, name: str, one: int, two: int) -> None:
    if name == "make" or not family.durable:
        handle = await filled(family.store, [prompt(), *notes(two % 300)], new(family.fresh()))
        family.handles[handle.id] = handle
        family.keep(handle.id, handle.lines(0))
    elif name == "reopen":
        await family.close_all()
        family.store = await family.kind.open()
    else:
        await _change(family, name, sorted(family.durable)[one % len(family.durable)], two)


async def _change(family: Family, name: str, session: SessionId, number: int) -> None:
    store, lines = family.store, family.durable[session]
    if name == "append":
        handle = await family.writer(session)
        handle.append([*notes(number % 40), prompt(str(number)), long_note(number * (number % 7), "")])
    elif name == "flush":
        handle = await family.writer(session)
        await handle.flush()
        family.keep(session, handle.lines(0))
    elif name == "close":
        await family.close(session)
    elif name == "fork":
        # Behind what was flushed a background commit may have been quicker, so only as far as is known.
        child, at = family.fresh(), number % len(lines)
        assert (await store.fork(session, at, new(child))).head_digest == chain(lines[: at + 1]).hex()
        family.keep(child, lines[: at + 1])
    elif name == "archive":
        family.archived[session] = number % 2 == 0
        await store.set_archived(session, number % 2 == 0)
    elif name == "import":
        copy = family.fresh()
        record = replace(store.get(session), id=copy, tail=len(lines) - 1, head_digest=chain(lines).hex(), writers=())
        await store.import_session(record, lines)
        family.archived[copy] = family.archived[session]
        family.keep(copy, lines)
    elif session in family.handles and number % 4 == 0:
        with pytest.raises(SessionAlreadyOwnedError):
            await store.delete(session)
    else:
        await family.close(session)
        await store.delete(session)
        del family.durable[session], family.archived[session]


async def _check(family: Family) -> None:
    for session in list(family.handles):
        await family.close(session)
    store = family.store
    assert sorted(str(session) for session in store.survey()) == sorted(family.durable)
    assert {record.id for _, record in store.recent(limit=10_000)} == set(family.durable)
    await store.rebuild_catalogue()
    for session, lines in family.durable.items():
        reader = await store.open(session, "read")
        assert reader.lines(0) == lines
        assert [link.line for link in walk_chain(reader)] == lines
        middle = len(lines) // 2
        assert reader.lines(middle, max_bytes=500)[0] == lines[middle]
        summary = EMPTY_SUMMARY
        for event in reader.read():
            summary = summary_step(summary, event)
        assert reader.refresh() == len(lines) - 1
        assert reader.record.summary == summary
        assert reader.record.archived == family.archived[session]
        await reader.close()
    if isinstance(store, LmdbStore):
        _check_owners(store)


def _check_owners(store: LmdbStore) -> None:
    """No record lies under a number that neither a session nor a fork needs."""
    databases = store.environment.databases
    with store.environment.reading() as transaction:
        with transaction.cursor(db=databases.records) as cursor:
            owners = {parse_record_key(key)[0] for key in cursor.iternext(keys=True, values=False)}
        with transaction.cursor(db=databases.children) as cursor:
            pairs = [parse_child_key(key) for key in cursor.iternext(keys=True, values=False)]
        hidden = set(hidden_numbers(transaction, databases))
        sessions = transaction.stat(databases.sessions)["entries"]
    assert hidden <= owners
    assert hidden <= {origin for origin, fork in pairs if fork != HIDDEN}
    assert len(owners - hidden) <= sessions
