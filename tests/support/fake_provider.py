"""Provider for tests that plays what it is told: statuses, headers, bytes write by write, broken connections.

A real HTTP/1.1 server on the loopback interface, in a thread of its own, so that it serves asynchronous tests and daemons
in other processes alike. It records each request exactly as it came. A request for which no answer is left is answered
with 500 and makes the context manager fail at its end. Never sleeps: a test that wants order uses a `Gate`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Literal

from msgspec import Struct

EVENT_STREAM: Final = (("content-type", "text/event-stream"),)

End = Literal["complete", "cut", "reset", "hang", "drop"]
"""How an answer ends: orderly; closed before its end (the chunked encoding is cut); by a reset; not until the client leaves;
before it began, without a byte."""


class Gate:
    """A place in an answer at which it waits until the test opens it; `reached` is set when it waits there."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened: Future[None] = Future()

    def open(self) -> None:
        """Let the answer go on. Once; from any thread, before or after the answer got there."""
        self._opened.set_result(None)

    async def passed(self) -> None:
        """Wait until the gate is open."""
        self.reached.set()
        await asyncio.wrap_future(self._opened)


class Answer(Struct, frozen=True):
    """What a request gets: each write is one chunk of the encoding and one flush. Without `chunked` the end of the
    connection is the end of the body."""

    writes: tuple[bytes | Gate, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = EVENT_STREAM
    end: End = "complete"
    chunked: bool = True


class Recorded:
    """A request as it came. `headers` have names in lower case; values of one name are joined by commas. `left` is set when
    the client closed the connection before its answer was complete."""

    def __init__(self, line: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.path, _ = line.split(" ")
        self.headers = headers
        self.body = body
        self.left = threading.Event()


def answer(*writes: bytes | Gate, end: End = "complete") -> Answer:
    """Give an event stream of these writes."""
    return Answer(writes, end=end)


_NOT_FOUND: Final = Answer((b'{"error":{"message":"not found"}}',), status=404, headers=(("content-type", "application/json"),))


class FakeProvider:
    """The server. `base_url` is what a configuration names, `requests` what came, in order."""

    def __init__(self, *answers: Answer, port: int = 0, tls: ssl.SSLContext | None = None, lists: bool = False) -> None:
        self._lists = lists  # whether a GET is answered by an answer too; else it is not found
        self._port = port
        self._tls = tls
        self.base_url = ""
        self.requests: list[Recorded] = []
        self.connections = 0
        self._answers = deque(answers)
        self._unexpected = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, name="fake provider", daemon=True)

    def play(self, answers: Iterable[Answer]) -> None:
        """Put answers behind those that are left."""
        self._loop.call_soon_threadsafe(self._answers.extend, tuple(answers))

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        assert self._unexpected == 0 or error is not None, f"{self._unexpected} requests without an answer"

    async def __aenter__(self) -> FakeProvider:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        server = await self._loop.create_server(
            lambda: asyncio.StreamReaderProtocol(_Reader(self._loop), self._connected), "127.0.0.1", self._port, ssl=self._tls
        )
        scheme = "http" if self._tls is None else "https"
        self.base_url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _Reader)
        self.connections += 1
        task = self._loop.create_task(self._talk(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (request := await _read_request(reader)) is not None:
                if request.method == "GET" and not self._lists:
                    await _write(_NOT_FOUND, writer)
                    continue
                self.requests.append(request)
                played = self._answers.popleft() if self._answers else self._none_left()
                if not await self._play(played, request, reader, writer):
                    return
        except ConnectionError:  # the client closed: the answer has nowhere to go
            pass
        finally:
            writer.transport.abort()

    def _none_left(self) -> Answer:
        self._unexpected += 1
        return Answer((b"the fake provider has no answer left",), status=500, headers=(("content-type", "text/plain"),))

    async def _play(self, played: Answer, request: Recorded, reader: _Reader, writer: asyncio.StreamWriter) -> bool:
        """Play an answer; tell whether the connection stays open."""
        if played.end == "drop":
            return False
        watch = self._loop.create_task(reader.ended.wait())
        work = self._loop.create_task(_write(played, writer))
        try:
            await asyncio.wait({watch, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                request.left.set()
                return False
            await work
        except ConnectionError:  # the client closed while it was written to
            request.left.set()
            return False
        finally:
            watch.cancel()
            work.cancel()
            await asyncio.gather(watch, work, return_exceptions=True)
        if played.end == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif played.end == "complete" and played.chunked:
            return True
        elif writer.can_write_eof():
            writer.write_eof()
            await reader.read()
        return False


class _Reader(asyncio.StreamReader):
    """A reader that tells when the client has closed its side, without taking a byte of what it sent before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.ended.set()


async def _write(played: Answer, writer: asyncio.StreamWriter) -> None:
    lines = [f"HTTP/1.1 {played.status} Played", *(f"{name}: {value}" for name, value in played.headers)]
    lines.append("transfer-encoding: chunked" if played.chunked else "connection: close")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()
    for write in played.writes:
        if isinstance(write, Gate):
            await write.passed()
            continue
        writer.write(b"%x\r\n%s\r\n" % (len(write), write) if played.chunked else write)
        await writer.drain()
    if played.end == "complete" and played.chunked:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    elif played.end == "hang":
        await asyncio.Event().wait()


async def _read_request(reader: asyncio.StreamReader) -> Recorded | None:
    """Read one request; None where the client closed instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:  # the end of the connection, between two requests
        return None
    line, *rest = head.decode("latin-1").strip().split("\r\n")
    headers: dict[str, str] = {}
    for name, _, value in (row.partition(":") for row in rest):
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    return Recorded(line, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
