"""Where records begin and end: bounded in events and bytes, nothing lost, and small commits do not make small records."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from refold_protocol.session.codec import CHAIN_START, chain_step, seal
from refold_storage.records import MAX_EVENTS, MAX_RUN_BYTES, Packed, decode_record, pack
from tests.support.stores import chunks, tool_result

SIZES = st.lists(st.sampled_from((1, 1, 1, 5, 40, 300, 900, 2_500, 9_000)), min_size=1, max_size=40)


def lines_for(sizes: list[int], first: int = 0) -> list[bytes]:
    """Lines of which each deflates to about its size."""
    return [seal(tool_result(size, ""), first + at, 1_700_000_000_000).line for at, size in enumerate(sizes)]


def digests_of(lines: list[bytes]) -> list[bytes]:
    """The chain's digest after each line."""
    digest, digests = CHAIN_START, list[bytes]()
    for line in lines:
        digest = chain_step(digest, line)
        digests.append(digest)
    return digests


def check(packed: list[Packed], first: int, lines: list[bytes], digests: list[bytes]) -> None:
    """Records follow each other, hold all lines, have the right digests, and keep the bounds."""
    seq = first
    for record in packed:
        decoded = decode_record(record.first, record.value)
        assert record.first == seq
        assert record.count == len(decoded.lines) <= MAX_EVENTS
        assert list(decoded.lines) == lines[seq - first : seq - first + record.count]
        assert decoded.digest == digests[seq - first + record.count - 1]
        assert len(record.value) <= MAX_RUN_BYTES or record.count == 1
        seq += record.count
    assert seq == first + len(lines)


@settings(max_examples=60)
@given(sizes=SIZES, first=st.integers(0, 10**6))
def test_records_hold_every_line_once_and_keep_their_bounds(sizes: list[int], first: int) -> None:
    lines = lines_for(sizes, first)
    digests = digests_of(lines)
    check(pack(first, lines, digests), first, lines, digests)


@settings(max_examples=60)
@given(sizes=SIZES, parts=st.lists(st.integers(1, 7), min_size=1, max_size=10))
def test_extending_the_last_record_by_parts_holds_every_line_once(sizes: list[int], parts: list[int]) -> None:
    lines = lines_for(sizes)
    digests = digests_of(lines)
    stored: dict[int, Packed] = {}
    last: Packed | None = None
    at = 0
    while at < len(lines):
        end = min(at + parts[at % len(parts)], len(lines))
        settled = last.count if last is not None and last.may_grow else 0
        packed = pack(at - settled, lines[at - settled : end], digests[at:end], settled)
        stored.update({record.first: record for record in packed})
        last, at = packed[-1], end
        check([stored[first] for first in sorted(stored)], 0, lines[:at], digests[:at])


def test_a_stream_in_small_commits_is_packed_like_one_in_large_ones() -> None:
    lines = [seal(draft, at, 1_700_000_000_000 + at * 11).line for at, draft in enumerate(chunks(3_000))]
    digests = digests_of(lines)
    at_once = len(pack(0, lines, digests))
    records = 0
    run = 0
    for at in range(0, 3_000, 20):
        packed = pack(at - run, lines[at - run : at + 20], digests[at : at + 20], run)
        records += sum(record.first >= at for record in packed) if run else len(packed)
        run = packed[-1].count if packed[-1].may_grow else 0
    assert records <= at_once * 1.2


def test_a_chunk_of_a_stream_takes_few_bytes() -> None:
    lines = [seal(draft, at, 1_700_000_000_000 + at * 11).line for at, draft in enumerate(chunks(2_000))]
    packed = pack(0, lines, digests_of(lines))
    assert sum(len(record.value) + 24 for record in packed) / len(lines) < 16


def test_a_large_event_stands_alone_between_small_ones_that_are_packed() -> None:
    lines = [*lines_for([1] * 10), *lines_for([50_000], 10), *lines_for([1] * 10, 11)]
    assert [record.count for record in pack(0, lines, digests_of(lines))] == [10, 1, 10]


def test_a_full_record_is_left_as_it_is() -> None:
    lines = [seal(draft, at, 1_700_000_000_000).line for at, draft in enumerate(chunks(MAX_EVENTS + 1))]
    packed = pack(0, lines, digests_of(lines)[MAX_EVENTS:], MAX_EVENTS)
    assert [(record.first, record.count) for record in packed] == [(MAX_EVENTS, 1)]
