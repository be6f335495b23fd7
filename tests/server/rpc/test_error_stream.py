"""Standard error of a daemon: nobody who writes waits, what finds no place is counted, what has a place is written."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from refold_server.rpc.error_stream import LEFT_OUT, ErrorQueue


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:  # the test closed it
            continue


def read_lines(reading: int) -> list[bytes]:
    with os.fdopen(os.dup(reading), "rb") as file:
        return file.readlines()


def test_what_is_written_arrives_in_its_order(pipe: tuple[int, int]) -> None:
    queue, lines = ErrorQueue(pipe[1]), [b"line %d\n" % number for number in range(1_000)]
    for line in lines:
        queue.write(line)
    assert queue.end(60)
    os.close(pipe[1])
    assert read_lines(pipe[0]) == lines


def test_whoever_writes_never_waits_and_what_was_left_out_is_counted(pipe: tuple[int, int]) -> None:
    queue, lines = ErrorQueue(pipe[1], room=100_000), [b"%06d\n" % number for number in range(100_000)]
    for line in lines:
        queue.write(line)
    assert not queue.end(0)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.extend(read_lines(pipe[0])))
    reader.start()
    assert queue.end(60)
    os.close(pipe[1])
    reader.join()
    *kept, note = read
    assert kept == lines[: len(kept)]
    assert note == LEFT_OUT % (len(lines) - len(kept))
    assert len(kept) <= (100_000 + 65_536) // 7 + 1


def test_there_is_room_again_for_a_reader_who_comes_back(pipe: tuple[int, int]) -> None:
    queue = ErrorQueue(pipe[1], room=100_000)
    for _ in range(50_000):
        queue.write(b"early\n")
    reading = os.fdopen(os.dup(pipe[0]), "rb")
    while not (line := reading.readline()).startswith(b"refold: "):
        assert line == b"early\n"
    queue.write(b"late\n")
    assert queue.end(60)
    os.close(pipe[1])
    assert reading.readlines() == [b"late\n"]
    reading.close()


def test_a_reader_that_is_gone_is_no_trouble(pipe: tuple[int, int]) -> None:
    queue = ErrorQueue(pipe[1])
    os.close(pipe[0])
    for _ in range(100):
        assert queue.write(b"x" * 50_000) == 50_000
    assert queue.end(60)
