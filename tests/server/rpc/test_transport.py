"""Transports keep their promises: the double, pipes and sockets pass one suite; files work too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame
from refold_server.rpc.descriptors import Descriptors
from refold_server.rpc.stdio import StdioTransport
from tests.support.carriers import CARRIERS, Carrier, Recorder, over_pipes

pytestmark = pytest.mark.anyio

LARGE = b"x" * 300_000
"""More than a pipe or a socket holds, and more than events may leave unwritten."""


@pytest.fixture(params=list(CARRIERS))
async def carrier(request: pytest.FixtureRequest) -> AsyncIterator[Carrier]:
    made = CARRIERS[request.param]()
    yield made
    made.end()
    made.hang_up()
    made.transport.close()


@pytest.fixture
async def recorder(carrier: Carrier) -> Recorder:
    recorder = Recorder()
    carrier.transport.start(recorder.hooks())
    return recorder


async def test_what_the_client_sends_arrives_in_order_and_then_its_end(carrier: Carrier, recorder: Recorder) -> None:
    carrier.put(b"one ")
    carrier.put(b"two ")
    carrier.put(b"three")
    carrier.end()
    await recorder.until(lambda: recorder.ended)
    assert recorder.received == b"one two three"


async def test_what_was_sent_before_the_start_arrives(carrier: Carrier) -> None:
    carrier.put(b"early")
    recorder = Recorder()
    carrier.transport.start(recorder.hooks())
    await recorder.until(lambda: recorder.received == b"early")


async def test_messages_arrive_in_order(carrier: Carrier, recorder: Recorder) -> None:
    carrier.read_on()
    bodies = [b"%d" % number for number in range(500)]
    for body in bodies:
        carrier.transport.send(encode_frame(body))
    assert await carrier.bodies(500) == bodies


async def test_messages_of_all_sizes_arrive_whole_and_in_order(carrier: Carrier, recorder: Recorder) -> None:
    carrier.read_on()
    sizes = [0, 1, 4095, 4096, 4097, 65_000, 65_536, 70_000, 300_000]
    bodies = [b"%d" % (number % 10) * sizes[number * number % len(sizes)] for number in range(200)]
    for body in bodies:
        carrier.transport.send(encode_frame(body))
        await asyncio.sleep(0)
    assert await carrier.bodies(200) == bodies


async def test_messages_go_before_events_that_wait(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.send(encode_frame(LARGE))
    carrier.transport.send_event(encode_frame(b"event 1"))
    carrier.transport.send_event(encode_frame(b"event 2"))
    carrier.transport.send(encode_frame(b"reply"))
    carrier.read_on()
    assert await carrier.bodies(4) == [LARGE, b"reply", b"event 1", b"event 2"]


async def test_unsent_counts_messages_that_the_client_has_not_taken_and_no_events(carrier: Carrier, recorder: Recorder) -> None:
    frames = [encode_frame(LARGE), encode_frame(b"{}"), encode_frame(b"{}")]
    for frame in frames:
        carrier.transport.send(frame)
    carrier.transport.send_event(encode_frame(LARGE))
    assert carrier.transport.unsent == 3
    assert carrier.transport.unsent_bytes == sum(map(len, frames))
    carrier.read_on()
    await carrier.transport.drained()
    assert (carrier.transport.unsent, carrier.transport.unsent_bytes) == (0, 0)


async def test_events_have_room_until_so_much_is_unwritten_and_again_when_it_was_read(
    carrier: Carrier, recorder: Recorder
) -> None:
    assert await carrier.transport.events_room()
    carrier.transport.send_event(encode_frame(LARGE))
    waiting = asyncio.create_task(carrier.transport.events_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    carrier.read_on()
    assert await waiting


async def test_a_wait_for_room_ends_when_the_client_hangs_up(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.send_event(encode_frame(LARGE))
    waiting = asyncio.create_task(carrier.transport.events_room())
    await asyncio.sleep(0)
    carrier.hang_up()
    assert not await waiting


async def test_a_cancelled_wait_for_room_leaves_the_others_waiting(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.send_event(encode_frame(LARGE))
    cancelled = asyncio.create_task(carrier.transport.events_room())
    waiting = asyncio.create_task(carrier.transport.events_room())
    await asyncio.sleep(0)
    cancelled.cancel()
    carrier.read_on()
    assert await waiting


async def test_drained_waits_for_the_client_and_not_for_one_who_hung_up(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.send(encode_frame(LARGE))
    waiting = asyncio.create_task(carrier.transport.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    carrier.hang_up()
    await waiting


async def test_watch_tells_once_when_something_was_read(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.send(encode_frame(LARGE))
    carrier.transport.watch()
    await asyncio.sleep(0)
    assert recorder.progressed == 0
    carrier.read_on()
    await recorder.until(lambda: recorder.progressed > 0)
    await carrier.transport.drained()


async def test_watch_tells_soon_where_nothing_waits(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.watch()
    await recorder.until(lambda: recorder.progressed == 1)


async def test_a_client_that_hangs_up_is_told_once_and_later_frames_are_dropped(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.send(encode_frame(LARGE))
    carrier.hang_up()
    await recorder.until(lambda: recorder.closed == 1)
    carrier.transport.send(encode_frame(LARGE))
    carrier.transport.send_event(encode_frame(LARGE))
    assert carrier.transport.unsent == 0
    await carrier.transport.drained()
    assert recorder.closed == 1


async def test_a_pause_leaves_bytes_with_the_client_and_none_are_lost(carrier: Carrier, recorder: Recorder) -> None:
    carrier.put(b"a")
    await recorder.until(lambda: recorder.received == b"a")
    carrier.transport.pause()
    carrier.put(b"b")
    await asyncio.sleep(0)
    carrier.transport.resume()
    carrier.put(b"c")
    await recorder.until(lambda: recorder.received == b"abc")


async def test_reading_goes_on_while_the_client_does_not_read(carrier: Carrier, recorder: Recorder) -> None:
    carrier.transport.send(encode_frame(LARGE))
    carrier.put(b"still heard")
    carrier.end()
    await recorder.until(lambda: recorder.ended)
    assert recorder.received == b"still heard"


async def test_a_flood_is_read_only_so_far_ahead_of_the_loop() -> None:
    """A busy loop leaves the flood in the client's pipe: the reader stops at its bound and goes on from there."""
    carrier, recorder = over_pipes(), Recorder()
    sent = b"y" * (4 << 20)
    carrier.transport.start(recorder.hooks())
    await asyncio.to_thread(carrier.put, sent)
    carrier.end()
    await recorder.until(lambda: recorder.ended)
    assert recorder.received == sent
    carrier.hang_up()
    carrier.transport.close()


async def test_files_serve_as_input_and_output(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"from a file")
    reading = os.open(tmp_path / "in", os.O_RDONLY)
    writing = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    transport, recorder = StdioTransport(Descriptors(reading, writing)), Recorder()
    transport.start(recorder.hooks())
    transport.send(encode_frame(b"to a file"))
    await recorder.until(lambda: recorder.ended)
    await transport.drained()
    transport.close()
    await recorder.until(lambda: recorder.closed == 1)
    assert recorder.received == b"from a file"
    assert FrameReader().feed((tmp_path / "out").read_bytes()) == [Frame(b"to a file")]
