"""The bytes of a record: what goes in comes out, and no damage goes unnoticed."""

from __future__ import annotations

import zlib
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold_protocol.errors import SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.session.codec import CHUNK, seal
from refold_storage.records import HEAD_BYTES, PRESET_DICTIONARY, bare_record, decode_record, encode_record, record_head, run_of
from tests.support.stores import chunks

DIGEST = bytes(range(32))
LINES = st.lists(st.binary(min_size=1, max_size=200).map(lambda line: line.replace(b"\n", b" ")), min_size=1, max_size=300)


def chunk_lines(count: int, first: int = 0) -> list[bytes]:
    """Lines as a stream gives them."""
    return [seal(draft, first + at, 1_700_000_000_000 + at * 20).line for at, draft in enumerate(chunks(count))]


def test_the_preset_dictionary_is_part_of_the_format_and_never_changes() -> None:
    assert sha256(PRESET_DICTIONARY).hexdigest() == "ab44e7b187d68d419b275ab2abfe27b6aa4481db9f04a254b3aeba5208ac1314"


def test_the_head_has_the_fields_of_the_format_at_their_places() -> None:
    value = encode_record([b"{}", b"[]"], DIGEST)
    assert HEAD_BYTES == 40
    assert value == b"\x00\x00" + (2).to_bytes(2, "big") + (5).to_bytes(4, "big") + DIGEST + b"{}\n[]"


def test_the_body_is_raw_deflate_with_the_preset_dictionary() -> None:
    lines = [*chunk_lines(50), b"{}"]
    value = encode_record(lines, DIGEST)
    assert value[1] == 1
    inflater = zlib.decompressobj(-15, PRESET_DICTIONARY)
    assert inflater.decompress(value[40:]) == b"\n".join(lines)
    assert inflater.eof


@given(lines=LINES, digest=st.binary(min_size=32, max_size=32), first=st.integers(0, 2**60))
def test_what_was_written_is_read(lines: list[bytes], digest: bytes, first: int) -> None:
    value = encode_record(lines, digest)
    assert decode_record(first, value) == run_of(first, tuple(lines), digest)
    head = record_head(first, value)
    assert (head.first, head.last, head.count, head.digest) == (first, first + len(lines) - 1, len(lines), digest)
    assert len(value) <= HEAD_BYTES + len(b"\n".join(lines))


@given(value=st.binary(max_size=400))
@example(value=b"")
@example(value=bytes(39))
@example(value=b"\x00\x01\x00\x01\x00\x00\x00\x00" + DIGEST)
@example(value=b"\x00\x01\x00\x01\xff\xff\xff\xff" + DIGEST + zlib.compress(b"x" * 10_000))
def test_any_bytes_are_a_record_or_refused(value: bytes) -> None:
    try:
        record = decode_record(7, value)
    except (SessionCorruptionError, SessionFormatUnsupportedError) as error:
        seq = error.details["seq"]
    else:
        seq = record.last + 1
        assert len(record.lines) == int.from_bytes(value[2:4], "big")
    assert seq >= 7


@given(count=st.integers(1, 60), mixed=st.booleans(), at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_of_a_head_goes_unnoticed(count: int, mixed: bool, at: int, bit: int) -> None:
    value = bytearray(encode_record([*chunk_lines(count), *([b"{}"] if mixed else [])], DIGEST))
    at %= 8
    value[at] ^= 1 << bit
    with pytest.raises((SessionCorruptionError, SessionFormatUnsupportedError)):
        decode_record(0, bytes(value))


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_cut_record_is_refused_with_its_seq(cut: int) -> None:
    value = encode_record(chunk_lines(50, 100), DIGEST)
    with pytest.raises(SessionCorruptionError) as caught:
        decode_record(100, value[:-cut])
    assert caught.value.details["seq"] == 100


def test_bytes_behind_a_deflated_body_are_refused() -> None:
    with pytest.raises(SessionCorruptionError, match="end where it should"):
        decode_record(0, encode_record(chunk_lines(50), DIGEST) + b"x")


@pytest.mark.parametrize("count", [1, 50])
def test_a_run_of_chunks_alone_is_marked_and_its_head_stands_for_it(count: int) -> None:
    lines = chunk_lines(count, 5)
    value = encode_record(lines, DIGEST)
    head = record_head(5, value)
    assert head.chunks
    assert bare_record(head) == run_of(5, (CHUNK,) * count, DIGEST)
    assert decode_record(5, value) == run_of(5, tuple(lines), DIGEST)
    for mixed in ([*lines, b"{}"], [b"{}", *lines]):
        assert not record_head(5, encode_record(mixed, DIGEST)).chunks


def test_a_record_that_is_marked_as_chunks_alone_and_is_not_is_refused() -> None:
    value = bytearray(encode_record([*chunk_lines(50), b"{}"], DIGEST))
    value[1] |= 6
    with pytest.raises(SessionCorruptionError, match="chunks alone") as caught:
        decode_record(3, bytes(value))
    assert caught.value.details["seq"] == 3


@pytest.mark.parametrize("flags", [2, 3, 4, 5])
def test_half_a_mark_is_refused_by_who_reads_the_head_alone(flags: int) -> None:
    value = bytearray(encode_record([*chunk_lines(50), b"{}"], DIGEST))
    value[1] = flags
    with pytest.raises(SessionFormatUnsupportedError):
        record_head(3, bytes(value))


def test_a_run_of_chunks_that_was_written_before_there_was_a_mark_is_read() -> None:
    value = bytearray(encode_record(chunk_lines(50), DIGEST))
    value[1] &= 1
    assert decode_record(0, bytes(value)) == run_of(0, tuple(chunk_lines(50)), DIGEST)


@pytest.mark.parametrize(("offset", "value"), [(0, 1), (1, 2), (1, 3), (1, 4), (1, 128)])
def test_another_version_or_an_unknown_flag_is_refused_and_not_guessed(offset: int, value: int) -> None:
    record = bytearray(encode_record([b"{}"], DIGEST))
    record[offset] = value
    with pytest.raises(SessionFormatUnsupportedError) as caught:
        decode_record(3, bytes(record))
    assert caught.value.details["seq"] == 3
