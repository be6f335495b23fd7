"""Damage of every kind in a stored log is noticed, with the seq where the log stops being right, and never repaired."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest

from refold_protocol.errors import (
    DigestMismatchError,
    RefoldError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
    SessionNotFoundError,
)
from refold_protocol.session.codec import CHAIN_START, CHUNK
from refold_storage import catalog
from refold_storage.damage import walk_chain, walk_run
from refold_storage.lmdb_store import open_store
from refold_storage.record_keys import record_key, session_key
from refold_storage.records import Damage, decode_record, encode_record, run_of
from refold_storage.store import LmdbStore
from tests.support.stores import NEW, OTHER, SESSION, chunks, filled, lines_of, new, new_uuid, prompt

pytestmark = pytest.mark.anyio

COUNT = 900


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[LmdbStore]:
    """A store with a session of several records."""
    opened = await open_store(tmp_path, new_uuid=new_uuid)
    await (await filled(opened, chunks(COUNT))).close()
    yield opened
    await opened.close()


def stored(store: LmdbStore) -> list[tuple[int, bytes]]:
    """First seq and value of each record of session 1."""
    found: list[tuple[int, bytes]] = []
    with store.environment.reading() as transaction, transaction.cursor(db=store.environment.databases.records) as cursor:
        for key, value in cursor:
            if key[:8] == record_key(1, 0)[:8]:
                found.append((int.from_bytes(key[8:], "big"), value))
    return found


def put_record(store: LmdbStore, first: int, value: bytes | None) -> None:
    with store.environment.writing() as transaction:
        transaction.delete(record_key(1, first), db=store.environment.databases.records)
        if value is not None:
            transaction.put(record_key(1, first), value, db=store.environment.databases.records)


def change_row(store: LmdbStore, **changes: object) -> None:
    key = session_key(SESSION)
    with store.environment.writing() as transaction:
        value = transaction.get(key, db=store.environment.databases.sessions)
        assert value is not None
        row = {**msgspec.json.decode(value), **changes}
        transaction.put(key, msgspec.json.encode(row), db=store.environment.databases.sessions)


async def readings(store: LmdbStore) -> list[Callable[[], object]]:
    """Every way to read the whole log."""
    reader = await store.open(SESSION, "read")
    return [lambda: list(reader.read()), lambda: reader.lines(0), lambda: list(walk_chain(reader))]


async def test_an_untouched_log_is_whole(store: LmdbStore) -> None:
    assert len(stored(store)) > 3
    for read in await readings(store):
        assert len(read()) == COUNT  # type: ignore[arg-type]


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_missing_record_is_noticed_where_it_is_missing(store: LmdbStore, which: int) -> None:
    first = stored(store)[which][0]
    put_record(store, first, None)
    for read in await readings(store):
        with pytest.raises(SessionCorruptionError) as caught:
            read()
        assert caught.value.details["seq"] == first


async def test_a_damaged_body_is_noticed_with_its_record(store: LmdbStore) -> None:
    first, value = stored(store)[1]
    put_record(store, first, value[:60] + bytes(byte ^ 0xFF for byte in value[60:80]) + value[80:])
    for read in await readings(store):
        with pytest.raises(SessionCorruptionError) as caught:
            read()
        assert first <= caught.value.details["seq"] < stored(store)[2][0]


async def test_who_asks_for_no_chunks_passes_by_damage_in_them_and_nobody_else_does(store: LmdbStore) -> None:
    first, value = stored(store)[1]
    put_record(store, first, value[:60] + bytes(byte ^ 0xFF for byte in value[60:80]) + value[80:])
    reader = await store.open(SESSION, "read")
    lines = reader.lines(0, chunks=False)
    assert len(lines) == COUNT
    assert set(lines) == {CHUNK}
    assert any(isinstance(piece, Damage) and piece.first == first for piece in reader.inspect())
    put_record(store, first, value[:30])
    with pytest.raises(SessionCorruptionError) as caught:
        reader.lines(0, chunks=False)
    assert caught.value.details["seq"] == first


async def test_what_lies_before_the_damage_can_still_be_read(store: LmdbStore) -> None:
    first = stored(store)[2][0]
    put_record(store, first, b"\x00")
    reader = await store.open(SESSION, "read")
    assert [event.seq for event in reader.read(0, first - 1)] == list(range(first))
    assert [event.seq for event in reader.read(COUNT - 1)] == [COUNT - 1]
    whole = reader.read()
    with pytest.raises(SessionCorruptionError):
        list(whole)


async def test_a_line_that_calls_itself_another_seq_is_noticed(store: LmdbStore) -> None:
    first, value = stored(store)[1]
    lines = list(decode_record(first, value).lines)
    lines[3] = lines[4]
    put_record(store, first, encode_record(lines, decode_record(first, value).digest))
    reader = await store.open(SESSION, "read")
    with pytest.raises(SessionCorruptionError) as caught:
        list(reader.read())
    assert caught.value.details["seq"] == first + 3


async def test_a_line_that_is_no_event_is_noticed(store: LmdbStore) -> None:
    first, value = stored(store)[1]
    lines = list(decode_record(first, value).lines)
    lines[3] = b'{"type":"x"}'
    put_record(store, first, encode_record(lines, decode_record(first, value).digest))
    reader = await store.open(SESSION, "read")
    with pytest.raises(SessionCorruptionError) as caught:
        list(reader.read())
    assert caught.value.details["seq"] == first + 3


async def test_a_changed_text_is_noticed_by_walking_the_chain(store: LmdbStore) -> None:
    first, value = stored(store)[1]
    record = decode_record(first, value)
    lines = [line.replace(b'" ', b'"_') if at == 5 else line for at, line in enumerate(record.lines)]
    put_record(store, first, encode_record(lines, record.digest))
    reader = await store.open(SESSION, "read")
    walked: list[int] = []
    with pytest.raises(DigestMismatchError) as caught:
        walked.extend(link.seq for link in walk_chain(reader))
    assert (caught.value.details["first"], caught.value.details["seq"]) == (first, record.last)


@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize(
    "changes", [{"tail": COUNT - 2}, {"tail": COUNT}, {"headDigest": CHAIN_START.hex()}, {"tail": -1}], ids=str
)
async def test_a_record_beside_the_log_that_disagrees_with_it_is_refused(
    store: LmdbStore, changes: dict[str, object], access: str
) -> None:
    change_row(store, **changes)
    with pytest.raises(SessionCorruptionError) as caught:
        await store.open(SESSION, "read" if access == "read" else "write")
    assert caught.value.details["seq"] <= COUNT
    assert not store.is_owned(SESSION)


async def test_a_log_that_lost_its_end_is_refused(store: LmdbStore) -> None:
    put_record(store, stored(store)[-1][0], None)
    with pytest.raises(SessionCorruptionError):
        await store.open(SESSION, "write")
    for first, _ in stored(store):
        put_record(store, first, None)
    with pytest.raises(SessionCorruptionError) as caught:
        await store.open(SESSION, "write")
    assert caught.value.details["seq"] == 0


@pytest.mark.parametrize("row", [b"", b"{", b"[]", b'{"format":0}', b"\xff\xfe"])
async def test_a_record_beside_the_log_that_cannot_be_read_is_refused_and_left_out_of_the_list(
    store: LmdbStore, row: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(store, [prompt()], new(OTHER))
    with store.environment.writing() as transaction:
        transaction.put(session_key(SESSION), row, db=store.environment.databases.sessions)
    with pytest.raises(SessionCorruptionError):
        store.get(SESSION)
    with pytest.raises(SessionCorruptionError):
        await store.open(SESSION, "read")
    assert [record.id for _, record in store.recent(limit=10)] == [OTHER]
    assert "left out" in caplog.text
    surveyed = list(store.survey())
    assert OTHER in surveyed
    assert [type(found) for found in surveyed if found != OTHER] == [SessionCorruptionError]


async def test_a_record_that_names_another_session_is_refused(store: LmdbStore) -> None:
    change_row(store, id=OTHER)
    assert [str(found) for found in store.survey()] == [f"the record of {OTHER} is misplaced"]
    with pytest.raises(SessionCorruptionError, match="names session"):
        store.get(SESSION)


async def test_a_session_of_another_format_version_is_refused(store: LmdbStore) -> None:
    change_row(store, format=1)
    for use in (lambda: store.open(SESSION, "read"), lambda: store.open(SESSION, "write")):
        with pytest.raises(SessionFormatUnsupportedError):
            await use()


async def test_a_record_of_a_later_release_can_be_read_but_not_continued(store: LmdbStore) -> None:
    """Writing the row again would lose what this release does not know."""
    change_row(store, shelves=[[1, 0, 5]])
    assert (await store.open(SESSION, "read")).tail == COUNT - 1
    with pytest.raises(SessionFormatUnsupportedError, match="shelves"):
        await store.open(SESSION, "write")
    assert not store.is_owned(SESSION)


async def test_a_session_that_vanishes_under_a_reader_is_unknown(store: LmdbStore) -> None:
    reader = await store.open(SESSION, "read")
    with store.environment.writing() as transaction:
        transaction.delete(session_key(SESSION), db=store.environment.databases.sessions)
    with pytest.raises(SessionNotFoundError):
        reader.refresh()


async def test_a_session_that_vanishes_under_its_writer_is_not_written_again(store: LmdbStore) -> None:
    handle = await store.open(SESSION, "write")
    with store.environment.writing() as transaction:
        transaction.delete(session_key(SESSION), db=store.environment.databases.sessions)
    handle.append(chunks(1))
    with pytest.raises(RefoldError, match="vanished"):
        await handle.flush()
    with pytest.raises(RefoldError):
        await handle.close()


async def test_a_record_under_a_key_that_is_none_is_damage(store: LmdbStore) -> None:
    with store.environment.writing() as transaction:
        transaction.put(record_key(1, 2**63) + b"x", b"?", db=store.environment.databases.records)
    with pytest.raises(SessionCorruptionError):
        await store.open(SESSION, "read")


def test_records_that_do_not_follow_each_other_are_no_chain() -> None:
    with pytest.raises(SessionCorruptionError) as caught:
        list(walk_run([run_of(1, (b"{}",), CHAIN_START)]))
    assert caught.value.details["seq"] == 0


async def test_a_changed_head_digest_is_noticed_at_the_end_of_the_chain(store: LmdbStore) -> None:
    first, value = stored(store)[-1]
    record = decode_record(first, value)
    put_record(store, first, encode_record(record.lines, CHAIN_START))
    change_row(store, headDigest=CHAIN_START.hex())
    reader = await store.open(SESSION, "read")
    with pytest.raises(DigestMismatchError):
        list(walk_chain(reader))


async def test_numbers_of_sessions_are_never_used_twice(store: LmdbStore) -> None:
    with store.environment.writing() as transaction:
        assert catalog.next_number(transaction, store.environment.databases) == 2
        assert catalog.next_number(transaction, store.environment.databases) == 3
    handle = await filled(store, chunks(2), new(OTHER))
    assert len(lines_of(handle)) == 2
    assert stored(store)[0][0] == 0
    assert (await store.open(NEW.id, "read")).tail == COUNT - 1
