"""Peak memory of a daemon under hostile answers: `python -m tests.bench.hostile_answers [--seconds N] [NAME…]`.

Each answer is served to a daemon of its own for at most N seconds (25 unless told), as fast as it reads. Prints how the turn
ended, after how long, and the peak of the daemon's resident memory in MB.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.turns import CONFIG, Peer

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
FAULT = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
PIECE = 60_000


def delta(**members: object) -> bytes:
    """Give one event of a stream."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": members, "finish_reason": None}]}).encode() + b"\n\n"


def call(index: int, arguments: str) -> bytes:
    """Give a piece of a call."""
    function = {"name": "read_file", "arguments": arguments}
    return delta(tool_calls=[{"index": index, "id": f"call_{index}", "type": "function", "function": function}])


def chunked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)


def endless(piece: bytes) -> Callable[[], Iterator[bytes]]:
    def body() -> Iterator[bytes]:
        yield OK + b"\r\n"
        while True:
            yield b"%x\r\n%s\r\n" % (len(piece), piece)

    return body


def many_calls() -> Iterator[bytes]:
    yield OK + b"\r\n"
    yield from chunked(b"".join(call(index, "{}") for index in range(start, start + 200)) for start in range(0, 10**9, 200))


def bomb(head: bytes, layers: int, size: int) -> Callable[[], Iterator[bytes]]:
    """A body that grows a thousandfold with each layer of gzip."""

    def body() -> Iterator[bytes]:
        data = gzip.compress(b" " * size)
        for _ in range(layers - 1):
            data = gzip.compress(data)
        coding = b", ".join([b"gzip"] * layers)
        yield head.replace(b"Transfer-Encoding: chunked\r\n", b"") + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s" % (
            coding,
            len(data),
            data,
        )

    return body


def deflated_stream() -> Iterator[bytes]:
    """An endless stream of events whose bytes nearly vanish in transit."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    yield OK + b"Content-Encoding: gzip\r\n\r\n"
    event = delta(content="a" * PIECE) * 200
    while True:
        data = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        yield b"%x\r\n%s\r\n" % (len(data), data)


def one_line() -> Iterator[bytes]:
    yield OK + b"\r\n"
    yield from chunked(iter(lambda: b"data: " + b"x" * PIECE, None))


def headers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"X-Filler: " + b"x" * 8_000 + b"\r\n"


def whole_json() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield from chunked(iter([b'{"choices":[{"message":{"content":"']))
    yield from chunked(iter(lambda: b"y" * PIECE, None))


ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "text": endless(delta(content="word " * 12_000)),
    "small chunks": endless(delta(content="w") * 500),
    "reasoning": endless(delta(reasoning_content="hmm " * 15_000)),
    "arguments": endless(call(0, "a" * PIECE)),
    "many calls": many_calls,
    "one line": one_line,
    "comments": endless(b": " + b"c" * PIECE + b"\n"),
    "whole JSON": whole_json,
    "headers": headers,
    "gzip at 200": bomb(OK, 1, 1 << 28),
    "gzip at 500": bomb(FAULT, 1, 1 << 28),
    "gzip in gzip at 500": bomb(FAULT, 2, 1 << 30),
    "gzip stream": deflated_stream,
}


class Hostile:
    """The server, in a thread of its own. What is answered stands in the path."""

    def __init__(self) -> None:
        self.port = 0
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True).start()
        self._ready.wait()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            name = list(ANSWERS)[int(re.findall(rb"/(\d+)/v1", head)[0])]
            for piece in ANSWERS[name]():
                writer.write(piece)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def peak_mb(pid: int) -> float:
    """The peak of a process's resident memory so far."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def measure(server: Hostile, name: str, seconds: float) -> tuple[str, float, float]:
    """Give how the turn ended, after how many seconds, and the peak in MB."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.toml")
        text = CONFIG.format(port=server.port)
        config.write_text(text.replace("/v1", f"/{list(ANSWERS).index(name)}/v1"))
        env = {**os.environ, "REFOLD_CONFIG": str(config), "REFOLD_STORE": str(Path(folder, "store"))}
        peer = Peer([sys.executable, "-m", "refold_server", "serve"], env, str(Path(__file__).parents[2]))
        ended = "still running"
        try:
            peer.begin(folder)
            began = time.monotonic()
            peer.send("turn/start", {"session": peer.session, "content": [{"type": "text", "text": "Go."}]})
            timer = threading.Timer(seconds, peer.process.send_signal, (2,))
            timer.start()
            peak = 0.0
            try:
                while True:
                    message = peer.next()
                    peak = peak_mb(peer.process.pid)
                    events = message["params"]["events"] if message.get("method") == "session/events" else ()
                    last = next((event for event in events if event["type"] == "turn/end"), None)
                    if last is not None:
                        reason = last["data"]["reason"]
                        ended = reason.get("error", {}).get("kind", reason["kind"])
                        break
            except (EOFError, FileNotFoundError, IndexError):
                pass
            timer.cancel()
            return ended, time.monotonic() - began, peak
        finally:
            peer.process.kill()
            peer.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    server = Hostile()
    for name in options.names or ANSWERS:
        ended, taken, peak = measure(server, name, options.seconds)
        print(f"{name:>20}: {ended:<24} {taken:5.1f} s  {peak:7.0f} MB", flush=True)


if __name__ == "__main__":
    main()
