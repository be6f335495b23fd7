"""CPU of the connection: microseconds per outgoing notification and per request with its reply.

Run it alone: `python tests/bench/bench_rpc.py`. The figures are CPU time of the daemon's process (all its threads), or of
this process where nothing is sent; medians of ROUNDS runs. The client reads with large reads and parses afterwards.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec
from msgspec import Raw, Struct

from refold_protocol.rpc.envelope import RpcRequest, decode_message, encode_notification, encode_result
from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame
from refold_server import boot
from refold_server.rpc.connection import Endpoint, stdio_endpoint
from refold_server.rpc.descriptors import Handover
from refold_server.rpc.dispatch import Service
from refold_server.rpc.method import Method, decode_params
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.notices import SessionEventsNotice
from refold_server.rpc.turn_methods import TurnStartParams, TurnStartResult

ROUNDS = 5
COUNT = 20_000
LINE = Raw(
    b'{"type":"assistant/chunk","seq":123456,"time":1700000000000,"data":{"turn":3,"step":1,"attempt":1,'
    b'"chunk":{"type":"text-delta","index":0,"text":" word"}}}'
)
START = (
    b'{"jsonrpc":"2.0","id":17,"method":"turn/start","params":{"session":"018f0000-0000-7000-8000-000000000001",'
    b'"content":[{"type":"text","text":"What does main do, and where is it called?"}]}}'
)


class Count(Struct, frozen=True):
    """How many notifications, and how many events in each."""

    count: int
    events: int = 1


class Bench:
    """The daemon that is measured."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def service(self) -> Service:
        """Give the handlers."""
        rows = {
            "bench/stream": Method("bench/stream", "to-daemon", "request", Count, None, ""),
            "bench/cpu": Method("bench/cpu", "to-daemon", "request", None, None, ""),
        }
        handlers = {"bench/stream": self.stream, "bench/cpu": self.cpu, "turn/start": self.start}
        return Service(handlers, lambda params, raw: None, METHODS | rows)

    async def stream(self, params: Count) -> float:
        """Send notifications as a publisher does; give the CPU seconds that the process used, writing included."""
        before = time.process_time()
        for seq in range(params.count):
            await self._endpoint.events_room()
            self._endpoint.send_events(SessionEventsNotice(1, (LINE,) * params.events, seq - 1, seq, seq))
        while not await self._endpoint.events_room():
            pass
        return time.process_time() - before

    async def cpu(self, params: None) -> float:
        """Give the CPU seconds of the process so far."""
        return time.process_time()

    async def start(self, params: TurnStartParams) -> TurnStartResult:
        """Answer like turn/start."""
        return TurnStartResult(msgspec.convert("i", str), 17, 3)  # pyright: ignore[reportArgumentType]


def serve(handover: Handover) -> int:
    """Serve the connection."""
    return asyncio.run(_serve(handover))


async def _serve(handover: Handover) -> int:
    endpoint = stdio_endpoint(handover)

    async def end(reason: str) -> None:
        pass

    return await endpoint.run(Bench(endpoint).service(), end)


class Client:
    """Writes frames and counts what comes back."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "daemon"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._frames = FrameReader()
        self.seen = 0
        self.call(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')

    def write(self, data: bytes) -> None:
        """Send bytes."""
        assert self.process.stdin is not None
        while data:
            data = data[os.write(self.process.stdin.fileno(), data) :]

    def read(self) -> list[bytes]:
        """Give the bodies of one large read."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        bodies = [event.body for event in self._frames.feed(data) if isinstance(event, Frame)]
        self.seen += len(bodies)
        return bodies

    def call(self, body: bytes) -> Any:
        """Send a request and wait for its result; notifications on the way are counted only."""
        self.write(encode_frame(body))
        while True:
            for message in self.read():
                if b'"result"' in message[:60]:
                    return msgspec.json.decode(message)["result"]

    def close(self) -> None:
        """End the daemon."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def in_process(work: Callable[[], object]) -> float:
    """Give CPU µs per call of `work`."""
    figures: list[float] = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(COUNT):
            work()
        figures.append((time.process_time() - before) / COUNT * 1e6)
    return median(figures)


def streamed(client: Client, events: int) -> float:
    """Give the daemon's CPU µs per notification with so many events each."""
    count = COUNT // events
    body = b'{"jsonrpc":"2.0","id":2,"method":"bench/stream","params":{"count":%d,"events":%d}}' % (count, events)
    return median(client.call(body) / count * 1e6 for _ in range(ROUNDS))


def answered(client: Client, together: int) -> float:
    """Give the daemon's CPU µs per request with its reply, `together` of them in one write."""
    cpu = b'{"jsonrpc":"2.0","id":3,"method":"bench/cpu"}'
    frames = b"".join(encode_frame(START.replace(b":17,", b":%d," % (100 + number))) for number in range(together))
    figures: list[float] = []
    for _ in range(ROUNDS):
        before = client.call(cpu)
        for _ in range(COUNT // 10 // together):
            client.write(frames)
            wanted = client.seen + together
            while client.seen < wanted:
                client.read()
        figures.append((client.call(cpu) - before) / (COUNT // 10 // together * together) * 1e6)
    return median(figures)


def _decode() -> object:
    (frame,) = FrameReader().feed(_FRAME)
    assert isinstance(frame, Frame)
    request = decode_message(frame.body)
    assert isinstance(request, RpcRequest)
    return decode_params(METHODS["turn/start"], request.params)


_FRAME = encode_frame(START)
_NOTICE = SessionEventsNotice(1, (LINE,), 123_455, 123_456, 123_400)
_RESULT = TurnStartResult("018f0000-0000-7000-8000-0000000000a1", 17, 3)  # pyright: ignore[reportArgumentType]


def main() -> None:
    """Print the figures."""
    rows = [
        (
            "notification of one event, encoded and framed",
            in_process(lambda: encode_frame(encode_notification("session/events", _NOTICE))),
        ),
        ("request, from frame to typed params", in_process(_decode)),
        ("reply, encoded and framed", in_process(lambda: encode_frame(encode_result(17, _RESULT)))),
    ]
    client = Client()
    rows += [
        ("over pipes: notification of 1 event", streamed(client, 1)),
        ("over pipes: notification of 20 events", streamed(client, 20)),
        ("over pipes: request and reply, one at a time", answered(client, 1)),
        ("over pipes: request and reply, 50 in one write", answered(client, 50)),
    ]
    client.close()
    for name, figure in rows:
        print(f"{figure:8.2f} µs CPU  {name}")


if __name__ == "__main__":
    sys.exit(boot.serve((), "__main__:serve") if sys.argv[1:] == ["daemon"] else main())
