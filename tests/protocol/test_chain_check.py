"""A change is found in the record that holds it and nowhere else; what was changed is told where the next digest shows it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.codec import CHAIN_START, chain, chain_step
from refold_protocol.verify import Break, ChainCheck

RUNS = st.lists(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=4), min_size=1, max_size=6)


def _recorded(runs: list[list[bytes]]) -> list[tuple[list[bytes], bytes]]:
    """Give the runs as records, each with the chain's digest at its end."""
    digest, records = CHAIN_START, list[tuple[list[bytes], bytes]]()
    for lines in runs:
        digest = chain(lines, digest)
        records.append((list(lines), digest))
    return records


def _checked(records: list[tuple[list[bytes], bytes]], misplaced: tuple[int, ...] = ()) -> ChainCheck:
    check, seq = ChainCheck(), 0
    for at, (lines, digest) in enumerate(records):
        for line in lines:
            check.feed(line)
        check.end_record(seq, seq + len(lines) - 1, digest, misplaced=at in misplaced)
        seq += len(lines)
    return check


def _seqs(records: list[tuple[list[bytes], bytes]], at: int) -> tuple[int, int]:
    first = sum(len(lines) for lines, _ in records[:at])
    return first, first + len(records[at][0]) - 1


def _places(check: ChainCheck) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in check.breaks]


@given(RUNS)
def test_a_whole_log_has_no_break(runs: list[list[bytes]]) -> None:
    records = _recorded(runs)
    check = _checked(records)
    assert check.breaks == ()
    assert check.digest == records[-1][1]
    assert check.agrees(records[-1][1])
    assert not check.agrees(CHAIN_START)


@given(RUNS, st.data())
def test_one_changed_line_is_one_break_at_its_record(runs: list[list[bytes]], data: st.DataObject) -> None:
    records = _recorded(runs)
    head = records[-1][1]
    at = data.draw(st.integers(0, len(records) - 1))
    line = data.draw(st.integers(0, len(records[at][0]) - 1))
    records[at][0][line] += b"!"
    check = _checked(records)
    assert check.agrees(head)
    assert _places(check) == [_seqs(records, at)]
    assert check.breaks[0].message.startswith("a line of it was changed: its lines give ")


@given(RUNS, st.data())
def test_one_changed_digest_is_one_break_and_told_from_a_changed_line(runs: list[list[bytes]], data: st.DataObject) -> None:
    records = _recorded(runs)
    head = records[-1][1]
    at = data.draw(st.integers(0, len(records) - 1))
    records[at] = (records[at][0], CHAIN_START)
    check = _checked(records)
    assert check.agrees(head)
    assert _places(check) == [_seqs(records, at)]
    assert check.breaks[0].message.startswith("its lines are right, its digest was changed: ")
    assert CHAIN_START.hex() in check.breaks[0].message


def test_a_digest_that_neither_way_gives_is_a_break_of_its_own() -> None:
    records = _recorded([[b"a"], [b"b"], [b"c"]])
    records[0][0][0] = b"A"
    records[1][0][0] = b"B"
    check = _checked(records)
    assert check.agrees(records[2][1])
    assert _places(check) == [(0, 0), (1, 1)]
    assert [one.message.startswith("a line of it was changed: ") for one in check.breaks] == [False, True]


def test_a_break_at_the_end_stays_unexplained_until_the_row_explains_it() -> None:
    records = _recorded([[b"a"], [b"b"]])
    head = records[1][1]
    records[1][0][0] = b"B"
    check = _checked(records)
    wrong = chain_step(records[0][1], b"B")
    assert check.breaks == (Break(1, 1, f"its lines give {wrong.hex()}, the record says {head.hex()}"),)
    assert not check.agrees(CHAIN_START)
    assert check.agrees(wrong)
    assert check.breaks[0].message.startswith("its lines are right")


def test_behind_a_gap_a_record_is_believed_and_the_next_is_checked_again() -> None:
    records = _recorded([[b"a"], [b"b"], [b"c"], [b"d"]])
    check = ChainCheck()
    check.lose(None)
    assert check.digest is None
    assert check.agrees(CHAIN_START)
    check.feed(b"what comes behind a gap")
    check.end_record(1, 1, records[1][1])
    assert check.breaks == ()
    check.feed(b"c")
    check.end_record(2, 2, records[2][1])
    check.feed(b"D")
    check.end_record(3, 3, records[3][1])
    assert _places(check) == [(3, 3)]


def test_behind_a_gap_whose_last_digest_is_known_nothing_is_believed() -> None:
    records = _recorded([[b"a"], [b"b"]])
    check = ChainCheck()
    check.lose(records[0][1])
    check.feed(b"B")
    check.end_record(1, 1, records[1][1])
    assert _places(check) == [(1, 1)]


def test_a_record_behind_a_misplaced_one_is_not_blamed() -> None:
    records = _recorded([[b"a"], [b"b"], [b"c"], [b"d"]])
    records[0], records[2] = records[2], records[0]
    head = records[3][1]
    check = _checked(records, misplaced=(0, 2))
    assert _places(check) == [(0, 0), (2, 2)]
    assert check.agrees(head)
    assert not check.agrees(CHAIN_START)
