"""Damage that a disk, a bug or a crash leaves in a store is found by `refold verify` in another process, and its place named:
the event or the events of its record, and which check it failed."""

from __future__ import annotations

import pytest

from tests.support.commands import Done, Here, there
from tests.support.copies import copied, unchanged
from tests.support.daemons import Json, Place
from tests.support.damage import Disk

Found = list[tuple[str, int, int | None]]


@pytest.fixture
def session(refold: Here) -> str:
    """A session of several records, with four requests."""
    return refold("run", "Where is the zebra?").session


@pytest.fixture
def disk(place: Place, session: str) -> Disk:
    """Its records."""
    found = Disk(place.store)
    assert session
    assert len(found.records) > 4
    return found


def places(done: Done) -> Found:
    """Give check, seq and last seq of each difference that `--json` names."""
    report: Json = done.values[0]["report"]
    return [(one["check"], one["seq"], one.get("last")) for one in report["differences"]]


def verified(refold: Here, session: str, *, checks: tuple[str, ...]) -> Found:
    """Verify in a process of its own, which must find something of exactly these checks; give what it found. People are told
    the same."""
    shown, told = refold("verify", session), there(refold.place, "verify", session, "--json")
    assert (shown.code, told.code, shown.err, told.err) == (1, 1, "", "")
    found = places(told)
    assert tuple(dict.fromkeys(check for check, _, _ in found)) == checks, found
    assert shown.lines[0].startswith("DIFFERS ")
    for (check, seq, last), line in zip(found, shown.lines[1:], strict=True):
        place_named = f"event {seq}" if last in (None, seq) else f"events {seq} to {last}"
        assert line.startswith(f"  {place_named}"), line
        assert f": {check}: " in line
    return found


def only(found: Found, check: str) -> tuple[int, int | None]:
    """Give the place of the only difference of a check."""
    ((_, seq, last),) = [one for one in found if one[0] == check]
    return seq, last


def test_a_flipped_letter_of_a_line_is_named_with_its_record(refold: Here, session: str, disk: Disk) -> None:
    """The line still decodes and no request holds it: only the chain can show it."""
    at, line = disk.line_with(b'"text-delta"')
    disk.change_line(at, line, b'"text":"', b'"text":"_')
    assert verified(refold, session, checks=("chain",)) == [
        ("chain", disk.records[at].record.first, disk.records[at].record.last)
    ]
    assert "a line of it was changed" in refold("verify", session).text


def test_a_flipped_letter_that_requests_hold_is_named_with_its_record_and_each_request(
    refold: Here, session: str, disk: Disk
) -> None:
    at, line = disk.line_with(b'"type":"user/message"')
    disk.change_line(at, line, b"Where", b"There")
    found = verified(refold, session, checks=("chain", "request", "body"))
    assert only(found, "chain") == (disk.records[at].record.first, disk.records[at].record.last)
    assert [check for check, _, _ in found[1:]] == ["request", "body"] * 4


def test_a_flipped_byte_after_which_a_line_is_no_event_is_named_with_the_event(refold: Here, session: str, disk: Disk) -> None:
    seq = disk.change_line(2, 5, b'{"type":', b'{"tYpe":')
    found = verified(refold, session, checks=("chain", "line"))
    assert only(found, "line") == (seq, None)
    assert only(found, "chain") == (disk.records[2].record.first, disk.records[2].record.last)


@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_changed_digest_in_the_head_of_a_record_is_told_from_changed_lines(
    refold: Here, session: str, disk: Disk, at: int
) -> None:
    """The next record, or the session's row, gives the lines right."""
    disk.change_digest(at)
    record = disk.records[at].record
    assert verified(refold, session, checks=("chain",)) == [("chain", record.first, record.last)]
    assert "its lines are right, its digest was changed" in refold("verify", session).text


@pytest.mark.parametrize(("at", "byte"), [(2, 0), (2, 1), (2, 2), (2, 3), (2, 7), (0, 3), (-1, 0), (-1, 3), (-1, 7)])
def test_a_flipped_byte_in_the_head_of_a_record_is_named_with_its_events(
    refold: Here, session: str, disk: Disk, at: int, byte: int
) -> None:
    """Version, flags, count and length: what is behind the record is checked all the same."""
    disk.flip(at, byte, 0x02)
    record = disk.records[at].record
    (found,) = verified(refold, session, checks=("record",))
    assert found == ("record", record.first, record.last)


