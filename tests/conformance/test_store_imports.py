"""What a store promises of imports, held against the LMDB store and the in-memory double alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from refold_protocol.errors import (
    DigestMismatchError,
    InvalidJsonError,
    SessionAlreadyExistsError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
    StorageFullError,
)
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import chain, seal
from refold_protocol.session.events import Draft, Trigger, TurnStart
from refold_protocol.session.messages import Source
from refold_protocol.session.session_totals import EMPTY_SUMMARY
from refold_protocol.verify import Report, Verifier
from refold_storage.damage import walk_chain
from refold_storage.interface import SessionRecord, Store
from tests.support.logs import Log, spoken
from tests.support.stores import OTHER, SESSION, StoreKind, filled, lines_of, long_note, new, notes, prompt

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "lmdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    return StoreKind(None if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def store(kind: StoreKind) -> AsyncGenerator[Store]:
    opened = await kind.open()
    yield opened
    await opened.close()


async def exported(store: Store, session: SessionId) -> tuple[SessionRecord, list[bytes]]:
    """What an export of a session holds."""
    reader = await store.open(session, "read")
    return reader.record, lines_of(reader)


async def original(store: Store) -> tuple[SessionRecord, list[bytes]]:
    """A session of two writers, with a fork's events in front, and archived: its record and lines. It is deleted again."""
    await (await filled(store, [prompt(), *notes(600)])).close()
    await store.fork(SESSION, 300, new(OTHER))
    for _ in range(2):
        handle = await store.open(OTHER, "write")
        handle.append([*notes(300), long_note(300_000, ""), prompt()])
        await handle.close()
    await store.set_archived(OTHER, True)
    record, lines = await exported(store, OTHER)
    await store.delete(OTHER)
    await store.delete(SESSION)
    return record, lines


async def test_an_imported_session_is_the_one_that_was_exported(kind: StoreKind, store: Store) -> None:
    record, lines = await original(store)
    assert record.parent is not None
    assert len(record.writers) == 2
    assert await store.import_session(record, iter(lines)) == record
    assert not store.is_owned(OTHER)
    assert [each.id for _, each in store.recent(limit=5)] == [OTHER]
    await store.close()
    again = await kind.open()
    assert await exported(again, OTHER) == (record, lines)
    reader = await again.open(OTHER, "read")
    assert [link.line for link in walk_chain(reader)] == lines
    handle = await again.open(OTHER, "write")
    handle.append(notes(1))
    await handle.flush()
    assert handle.head_digest == chain(lines_of(handle))
    await handle.close()
    await again.close()


async def test_a_session_may_be_imported_beside_itself_under_another_id(store: Store) -> None:
    await (await filled(store, notes(3))).close()
    record, lines = await exported(store, SESSION)
    copy = await store.import_session(replace(record, id=OTHER), lines)
    assert (copy.id, copy.tail, copy.head_digest) == (OTHER, 2, record.head_digest)
    await store.delete(SESSION)
    assert (await exported(store, OTHER))[1] == lines


async def test_what_is_foreign_in_a_log_comes_in_byte_for_byte(store: Store) -> None:
    handle = await filled(store, [prompt(), *notes(2)])
    foreign = b'{"type":"later/thing", "seq":3,"time":9999999999999,"data":{"a":[1.50,{}]},"x":"\\u0041"}'
    reason = b'{"kind":"acme/budget","reason":{"code":3}}'
    ended = b'{"type":"turn/end","seq":5,"time":9999999999999,"data":{"turn":1,"reason":%b}}' % reason
    started = seal(Draft(TurnStart(1, Trigger("message", Source("cli")))), 4, 9999999999999).line
    lines = [*lines_of(handle), foreign, started, ended]
    record = replace(handle.record, id=OTHER, tail=5, head_digest=chain(lines).hex())
    assert (await store.import_session(record, lines)).tail == 5
    assert (await exported(store, OTHER))[1] == lines


async def test_a_log_that_breaks_a_rule_is_refused_with_the_place_of_the_first_event_that_does(store: Store) -> None:
    """Invariant: Import and `verify` judge a log by the fold that judges what is written, and name the first event that breaks
    a rule.

    Each is an event by itself; what stands before it makes it wrong.
    """
    whole = Log()
    whole.turn()
    whole.step()
    whole.stream(*spoken("Because."))
    whole.reply("Because.")
    whole.end_step()
    whole.end_turn()
    types = [event.type for event in whole.events]
    reply, chunk = types.index("assistant/message"), types.index("assistant/chunk")
    for place, change in (
        (reply, (b'"surfaceOp":"append",', b"")),
        (reply, (b'"sources":[[', b'"sources":[[0,0],[')),
        (chunk, (b'"attempt":1', b'"attempt":2')),
        (types.index("step/start"), (b'"step":1', b'"step":2')),
        (types.index("turn/start"), (b'"turn":1', b'"turn":2')),
        (types.index("turn/end"), (b'"data":', b'"surfaceOp":"append","data":')),
    ):
        lines = list(whole.lines)
        lines[place] = lines[place].replace(*change)
        assert lines != whole.lines
        record = SessionRecord(OTHER, "/w", 1, len(lines) - 1, chain(lines).hex(), (), EMPTY_SUMMARY)
        with pytest.raises(SessionCorruptionError) as caught:
            await store.import_session(record, lines)
        assert caught.value.details["seq"] == place
        assert list(store.survey()) == []
        (found,) = [one for one in verified(lines).differences if one.check != "request"]
        assert found.seq == place, "who verifies says the same"


