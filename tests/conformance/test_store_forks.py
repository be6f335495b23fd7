"""What a store promises of forks, held against the LMDB store and the in-memory double alike.

Invariant: A fork costs the same however long the history is, and reads as one log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from refold_protocol.errors import (
    InvalidJsonError,
    SeqRangeError,
    SessionAlreadyExistsError,
    SessionNotFoundError,
    StorageFullError,
)
from refold_protocol.ids import SessionId, writer_tail
from refold_protocol.session.codec import chain
from refold_protocol.session.session_totals import EMPTY_SUMMARY, summary_step
from refold_storage.damage import walk_chain
from refold_storage.interface import NewSession, Parent, SessionRecord, Store
from tests.support.stores import (
    NEW,
    OTHER,
    SESSION,
    StoreKind,
    chunks,
    filled,
    lines_of,
    new,
    prompt,
    tool_result,
    turn_end,
)

pytestmark = pytest.mark.anyio

THIRD = SessionId("0198f3a2-0000-7000-8000-00000000000c")


@pytest.fixture(params=["memory", "lmdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    return StoreKind(None if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def store(kind: StoreKind) -> AsyncGenerator[Store]:
    opened = await kind.open()
    yield opened
    await opened.close()


async def whole(store: Store, session: SessionId) -> list[bytes]:
    """All lines of a session, after its record, its chain and its borders were checked against them."""
    reader = await store.open(session, "read")
    lines = lines_of(reader)
    assert reader.lines(0) == lines
    assert [link.line for link in walk_chain(reader)] == lines
    assert reader.head_digest == chain(lines)
    assert (reader.tail, reader.record.head_digest) == (len(lines) - 1, chain(lines).hex())
    await reader.close()
    return lines


@pytest.mark.parametrize("at", [0, 1, 254, 255, 256, 399, 400])
async def test_a_fork_has_the_events_up_to_its_seq_and_the_parents_digest_there(store: Store, at: int) -> None:
    parent = await filled(store, [prompt(), *chunks(399), turn_end()])
    record = await store.fork(SESSION, at, NewSession(OTHER, "/elsewhere", 77))
    lines = lines_of(parent)[: at + 1]
    digest = chain(lines).hex()
    assert record.parent == Parent(SESSION, at, digest)
    assert (record.id, record.cwd, record.created_at, record.tail) == (OTHER, "/elsewhere", 77, at)
    assert (record.head_digest, record.writers) == (digest, ())
    assert store.get(OTHER) == record
    assert await whole(store, OTHER) == lines


async def test_a_fork_goes_on_behind_its_seq_and_so_does_its_parent(store: Store) -> None:
    parent = await filled(store, chunks(300))
    await store.fork(SESSION, 99, new(OTHER))
    child = await store.open(OTHER, "write")
    assert (child.tail, child.durable) == (99, 99)
    assert child.writer is not None
    assert writer_tail(child.writer) == 99
    (first,) = child.append([prompt("and now?")])
    assert first.seq == 100
    assert list(child.read(99, 100))[1] == first
    await child.flush()
    parent.append(chunks(300, 300))
    await parent.flush()
    child.append(chunks(300, 7))
    await child.close()
    assert (await whole(store, SESSION)) == lines_of(parent)
    lines = await whole(store, OTHER)
    assert lines[:100] == lines_of(parent)[:100]
    assert lines[100] == first.line
    assert len(lines) == 401
    assert store.get(OTHER).writers == ((child.writer, 100),)


async def test_any_seq_of_a_fork_is_found_and_bytes_are_counted_across_its_border(store: Store) -> None:
    parent = await filled(store, chunks(300))
    await store.fork(SESSION, 149, new(OTHER))
    child = await store.open(OTHER, "write")
    child.append(chunks(300, 1_000))
    await child.flush()
    reader = await store.open(OTHER, "read")
    lines = lines_of(parent)[:150] + child.lines(150)
    for first in (0, 1, 148, 149, 150, 151, 300, 449):
        for handle in (child, reader):
            assert handle.lines(first) == lines[first:]
            assert [event.line for event in handle.read(first, min(first + 3, 449))] == lines[first : first + 4]
            assert handle.lines(first, max_bytes=1) == lines[first : first + 1]
            records = list(handle.records(first))
            assert records[0].first <= first <= records[0].last
            assert [line for record in records for line in record.lines] == lines[records[0].first :]
            assert [record.digest for record in records] == [chain(lines[: record.last + 1]) for record in records]
    assert reader.lines(148, max_bytes=sum(map(len, lines[148:153]))) == lines[148:153]


@pytest.mark.parametrize("at", [20, 49, 50, 70, 99, 100, 120])
async def test_a_fork_of_a_fork_of_a_fork_is_the_same_as_one_log(store: Store, at: int) -> None:
    parent = await filled(store, chunks(60))
    await store.fork(SESSION, 49, new(OTHER))
    child = await store.open(OTHER, "write")
    child.append(chunks(60, 1_000))
    await child.flush()
    await store.fork(OTHER, 99, new(THIRD))
    grandchild = await store.open(THIRD, "write")
    grandchild.append(chunks(60, 2_000))
    await grandchild.flush()
    record = await store.fork(THIRD, at, new("last"))
    assert record.parent == Parent(THIRD, at, chain(grandchild.lines(0, at)).hex())
    expected = (lines_of(parent)[:50] + child.lines(50, 99) + grandchild.lines(100))[: at + 1]
    assert await whole(store, SessionId("last")) == expected
    last = await store.open(SessionId("last"), "write")
    last.append([tool_result(5_000, ""), *chunks(3)])
    await last.close()
    assert (await whole(store, SessionId("last")))[: at + 1] == expected


async def test_a_fork_before_its_parents_borders_needs_nothing_of_what_follows(store: Store) -> None:
    """The parent's last record grows after the fork was made in the middle of it."""
    parent = await filled(store, chunks(5))
    await store.fork(SESSION, 4, new(OTHER))
    await store.fork(SESSION, 2, new(THIRD))
    parent.append(chunks(40, 5))
    await parent.flush()
    assert await whole(store, OTHER) == lines_of(parent)[:5]
    assert await whole(store, THIRD) == lines_of(parent)[:3]