@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_flipped_byte_anywhere_in_a_compressed_body_is_named_with_its_record(
    refold: Here, session: str, disk: Disk, at: int
) -> None:
    stored, export = disk.records[at], refold("export", session).out
    for byte in range(40, len(stored.value), 37):
        disk.flip(at, byte, 0x10)
        done = refold("verify", session, "--json")
        if done.code == 0:  # another way to deflate the same bytes
            assert refold("export", session).out == export
            continue
        assert done.code == 1
        check, seq, last = places(done)[0]
        assert check in ("record", "chain")
        assert (seq, last) == (stored.record.first, stored.record.last)
        assert not [one for one in places(done)[1:] if one[0] in ("record", "chain", "head")]
    disk.put(stored.key, stored.value)
    assert refold("verify", session).code == 0


def test_two_swapped_records_are_both_named(refold: Here, session: str, disk: Disk) -> None:
    disk.swap(2, 4)
    first, second = disk.records[2].record, disk.records[4].record
    done = there(refold.place, "verify", session, "--json")
    assert done.code == 1
    named = [seq for _, seq, _ in places(done)]
    assert named[0] == first.first
    assert second.first in named
    between = disk.records[3].record
    assert not [seq for seq in named if between.first <= seq <= between.last]
    assert not [seq for seq in named if seq > second.last]


@pytest.mark.parametrize(("at", "check"), [(0, "record"), (2, "record"), (-1, "head")])
def test_a_dropped_record_is_named_with_the_events_that_it_held(
    refold: Here, session: str, disk: Disk, at: int, check: str
) -> None:
    disk.drop(at)
    record = disk.records[at].record
    assert verified(refold, session, checks=(check,)) == [(check, record.first, record.last)]


def test_a_log_without_any_record_is_missing_from_its_first_event_on(refold: Here, session: str, disk: Disk) -> None:
    disk.drop(*range(len(disk.records)))
    assert verified(refold, session, checks=("head",)) == [("head", 0, disk.records[-1].record.last)]


@pytest.mark.parametrize(("at", "size"), [(0, 0), (2, 20), (2, 40), (2, 100), (-1, 0), (-1, 100)])
def test_a_record_that_was_cut_off_is_named_with_its_events(refold: Here, session: str, disk: Disk, at: int, size: int) -> None:
    disk.cut(at, size)
    record = disk.records[at].record
    assert verified(refold, session, checks=("record",)) == [("record", record.first, record.last)]


def test_a_log_that_was_cut_off_is_named_with_what_is_missing(refold: Here, session: str, disk: Disk) -> None:
    disk.drop(-1, -2, -3)
    (found,) = verified(refold, session, checks=("head",))
    assert found == ("head", disk.records[-3].record.first, disk.records[-1].record.last)


def test_a_row_that_ends_too_early_or_in_another_digest_is_named(refold: Here, session: str, disk: Disk) -> None:
    last = disk.records[-1].record.last
    disk.change_row(session, tail=last - 5)
    assert verified(refold, session, checks=("head",)) == [("head", last - 4, last)]
    disk.change_row(session, tail=last, headDigest="00" * 32)
    assert verified(refold, session, checks=("head",)) == [("head", last, None)]


def test_requests_before_the_damage_are_proven_all_the_same(refold: Here, session: str, disk: Disk) -> None:
    disk.drop(-1)
    report = there(refold.place, "verify", session, "--json").values[0]["report"]
    assert (report["requests"], report["equal"]) == (4, 4)
    assert report["events"] == disk.records[-1].record.first


def test_one_damaged_session_keeps_no_other_from_being_checked(place: Place, refold: Here, session: str, disk: Disk) -> None:
    others = [copied(place, session, unchanged) for _ in range(2)]
    damages = (lambda: disk.flip(-1, 1, 0x80), lambda: disk.cut(0, 3), lambda: disk.drop(1), lambda: disk.change_digest(2))
    for damage in damages:
        damage()
        done = there(place, "verify", "--all")
        assert done.code == 1
        assert [line.split()[-1] for line in done.lines if line.startswith("verified")] == others[::-1]
        assert done.lines[-1] == "3 sessions checked, 1 not verified"
        assert [one["verified"] for one in there(place, "verify", "--all", "--json").values] == [True, True, False]
        for stored in disk.records:
            disk.put(stored.key, stored.value)
    assert refold("verify", "--all").code == 0
