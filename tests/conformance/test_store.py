"""What a store and a handle promise (interface.py), held against the LMDB store and the in-memory double alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from refold_protocol.errors import (
    InvalidEventError,
    InvalidJsonError,
    SeqRangeError,
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionHandleClosedError,
    SessionNotFoundError,
    SessionReadOnlyError,
)
from refold_protocol.ids import SessionId, writer_tail
from refold_protocol.session.codec import CHAIN_START, chain, decode_event
from refold_protocol.session.events import Draft, Event
from refold_protocol.session.session_totals import EMPTY_SUMMARY
from refold_storage.damage import walk_chain
from refold_storage.interface import NewSession, Store
from tests.support.event_examples import EXAMPLES
from tests.support.stores import (
    NEW,
    OTHER,
    SESSION,
    StoreKind,
    chunk,
    chunks,
    filled,
    lines_of,
    new,
    prompt,
    tool_result,
    turn_end,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "lmdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    return StoreKind(None if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def store(kind: StoreKind) -> AsyncGenerator[Store]:
    opened = await kind.open()
    yield opened
    await opened.close()


async def test_accepted_events_are_numbered_from_zero_without_a_gap(store: Store) -> None:
    handle = await store.create(NEW)
    first = handle.append(chunks(3))
    second = handle.append([turn_end()])
    assert [event.seq for event in (*first, *second)] == [0, 1, 2, 3]
    assert handle.tail == 3


async def test_a_new_log_is_empty(store: Store) -> None:
    handle = await store.create(NEW)
    assert (handle.id, handle.access, handle.tail, handle.durable) == (SESSION, "write", -1, -1)
    assert handle.head_digest == CHAIN_START
    assert list(handle.read()) == []
    assert handle.lines(0) == []
    assert list(handle.records()) == []
    assert handle.record.summary == EMPTY_SUMMARY
    assert handle.trouble is None


async def test_time_never_goes_back_when_the_clock_does(kind: StoreKind, store: Store) -> None:
    handle = await store.create(NEW)
    kind.clock.now = 500
    (one,) = handle.append([chunk()])
    kind.clock.now = 400
    (two,) = handle.append([chunk()])
    kind.clock.now = 600
    (three,) = handle.append([chunk()])
    assert [one.time, two.time, three.time] == [500, 500, 600]


async def test_time_goes_on_from_the_log_after_a_reopening(kind: StoreKind, store: Store) -> None:
    kind.clock.now = 500
    await (await filled(store, [chunk()])).close()
    kind.clock.now = 300
    handle = await store.open(SESSION, "write")
    (event,) = handle.append([chunk()])
    assert event.time == 500


async def test_a_draft_may_bring_the_time_of_the_event_before_it_and_none_that_is_earlier(
    kind: StoreKind, store: Store
) -> None:
    handle = await store.create(NEW)
    kind.clock.now = 500
    handle.append([chunk()])
    kind.clock.now = 900
    (closer,) = handle.append([Draft(chunk().data, time=500)])
    assert closer.time == 500
    with pytest.raises(InvalidEventError):
        handle.append([Draft(chunk().data, time=499)])
    assert handle.tail == 1


async def test_what_is_accepted_can_be_read_at_once_and_is_durable_only_after_a_flush(store: Store) -> None:
    handle = await store.create(NEW)
    events = handle.append(chunks(5))
    assert list(handle.read()) == list(events)
    assert handle.durable == -1
    assert await handle.flush() == 4
    assert handle.durable == 4
    assert list(handle.read()) == list(events)


async def test_reading_joins_what_is_durable_and_what_is_only_accepted(store: Store) -> None:
    handle = await filled(store, chunks(600))
    handle.append(chunks(600, 600))
    assert [event.seq for event in handle.read()] == list(range(1200))
    assert [event.seq for event in handle.read(598, 601)] == [598, 599, 600, 601]
    assert handle.lines(599, 600) == lines_of(handle)[599:601]


async def test_a_reading_that_is_under_way_survives_a_flush(store: Store) -> None:
    handle = await store.create(NEW)
    handle.append(chunks(1000))
    reading = handle.read()
    begun = [next(reading).seq for _ in range(10)]
    await handle.flush()
    assert begun + [event.seq for event in reading] == list(range(1000))


async def test_a_flush_of_a_part_is_content_with_that_part(store: Store) -> None:
    handle = await store.create(NEW)
    handle.append(chunks(5))
    assert await handle.flush(2) >= 2
    assert await handle.flush(-1) >= 2


async def test_a_flush_with_nothing_to_do_says_what_is_durable(store: Store) -> None:
    handle = await store.create(NEW)
    assert await handle.flush() == -1
    handle.append(chunks(2))
    await handle.flush()
    assert await handle.flush() == 1


@pytest.mark.parametrize(("first", "last"), [(-1, None), (-1, 2), (0, 5), (7, 9), (0, -2)])
async def test_a_range_that_the_log_does_not_have_is_refused(store: Store, first: int, last: int | None) -> None:
    handle = await filled(store, chunks(5))
    with pytest.raises(SeqRangeError):
        handle.read(first, last)
    with pytest.raises(SeqRangeError):
        handle.lines(first, last)


async def test_a_flush_past_the_tail_is_refused(store: Store) -> None:
    handle = await filled(store, chunks(5))
    with pytest.raises(SeqRangeError):
        await handle.flush(5)


async def test_reading_behind_the_tail_gives_nothing(store: Store) -> None:
    handle = await filled(store, chunks(5))
    assert list(handle.read(5)) == []
    assert handle.lines(5) == []
    assert list(handle.read(3, 2)) == []


@pytest.mark.parametrize("durable", [True, False])
async def test_lines_stop_at_the_bytes_asked_for_but_give_one_at_least(store: Store, durable: bool) -> None:
    handle = await store.create(NEW)
    lines = [event.line for event in handle.append(chunks(300))]
    if durable:
        await handle.flush()
    assert handle.lines(7) == lines[7:]
    assert handle.lines(7, max_bytes=0) == lines[7:8]
    assert handle.lines(7, max_bytes=len(lines[7])) == lines[7:8]
    assert handle.lines(7, max_bytes=sum(map(len, lines[7:10]))) == lines[7:10]
    assert handle.lines(7, max_bytes=sum(map(len, lines[7:10])) - 1) == lines[7:9]
    assert handle.lines(7, 200, max_bytes=10**9) == lines[7:201]


async def test_every_line_is_kept_byte_for_byte(store: Store) -> None:
    drafts = [Draft(draft.data, draft.surface_op, type=draft.type) for draft in EXAMPLES.values()]
    handle = await store.create(NEW)
    accepted = handle.append(drafts)
    await handle.close()
    again = await store.open(SESSION, "read")
    assert list(again.read()) == list(accepted)
    assert again.lines(0) == [event.line for event in accepted]
    assert [decode_event(line) for line in again.lines(0)] == list(accepted)


async def test_events_of_megabytes_stand_among_small_ones(store: Store) -> None:
    drafts = [chunk(), tool_result(3 << 20, ""), chunk(), tool_result(1 << 20), *chunks(10)]
    handle = await filled(store, drafts)
    reader = await store.open(SESSION, "read")
    assert lines_of(reader) == lines_of(handle)
    assert [event.seq for event in reader.read(1, 2)] == [1, 2]


async def test_a_batch_with_a_wrong_draft_leaves_the_log_as_it_was(store: Store) -> None:
    handle = await filled(store, chunks(2))
    before = (handle.tail, handle.head_digest, handle.record, lines_of(handle))
    with pytest.raises(InvalidEventError):
        handle.append([chunk(), turn_end(), Draft(turn_end().data, "append"), chunk()])
    with pytest.raises(InvalidEventError):
        handle.append([chunk("\ud800")])
    assert (handle.tail, handle.head_digest, handle.record, lines_of(handle)) == before
    assert handle.append([chunk()])[0].seq == 2


async def test_an_empty_batch_changes_nothing(store: Store) -> None:
    handle = await store.create(NEW)
    told: list[object] = []
    handle.observe(told.append)
    assert handle.append([]) == ()
    assert told == []
    assert handle.record.writers == ()


async def test_a_sealed_batch_is_what_is_accepted_and_changes_nothing_before(store: Store) -> None:
    handle = await store.create(NEW)
    handle.append(chunks(1))
    before = (handle.tail, handle.head_digest, handle.record)
    batch = handle.seal(chunks(2))
    assert [event.seq for event in batch.events] == [1, 2]
    assert (handle.tail, handle.head_digest, handle.record) == before
    handle.accept(batch)
    assert lines_of(handle)[1:] == [event.line for event in batch.events]


async def test_a_batch_is_refused_once_other_events_came_after_it_was_sealed(store: Store) -> None:
    handle = await store.create(NEW)
    batch = handle.seal(chunks(2))
    handle.append(chunks(1))
    before = (handle.tail, handle.head_digest, handle.record)
    with pytest.raises(InvalidEventError, match="late"):
        handle.accept(batch)
    assert (handle.tail, handle.head_digest, handle.record) == before


async def test_observers_are_told_each_batch_once_after_it_was_accepted(store: Store) -> None:
    handle = await store.create(NEW)
    told: list[tuple[int, list[int]]] = []
    stop = handle.observe(lambda batch: told.append((handle.tail, [event.seq for event in batch])))
    handle.append(chunks(2))
    handle.append(chunks(1))
    stop()
    stop()
    handle.append(chunks(1))
    assert told == [(1, [0, 1]), (2, [2])]


async def test_what_an_observer_raises_stays_with_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    handle = await store.create(NEW)
    told: list[int] = []

    def broken(batch: Sequence[Event]) -> None:
        raise ValueError("a bug in an observer")

    handle.observe(broken)
    handle.observe(lambda batch: told.append(len(batch)))
    handle.append(chunks(2))
    assert told == [2]
    assert "a bug in an observer" in caplog.text
    assert await handle.flush() == 1


async def test_an_append_from_inside_an_append_is_refused(store: Store) -> None:
    handle = await store.create(NEW)
    refused: list[InvalidEventError] = []

    def intrude(batch: Sequence[Event]) -> None:
        with pytest.raises(InvalidEventError) as caught:
            handle.append(chunks(1))
        refused.append(caught.value)

    handle.observe(intrude)
    handle.append(chunks(1))
    assert len(refused) == 1
    assert handle.tail == 0
    assert handle.append(chunks(1))[0].seq == 1


async def test_watchers_are_told_when_the_durable_seq_rises(store: Store) -> None:
    handle = await store.create(NEW)
    told: list[int] = []
    stop = handle.watch_durable(told.append)
    handle.append(chunks(3))
    assert told == []
    await handle.flush()
    assert told[-1] == 2
    stop()
    handle.append(chunks(1))
    await handle.flush()
    assert told[-1] == 2


async def test_the_digest_is_the_chain_over_all_lines(store: Store) -> None:
    handle = await filled(store, [prompt(), *chunks(700), turn_end()])
    assert handle.head_digest == chain(lines_of(handle))
    links = list(walk_chain(handle))
    assert [link.seq for link in links] == list(range(702))
    assert [link.line for link in links] == lines_of(handle)
    assert links[-1].digest == handle.head_digest


async def test_records_cover_the_durable_log_from_any_seq(store: Store) -> None:
    handle = await filled(store, chunks(700))
    handle.append(chunks(5))
    lines = lines_of(handle)
    for first in (0, 1, 300, 699):
        records = list(handle.records(first))
        assert records[0].first <= first <= records[0].last
        assert records[-1].last == 699
        assert [line for record in records for line in record.lines] == lines[records[0].first : 700]
        assert [record.digest for record in records] == [chain(lines[: record.last + 1]) for record in records]


async def test_the_record_counts_what_is_accepted_and_the_store_what_is_durable(kind: StoreKind, store: Store) -> None:
    handle = await store.create(NewSession(SESSION, "/src/ü", 77))
    kind.clock.now = 2_000
    handle.append([prompt("What is this?")])
    assert handle.record.summary.title == "What is this?"
    with pytest.raises(SessionNotFoundError):
        store.get(SESSION)
    await handle.flush()
    record = store.get(SESSION)
    assert record == handle.record
    assert (record.id, record.cwd, record.created_at, record.tail) == (SESSION, "/src/ü", 77, 0)
    assert record.head_digest == handle.head_digest.hex()
    assert record.summary.last_activity == 2_000
    handle.append([prompt("And that?")])
    assert store.get(SESSION) == record
    assert handle.record.tail == 1


async def test_a_writer_is_named_by_the_tail_it_found_and_gets_a_row_with_its_first_events(store: Store) -> None:
    first = await store.create(NEW)
    assert first.writer is not None
    assert writer_tail(first.writer) == -1
    assert first.record.writers == ()
    first.append(chunks(3))
    assert first.record.writers == ((first.writer, 0),)
    first.append(chunks(2))
    await first.close()
    idle = await store.open(SESSION, "write")
    await idle.close()
    second = await store.open(SESSION, "write")
    assert second.writer is not None
    assert second.writer != idle.writer
    assert writer_tail(second.writer) == 4
    second.append(chunks(1))
    await second.flush()
    assert store.get(SESSION).writers == ((first.writer, 0), (second.writer, 5))


async def test_a_log_goes_on_where_it_ended(store: Store) -> None:
    first = await store.create(NEW)
    lines = [event.line for event in first.append([prompt(), *chunks(300)])]
    digest = first.head_digest
    await first.close()
    second = await store.open(SESSION, "write")
    assert (second.tail, second.durable, second.head_digest) == (300, 300, digest)
    lines += [event.line for event in second.append(chunks(300))]
    await second.flush()
    assert lines_of(second) == lines
    assert second.head_digest == chain(lines)
    assert second.record.summary == first.record.summary


async def test_closing_flushes_and_ends_every_use(store: Store) -> None:
    handle = await store.create(NEW)
    handle.append(chunks(3))
    await handle.close()
    await handle.close()
    assert store.get(SESSION).tail == 2
    for use in (handle.read, lambda: handle.lines(0), lambda: handle.append(chunks(1)), handle.refresh, handle.records):
        with pytest.raises(SessionHandleClosedError):
            use()
    with pytest.raises(SessionHandleClosedError):
        await handle.flush()
    with pytest.raises(SessionHandleClosedError):
        handle.observe(print)


async def test_a_reader_sees_what_is_durable_when_it_looks(store: Store) -> None:
    handle = await filled(store, chunks(3))
    reader = await store.open(SESSION, "read")
    told: list[int] = []
    reader.watch_durable(told.append)
    handle.append(chunks(300))
    assert (reader.access, reader.writer, reader.tail, reader.durable) == ("read", None, 2, 2)
    assert reader.refresh() == 2
    await handle.flush()
    assert reader.tail == 2
    with pytest.raises(SeqRangeError):
        reader.read(0, 3)
    assert reader.refresh() == 302
    assert told == [302]
    assert lines_of(reader) == lines_of(handle)
    assert reader.record == store.get(SESSION)
    assert reader.head_digest == handle.head_digest
    assert await reader.flush() == 302


async def test_a_reader_may_not_write(store: Store) -> None:
    await (await filled(store, chunks(3))).close()
    reader = await store.open(SESSION, "read")
    with pytest.raises(SessionReadOnlyError):
        reader.append(chunks(1))
    await reader.close()
    await reader.close()
    with pytest.raises(SessionHandleClosedError):
        reader.read()


@pytest.mark.parametrize("access", ["read", "write"])
async def test_a_session_that_is_not_there_cannot_be_opened(store: Store, access: str) -> None:
    with pytest.raises(SessionNotFoundError):
        await store.open(SESSION, "read" if access == "read" else "write")
    with pytest.raises(SessionNotFoundError):
        store.get(SESSION)
    assert not store.is_owned(SESSION)


async def test_a_session_is_created_once(store: Store) -> None:
    handle = await store.create(NEW)
    with pytest.raises(SessionAlreadyExistsError):
        await store.create(NEW)
    handle.append(chunks(1))
    await handle.close()
    with pytest.raises(SessionAlreadyExistsError):
        await store.create(NEW)


async def test_a_session_that_never_received_an_event_leaves_no_record(store: Store) -> None:
    handle = await store.create(NEW)
    await handle.close()
    assert store.recent(limit=10) == []
    with pytest.raises(SessionNotFoundError):
        store.get(SESSION)
    again = await store.create(NEW)
    assert again.tail == -1


async def test_a_session_has_one_writer_and_any_number_of_readers(store: Store) -> None:
    handle = await filled(store, chunks(1))
    assert store.is_owned(SESSION)
    with pytest.raises(SessionAlreadyOwnedError):
        await store.open(SESSION, "write")
    readers = [await store.open(SESSION, "read") for _ in range(3)]
    assert [reader.tail for reader in readers] == [0, 0, 0]
    await handle.close()
    assert not store.is_owned(SESSION)
    assert (await store.open(SESSION, "write")).access == "write"


async def test_sessions_do_not_mix(store: Store) -> None:
    handles = [await store.create(new(name)) for name in ("a", "b", "c")]
    for turn in range(50):
        for number, handle in enumerate(handles):
            handle.append([chunk(f" {number} {turn}")] * (number + 1))
        if turn % 7 == 0:
            await handles[turn % 3].flush()
    for number, handle in enumerate(handles):
        await handle.flush()
        reader = await store.open(handle.id, "read")
        assert lines_of(reader) == lines_of(handle)
        assert all(f" {number} ".encode() in line for line in lines_of(reader))


async def test_the_list_of_sessions_is_sorted_by_activity_and_read_in_pages(kind: StoreKind, store: Store) -> None:
    for number in range(7):
        kind.clock.now = 10_000 + number * 10
        await (await filled(store, [prompt()], new(f"s{number}", number))).close()
    kind.clock.now = 20_000
    woken = await store.open(SessionId("s2"), "write")
    woken.append([prompt()])
    await woken.flush()
    everything = store.recent(limit=100)
    assert [record.id for _, record in everything] == ["s2", "s6", "s5", "s4", "s3", "s1", "s0"]
    assert everything[0][1] == store.get(SessionId("s2"))
    paged: list[str] = []
    before = None
    while page := store.recent(limit=2, before=before):
        assert len(page) <= 2
        paged += [record.id for _, record in page]
        before = page[-1][0]
    assert paged == [record.id for _, record in everything]


async def test_a_survey_names_every_session_once(store: Store) -> None:
    names = [f"s{number}" for number in range(300)]
    assert list(store.survey()) == []
    for name in names:
        handle = await store.create(new(name))
        handle.append(chunks(1))
        await handle.close()
    await (await store.create(new("empty"))).close()
    assert sorted(str(found) for found in store.survey()) == sorted(names)


async def test_opening_and_chunks_are_no_activity(kind: StoreKind, store: Store) -> None:
    kind.clock.now = 5_000
    await (await filled(store, [prompt()], new("first", 1))).close()
    await (await filled(store, chunks(1), new("second", 2))).close()
    assert [record.id for _, record in store.recent(limit=5)] == ["first", "second"]


@pytest.mark.parametrize("name", ["x" * 600, "", "../../etc", "a\x00b", "那🙂\n", " "])
async def test_c_08_a_session_may_have_any_text_as_its_id(kind: StoreKind, store: Store, name: str) -> None:
    """C-08: keys have bounded length whatever the client sends."""
    await (await filled(store, chunks(2), new(name))).close()
    assert store.get(SessionId(name)).id == name
    assert (await store.open(SessionId(name), "write")).tail == 1


async def test_text_that_is_no_unicode_names_no_session(store: Store) -> None:
    with pytest.raises(InvalidJsonError):
        await store.create(new("\ud800"))
    with pytest.raises(SessionNotFoundError):
        await store.open(SessionId("\ud800"), "read")


async def test_closing_the_store_closes_every_handle(kind: StoreKind, store: Store) -> None:
    one, two = await store.create(NEW), await store.create(new(OTHER))
    one.append(chunks(2))
    two.append(chunks(3))
    await store.close()
    await store.close()
    for handle in (one, two):
        with pytest.raises(SessionHandleClosedError):
            handle.append(chunks(1))
    again = await kind.open()
    assert [again.get(handle.id).tail for handle in (one, two)] == [1, 2]
    assert not again.is_owned(SESSION)
    await again.close()


async def test_a_walk_over_the_chain_ends_where_the_log_ended_when_it_began(store: Store) -> None:
    handle = await filled(store, chunks(100))
    walk = walk_chain(handle)
    begun = [next(walk) for _ in range(3)]
    for number in range(5):
        handle.append(chunks(3, number))
        await handle.flush()
    assert [link.seq for link in (*begun, *walk)] == list(range(100))