async def test_a_fork_needs_no_lease_of_its_parent_and_goes_as_far_as_what_is_durable(store: Store) -> None:
    parent = await filled(store, chunks(3))
    parent.append(chunks(3))
    with pytest.raises(SeqRangeError) as caught:
        await store.fork(SESSION, 4, new(OTHER))
    assert "events 0 to 2" in caught.value.message
    assert not store.is_owned(OTHER)
    await parent.flush(4)
    assert (await store.fork(SESSION, 4, new(OTHER))).tail == 4
    assert parent.tail == 5


async def test_what_cannot_be_forked_is_refused_and_nothing_is_made(store: Store) -> None:
    await (await filled(store, chunks(3))).close()
    held = await store.create(new("held"))
    for at in (-1, 3, 10**6):
        with pytest.raises(SeqRangeError):
            await store.fork(SESSION, at, new(OTHER))
    with pytest.raises(SessionNotFoundError):
        await store.fork(SessionId("nobody"), 0, new(OTHER))
    with pytest.raises(SessionNotFoundError):
        await store.fork(held.id, 0, new(OTHER))
    for taken in (SESSION, held.id):
        with pytest.raises(SessionAlreadyExistsError):
            await store.fork(SESSION, 1, new(taken))
    with pytest.raises(InvalidJsonError):
        await store.fork(SESSION, 1, new("\ud800"))
    assert list(store.survey()) == [SESSION]
    assert not store.is_owned(SESSION)


async def test_a_fork_counts_its_own_past_when_it_is_opened_for_writing(kind: StoreKind, store: Store) -> None:
    kind.clock.now = 5_000
    parent = await filled(store, [prompt("One"), *chunks(300)])
    kind.clock.now = 6_000
    parent.append([prompt("Two"), turn_end()])
    await parent.flush()
    for at in (0, 150, 302):
        name = SessionId(f"at {at}")
        record = await store.fork(SESSION, at, new(name))
        assert record.summary.title == "One"
        child = await store.open(name, "write")
        counted = EMPTY_SUMMARY
        for event in parent.read(0, at):
            counted = summary_step(counted, event)
        assert child.record.summary == counted
        child.append(chunks(1))
        await child.close()
        assert store.get(name).summary == counted


async def test_a_fork_is_listed_by_when_it_was_made_until_it_gets_work(kind: StoreKind, store: Store) -> None:
    kind.clock.now = 5_000
    await (await filled(store, [prompt()])).close()
    await store.fork(SESSION, 0, new("late", 6_000))
    await store.fork(SESSION, 0, new("early", 4_000))
    assert next(record.id for _, record in store.recent(limit=5)) == "late"
    kind.clock.now = 9_000
    woken = await store.open(SessionId("early"), "write")
    woken.append([prompt()])
    await woken.close()
    assert [record.id for _, record in store.recent(limit=5)] == ["early", "late", SESSION]


async def test_a_fork_outlives_the_process_that_made_it(kind: StoreKind, store: Store) -> None:
    parent = await filled(store, chunks(300))
    record: SessionRecord = await store.fork(SESSION, 123, new(OTHER))
    lines = lines_of(parent)[:124]
    await store.close()
    again = await kind.open()
    assert again.get(OTHER) == record
    assert await whole(again, OTHER) == lines
    await again.close()


async def test_a_fork_on_a_full_disk_is_refused_and_may_be_tried_again(kind: StoreKind, store: Store) -> None:
    await (await filled(store, chunks(3))).close()
    kind.faults.full = True
    with pytest.raises(StorageFullError):
        await store.fork(SESSION, 1, new(OTHER))
    assert list(store.survey()) == [SESSION]
    kind.faults.full = False
    assert (await store.fork(SESSION, 1, new(OTHER))).tail == 1


async def test_a_new_session_beside_forks_is_a_session_like_any_other(store: Store) -> None:
    await (await filled(store, chunks(3))).close()
    await store.fork(SESSION, 1, new(OTHER))
    handle = await filled(store, chunks(4), NewSession(THIRD, NEW.cwd, 5))
    assert handle.record.parent is None
    assert len(await whole(store, THIRD)) == 4
