"""Writing at once takes what the kernel takes, never waits, and leaves the client's descriptors as they are."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from refold_server.rpc.shortcut import LARGEST_BYTES, Shortcut

PIECE = b"x" * 4096


def write_until_full(shortcut: Shortcut) -> int:
    written = 0
    while taken := shortcut.write(PIECE):
        written += taken
    return written


def test_a_pipe_is_filled_and_not_waited_for() -> None:
    reading, writing = os.pipe()
    shortcut = Shortcut(writing)
    assert write_until_full(shortcut) == 65_536
    assert os.get_blocking(writing)
    assert len(os.read(reading, 8192)) == 8192
    assert shortcut.write(PIECE) == 4096
    shortcut.close()
    assert shortcut.write(PIECE) == 0
    os.close(writing)
    assert len(os.read(reading, 1 << 20)) == 65_536 - 4096
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_socket_is_filled_and_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    shortcut = Shortcut(theirs.fileno())
    written = write_until_full(shortcut)
    assert written > 0
    assert theirs.getblocking()
    shortcut.close()
    theirs.close()
    with ours.makefile("rb") as file:
        assert len(file.read()) == written
    ours.close()


def test_a_pipe_that_nobody_reads_takes_nothing() -> None:
    reading, writing = os.pipe()
    shortcut = Shortcut(writing)
    os.close(reading)
    assert shortcut.write(PIECE) == 0
    assert Shortcut(writing).write(PIECE) == 0
    shortcut.close()
    os.close(writing)


def test_what_is_large_is_left_to_the_thread() -> None:
    reading, writing = os.pipe()
    shortcut = Shortcut(writing)
    assert shortcut.write(b"x" * (LARGEST_BYTES + 1)) == 0
    shortcut.close()
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize("name", ["file", "/dev/null"])
def test_elsewhere_nothing_is_written(tmp_path: Path, name: str) -> None:
    descriptor = os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT)
    shortcut = Shortcut(descriptor)
    assert shortcut.write(PIECE) == 0
    shortcut.close()
    os.close(descriptor)
