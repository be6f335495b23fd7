"""What leaves a connection is whole frames, whoever writes them and however little the client reads at a time.

Writing at once takes what the kernel takes, never waits, and leaves the client's descriptors as they are.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame
from refold_server.rpc.lanes import AT_ONCE_BYTES, BATCH_BYTES, Lanes, WriterThread, WritesAtOnce

PIECE = b"x" * 4096


def write_until_full(at_once: WritesAtOnce) -> int:
    written = 0
    while taken := at_once.write(PIECE):
        written += taken
    return written


def test_a_pipe_is_filled_and_not_waited_for() -> None:
    reading, writing = os.pipe()
    at_once = WritesAtOnce(writing)
    assert write_until_full(at_once) == 65_536
    assert os.get_blocking(writing)
    assert len(os.read(reading, 8192)) == 8192
    assert at_once.write(PIECE) == 4096
    at_once.close()
    assert at_once.write(PIECE) == 0
    os.close(writing)
    assert len(os.read(reading, 1 << 20)) == 65_536 - 4096
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_socket_is_filled_and_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    at_once = WritesAtOnce(theirs.fileno())
    written = write_until_full(at_once)
    assert written > 0
    assert theirs.getblocking()
    at_once.close()
    theirs.close()
    with ours.makefile("rb") as file:
        assert len(file.read()) == written
    ours.close()


def test_a_pipe_that_nobody_reads_takes_nothing() -> None:
    reading, writing = os.pipe()
    at_once = WritesAtOnce(writing)
    os.close(reading)
    assert at_once.write(PIECE) == 0
    assert WritesAtOnce(writing).write(PIECE) == 0
    at_once.close()
    os.close(writing)


def test_what_is_large_is_left_to_the_thread() -> None:
    reading, writing = os.pipe()
    at_once = WritesAtOnce(writing)
    assert at_once.write(b"x" * (AT_ONCE_BYTES + 1)) == 0
    at_once.close()
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize("name", ["file", "/dev/null"])
def test_elsewhere_nothing_is_written(tmp_path: Path, name: str) -> None:
    descriptor = os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT)
    at_once = WritesAtOnce(descriptor)
    assert at_once.write(PIECE) == 0
    at_once.close()
    os.close(descriptor)


Step = tuple[str, int]
"""`message` or `event` with the size of a body, or `write` with how many bytes the kernel takes."""

SIZES = st.one_of(st.integers(4, 40), st.sampled_from([4_000, 4_096, 9_000, BATCH_BYTES, 70_000]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["message", "event"]), SIZES),
        st.tuples(st.just("write"), st.sampled_from([0, 1, 50, 4_096, 65_536, 1 << 20])),
    ),
    max_size=40,
)


def body_of(kind: str, number: int, size: int) -> bytes:
    return f"{kind[0]}{number:03}".encode().ljust(size, b".")


def bodies_in(data: bytes) -> list[bytes]:
    """The bodies of what must be whole frames and nothing else."""
    frames = FrameReader()
    events = frames.feed(data)
    assert not frames.mid_frame
    assert all(isinstance(event, Frame) for event in events)
    return [event.body for event in events if isinstance(event, Frame)]


def drained(lanes: Lanes) -> bytes:
    """Everything that is left, written in pieces."""
    out = b""
    while piece := lanes.piece():
        out += piece[:30_000]
        lanes.written(len(piece[:30_000]))
    return out


@given(steps=STEPS)
def test_bytes_out_are_whole_frames_each_lane_in_order_and_messages_before_events_that_wait(steps: list[Step]) -> None:
    lanes, out, waiting, added = Lanes(), b"", 0, {"message": 0, "event": 0}
    ahead: list[tuple[int, int]] = []  # the number of a message, and where in the output its lane's turn came
    for kind, size in steps:
        if kind == "write":
            piece = lanes.piece()
            assert bool(piece) == (lanes.unwritten > 0)
            out += piece[:size]
            lanes.written(len(piece[:size]))
            waiting = len(piece[size:])
            continue
        body = body_of(kind, added[kind], size)
        added[kind] += 1
        (lanes.add if kind == "message" else lanes.add_event)(encode_frame(body))
        if kind == "message":
            ahead.append((added[kind] - 1, len(out) + waiting))
    out += drained(lanes)
    bodies = bodies_in(out)
    for kind, count in added.items():
        assert [body[:4] for body in bodies if body[:1] == kind[:1].encode()] == [body_of(kind, n, 4) for n in range(count)]
    for number, begun in ahead:
        later = [body[:4] for body in bodies_in(out[begun:])]
        earlier = later[: later.index(body_of("message", number, 4))]
        assert not [body for body in earlier if body.startswith(b"e")], "an event that waited went before a message"
    assert (lanes.unsent, lanes.unsent_bytes, lanes.unwritten) == (0, 0, 0)


@contextmanager
def switching(seed: int) -> Generator[None]:
    """Let other threads run at lines of the writer that are drawn from `seed`, in whichever thread they run."""
    chance, before, before_in_threads = random.Random(seed), sys.gettrace(), threading.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith("rpc/writer.py"):
            return None
        if chance.random() < 0.3:
            time.sleep(0)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)  # pyright: ignore[reportArgumentType]  # None where nothing traced


def read_slowly(descriptor: int, seed: int, into: list[bytes]) -> None:
    chance = random.Random(seed)
    while data := os.read(descriptor, chance.choice((1, 512, 4_096, 65_536))):
        into.append(data)
        if chance.random() < 0.3:
            time.sleep(0)
    os.close(descriptor)


async def sent_through_a_pipe(frames: list[tuple[str, bytes]], seed: int) -> bytes:
    """What a client reads that leaves little room in its pipe."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4_096 if seed % 2 else 8_192)
    closed, out, chance = asyncio.Event(), list[bytes](), random.Random(seed)
    reader = threading.Thread(target=read_slowly, args=(reading, seed, out))
    reader.start()
    with switching(seed):
        writer = WriterThread(writing, asyncio.get_running_loop(), lambda: None, closed.set)
        writer.start()
        for kind, frame in frames:
            (writer.send if kind == "message" else writer.send_event)(frame)
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        writer.close()
        await closed.wait()
    await asyncio.to_thread(reader.join)
    return b"".join(out)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.sampled_from(["message", "event"]), st.sampled_from([8, 200, 5_000, 9_000])), max_size=30),
    seed=st.integers(0, 1 << 20),
)
def test_whole_frames_leave_whenever_the_threads_take_turns(sizes: list[Step], seed: int) -> None:
    numbered = [(kind, body_of(kind, number, size)) for number, (kind, size) in enumerate(sizes)]
    out = asyncio.run(sent_through_a_pipe([(kind, encode_frame(body)) for kind, body in numbered], seed))
    bodies = bodies_in(out)
    for kind in ("message", "event"):
        sent = [body for name, body in numbered if name == kind]
        assert [body for body in bodies if body[:1] == kind[:1].encode()] == sent
