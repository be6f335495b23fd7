"""Exports that are read again: the same session to the byte, or a refusal that names the line; nothing in between."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import RefoldError, SessionAlreadyExistsError, SessionFormatUnsupportedError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import chain
from tests.support.exports import damaged, exported, family_store, memory, small_store, store_of, taken
from tests.support.log_strategies import logs
from tests.support.logs import Log
from tests.support.stores import OTHER, SESSION, lines_of, run

LINE = re.compile(r"^lines? (\d+)(?: to (\d+))?: ")


@cache
def small() -> bytes:
    """An export of 43 lines."""

    async def work() -> bytes:
        return await exported(await small_store())

    return run(work)


@cache
def family() -> bytes:
    """An export of a fork, of 43 lines."""

    async def work() -> bytes:
        return await exported(await family_store())

    return run(work)


def outcome(data: bytes) -> RefoldError | bytes:
    """Import an export into an empty store: give the export of what was imported, or why it was refused. What is refused
    leaves nothing."""

    async def work() -> RefoldError | bytes:
        store = memory()
        try:
            record = await taken(store, data)
        except RefoldError as error:
            assert (list(store.survey()), store.recent(limit=1)) == ([], [])
            return error
        return await exported(store, record.id)

    return run(work)


def refusal(data: bytes) -> str:
    """Why an export is refused."""
    error = outcome(data)
    assert isinstance(error, RefoldError), "it was imported"
    return error.message


def with_record(data: bytes, **members: object) -> bytes:
    """An export whose first line says something else; None takes a member away."""
    head, _, rest = data.partition(b"\n")
    told = {name: value for name, value in (json.loads(head) | members).items() if value is not None}
    return json.dumps(told).encode() + b"\n" + rest


@given(logs().filter(lambda log: bool(log.events)), st.integers(1, 300))
def test_any_log_comes_back_to_the_byte_and_its_export_is_the_file(log: Log, size: int) -> None:
    """Invariant: An export of an import is the file that was imported."""

    async def work() -> None:
        first, second = await store_of(log), memory()
        data = await exported(first)
        record = await taken(second, data, size)
        assert record == first.get(SESSION)
        assert lines_of(await second.open(SESSION, "read")) == log.lines
        assert await exported(second) == data

    run(work)


def test_parent_writers_and_the_archived_flag_come_back_too() -> None:
    assert outcome(family()) == family()
    head = json.loads(family().partition(b"\n")[0])
    assert (head["archived"], head["parent"]["session"], head["parent"]["at"], len(head["writers"])) == (True, OTHER, 30, 1)


@given(st.data())
def test_whatever_happens_to_the_bytes_it_is_refused_with_its_line_or_the_lines_are_the_same(data: st.DataObject) -> None:
    """Invariant: An export that was changed in any way is refused with its line, or gives the same lines.

    Case C-02. What no digest covers, as a title that is cached or the folder's name, may be another one then.
    """
    whole = data.draw(st.sampled_from([small(), family()]))
    found = outcome(data.draw(damaged(whole)))
    if isinstance(found, bytes):
        assert found.split(b"\n")[1:] == whole.split(b"\n")[1:]
        return
    named = LINE.match(found.message)
    assert named is not None, found.message
    assert 1 <= int(named[1]) <= int(named[2] or named[1])


@given(st.integers(1, 41), st.data())
def test_a_line_that_is_no_event_any_more_is_named_itself(seq: int, data: st.DataObject) -> None:
    lines = small().split(b"\n")
    at = data.draw(st.integers(0, len(lines[seq + 1]) - 1))
    lines[seq + 1] = lines[seq + 1][:at]
    assert refusal(b"\n".join(lines)).startswith(f"line {seq + 2}: ")


Change = Callable[[list[bytes]], list[bytes]]

CHANGES: list[tuple[Change, str]] = [
    (lambda rows: rows[:20], "line 20: the file ends here, behind 19 of 42 events: it was cut off"),
    (lambda rows: rows[:1], "line 1: the file ends here, behind 0 of 42 events: it was cut off"),
    (lambda rows: [], "line 1: there is nothing in it"),
    (lambda rows: [*rows[:10], *rows[11:]], "line 11: event 9: it calls itself 10"),
    (lambda rows: [*rows[:10], rows[11], rows[10], *rows[12:]], "line 11: event 9: it calls itself 10"),
    (lambda rows: [*rows[:9], b"{}", *rows[10:20]], "line 10: event 8: "),
    (lambda rows: [*rows[:9], b"{}", *rows[10:], rows[-1]], "line 10: event 8: "),
    (lambda rows: [*rows, rows[-1]], "line 44: there is more than the 42 events that line 1 announces"),
    (lambda rows: [*rows[:5], b"", *rows[5:]], "line 6: it is empty"),
    (lambda rows: [*rows[:5], b"{}", *rows[6:]], "line 6: event 4: "),
    (lambda rows: [*rows[:5], b"[]", *rows[6:]], "line 6: event 4: "),
    (lambda rows: [*rows[:5], b"\xff", *rows[6:]], "line 6: event 4: "),
    (lambda rows: [row + b"\r" for row in rows], "line 1: it ends with a carriage return"),
    (lambda rows: [*rows[:7], rows[7] + b"\r", *rows[8:]], "line 8: it ends with a carriage return"),
    (lambda rows: [b"\xef\xbb\xbf" + rows[0], *rows[1:]], "line 1: it begins with a byte order mark"),
    (lambda rows: [b"\n".join(rows).decode().encode("utf-16")], "line 1: it begins with a byte order mark"),
    (lambda rows: [gzip.compress(b"\n".join(rows))], "line 1: the file is compressed; an export is plain text, so unpack it"),
    (lambda rows: rows[1:], "line 1: this is no export of a session"),
    (lambda rows: [b"{", *rows[1:]], "line 1: not JSON: "),
    (lambda rows: [b"7", *rows[1:]], "line 1: not a JSON object"),
    (lambda rows: [b"\x80", *rows[1:]], "line 1: not UTF-8 at byte 0"),
    (lambda rows: [row.replace(b" 17", b" 71") for row in rows], "lines 2 to 43: "),
]


@pytest.mark.parametrize(("lines", "said"), CHANGES)
def test_a_file_that_was_changed_is_refused_with_its_line(lines: Change, said: str) -> None:
    rows = small().split(b"\n")[:-1]
    assert refusal(b"".join(row + b"\n" for row in lines(rows))).startswith(said)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"format": 1}, "line 1: format version 1, where this release of refold reads 0: the file comes from a later release"),
        ({"format": -1}, "line 1: format version -1, where this release of refold reads 0: the file comes from an earlier"),
        ({"format": None}, "line 1: it names no format version"),
        ({"format": True}, "line 1: it names no format version"),
        ({"mood": 1}, "line 1: this release of refold does not know mood: the file comes from a later release"),
        ({"id": None}, "line 1: Object missing required field `id`"),
        ({"id": ""}, "line 1: Expected `str` of length >= 1 - at `$.id`"),
        ({"id": "a\x1b[2J"}, "line 1: the id 'a\\x1b[2J' holds what cannot be shown"),
        ({"id": "a\nb"}, "line 1: the id 'a\\nb' holds what cannot be shown"),
        ({"id": "a\u202eb"}, "line 1: the id 'a\\u202eb' holds what cannot be shown"),
        ({"tail": -1}, "line 1: Expected `int` >= 0 - at `$.tail`"),
        ({"tail": 40}, "line 43: there is more than the 41 events that line 1 announces"),
        ({"tail": 42}, "line 43: the file ends here, behind 42 of 43 events: it was cut off"),
        ({"createdAt": 1 << 63}, "line 1: "),
        ({"createdAt": 1 << 53}, "line 1: "),
        ({"cwd": "work"}, "line 1: cwd 'work' is no absolute path"),
        ({"cwd": "/w\0"}, "line 1: cwd '/w\\x00' is no absolute path"),
        ({"headDigest": "ab"}, "line 1: "),
        ({"headDigest": "ab" * 32}, "lines 2 to 43: "),
        ({"writers": [["w", 7], ["v", 7]]}, "line 9: "),
        ({"parent": {"session": "p", "at": 42, "digest": "ab" * 32}}, "line 1: it was forked at 42 and ends at 41"),
        ({"parent": {"session": "p", "at": 9, "digest": "ab" * 32}}, "line 11: lines 2 to 11 are not what the fork inherited"),
    ],
)
def test_a_first_line_that_cannot_be_is_refused(members: dict[str, object], said: str) -> None:
    assert refusal(with_record(small(), **members)).startswith(said)


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (-5, "line 2: event 0: its time -5 lies before 1970"),
        (1 << 53, "line 2: event 0: its time 9007199254740992 is none that a clock can have"),
        (10**30, "line 2: event 0: its time 1000000000000000000000000000000 is none that a clock can have"),
    ],
)
def test_a_time_that_no_clock_has_is_refused_whatever_the_digests_say(time: int, said: str) -> None:
    head, *lines = small().split(b"\n")[:-1]
    told = [re.sub(rb'"time":\d+', b'"time":%d' % time, line) for line in lines]
    data = b"\n".join([head, *told])
    assert refusal(with_record(data, headDigest=chain(told).hex())).startswith(said)


def test_a_member_that_stands_twice_is_refused() -> None:
    assert refusal(small().replace(b'"cwd":', b'"cwd":"/other","cwd":', 1)).startswith("line 1: not JSON: ")


def test_which_release_is_older_is_an_error_of_the_format() -> None:
    assert isinstance(outcome(with_record(small(), format=1)), SessionFormatUnsupportedError)


def test_the_last_line_break_may_be_missing() -> None:
    assert outcome(small()[:-1]) == small()


def test_a_session_that_is_there_is_not_imported_over_but_under_another_id() -> None:
    other = SessionId("another")

    async def work() -> None:
        store = await small_store()
        with pytest.raises(SessionAlreadyExistsError):
            await taken(store, small())
        record = await taken(store, small(), renamed=(other, 5_000))
        assert (record.id, record.created_at) == (other, 5_000)
        again = await exported(store, other)
        assert again.split(b"\n")[1:] == small().split(b"\n")[1:]
        assert json.loads(again.split(b"\n")[0]) == json.loads(small().split(b"\n")[0]) | {"id": other, "createdAt": 5_000}
        assert await exported(store) == small()

    run(work)


def test_a_line_that_never_ends_is_refused_before_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold_storage.session_file.MAX_LINE_BYTES", 10_000)
    lines = small().split(b"\n")
    assert refusal(b"\n".join([*lines[:3], b"x" * 30_000])).startswith("line 4: longer than the")