async def test_what_a_later_release_wrote_is_refused_as_that(store: Store) -> None:
    lines = [*lines_of(await filled(store, notes(1)))]
    for part in (
        b'"surfaceOp":"prepend","data":{"content":[],"source":{"kind":"c"}}',
        b'"surfaceOp":"append","data":{"content":[{"type":"hologram"}],"source":{"kind":"c"}}',
    ):
        later = [*lines, b'{"type":"user/message","seq":1,"time":1700000000000,%b}' % part]
        record = SessionRecord(OTHER, "/w", 1, 1, chain(later).hex(), (), EMPTY_SUMMARY)
        with pytest.raises(SessionFormatUnsupportedError, match="later release") as caught:
            await store.import_session(record, later)
        assert caught.value.details["seq"] == 1


def verified(lines: list[bytes]) -> Report:
    """Verify lines."""
    verifier = Verifier()
    for line in lines:
        verifier.feed(line)
    return verifier.report()


async def test_the_summary_is_counted_from_the_lines(store: Store) -> None:
    handle = await filled(store, [prompt("Truth"), *notes(3)])
    lying = replace(handle.record, id=OTHER, summary=replace(handle.record.summary, title="Lie", turns=77))
    assert (await store.import_session(lying, lines_of(handle))).summary == handle.record.summary


WRONG = {
    "no event": b"{}",
    "no json": b"\xff",
    "a key twice": b'{"type":"x/y","seq":2,"time":1700000000000,"data":{"a":1,"a":2}}',
    "half a pair": b'{"type":"x/y","seq":2,"time":1700000000000,"data":{},"z":"\\ud800"}',
    "no number": b'{"type":"x/y","seq":2,"time":1700000000000,"data":{},"z":1e999}',
    "another seq": b'{"type":"x/y","seq":3,"time":1700000000000,"data":{}}',
    "an earlier time": b'{"type":"x/y","seq":2,"time":1,"data":{}}',
    "two lines": b'{"type":"x/y","seq":2,"time":1700000000000,\n"data":{}}',
    "nothing": b"",
}


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
async def test_a_wrong_line_is_refused_with_its_place_and_nothing_is_left(store: Store, line: bytes) -> None:
    handle = await filled(store, notes(5))
    lines = lines_of(handle)
    with pytest.raises(SessionCorruptionError) as caught:
        await store.import_session(replace(handle.record, id=OTHER), [*lines[:2], line, *lines[3:]])
    assert caught.value.details["seq"] == 2
    assert list(store.survey()) == [SESSION]
    assert not store.is_owned(OTHER)
    assert (await store.import_session(replace(handle.record, id=OTHER), lines)).tail == 4


async def test_what_does_not_agree_with_its_record_is_refused_and_nothing_is_left(store: Store) -> None:
    await (await filled(store, notes(5))).close()
    record, lines = await exported(store, SESSION)
    record = replace(record, id=OTHER)
    swapped = [lines[0], lines[1].replace(b" 1", b" 7"), *lines[2:]]
    assert swapped != lines
    with pytest.raises(DigestMismatchError):
        await store.import_session(record, swapped)
    writer = record.writers[0][0]
    for wrong, given in (
        (record, lines[:-1]),
        (record, []),
        (replace(record, tail=-1), []),
        (replace(record, tail=3), lines),
        (replace(record, writers=((writer, 3), (writer, 3))), lines),
        (replace(record, writers=((writer, 5),)), lines),
        (replace(record, writers=((writer, -1),)), lines),
    ):
        with pytest.raises(SessionCorruptionError):
            await store.import_session(wrong, given)
    with pytest.raises(InvalidJsonError):
        await store.import_session(replace(record, cwd="\ud800"), lines)
    assert list(store.survey()) == [SESSION]


async def test_an_id_that_is_there_already_is_refused(store: Store) -> None:
    handle = await filled(store, notes(5))
    with pytest.raises(SessionAlreadyExistsError):
        await store.import_session(handle.record, lines_of(handle))
    begun = await store.create(new(OTHER))
    with pytest.raises(SessionAlreadyExistsError):
        await store.import_session(replace(handle.record, id=OTHER), lines_of(handle))
    begun.append(notes(1))
    assert await begun.flush() == 0


async def test_what_the_lines_raise_ends_the_import_and_leaves_nothing(store: Store) -> None:
    handle = await filled(store, [long_note(300_000, ""), *notes(5)])

    def lines() -> Iterator[bytes]:
        yield from handle.lines(0, 1)
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="ends here"):
        await store.import_session(replace(handle.record, id=OTHER), lines())
    assert list(store.survey()) == [SESSION]
    assert not store.is_owned(OTHER)
    assert (await store.import_session(replace(handle.record, id=OTHER), lines_of(handle))).tail == 5


async def test_an_import_on_a_full_disk_is_refused_and_may_be_tried_again(kind: StoreKind, store: Store) -> None:
    handle = await filled(store, notes(5))
    kind.faults.full = True
    with pytest.raises(StorageFullError):
        await store.import_session(replace(handle.record, id=OTHER), lines_of(handle))
    kind.faults.full = False
    assert list(store.survey()) == [SESSION]
    assert (await store.import_session(replace(handle.record, id=OTHER), lines_of(handle))).tail == 4
