"""Client over real pipes for whole processes: it writes frames or any bytes, and reads with a strict parser.

Blocking on purpose: what does not come is ended by pytest's time limit. A process that is left over is ended by its pid.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame

TOY = (sys.executable, "-m", "tests.support.toy_daemon")


class Process:
    """A daemon and the three pipes to it. `messages` holds what was read and not asked for yet."""

    def __init__(self, command: Sequence[str] = TOY, env: Mapping[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=env)
        self.messages: list[Any] = []
        self._frames = FrameReader()
        self._last_id = 0
        self._errors = b""

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert pipe is not None
            pipe.close()

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self.popen.stdin is not None
        while data:
            data = data[os.write(self.popen.stdin.fileno(), data) :]

    def put(self, *messages: Any) -> None:
        """Send messages: objects, or bodies as they are."""
        bodies = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in messages]
        self.write(b"".join(map(encode_frame, bodies)))

    def request(self, method: str, params: Any = None) -> int:
        """Send a request; give its id."""
        self._last_id += 1
        self.put({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.put({"jsonrpc": "2.0", "method": method, "params": params})

    def call(self, method: str, params: Any = None) -> Any:
        """Send a request; give its result, or its error."""
        reply = self.reply(self.request(method, params))
        return reply.get("result", reply.get("error"))

    def initialize(self, **params: Any) -> Any:
        """Begin the connection."""
        return self.call("initialize", {"capabilities": {}, **params})

    def reply(self, request_id: Any) -> Any:
        """Read until the reply with this id, and take it."""
        while True:
            for place, message in enumerate(self.messages):
                if "method" not in message and message["id"] == request_id:
                    return self.messages.pop(place)
            assert self.read(), f"the stream ended before the reply to {request_id!r}"

    def read(self) -> bool:
        """Read some; False at the end of the stream. Anything that is not a frame fails the test."""
        assert self.popen.stdout is not None
        data = os.read(self.popen.stdout.fileno(), 1 << 20)
        for event in self._frames.feed(data):
            assert isinstance(event, Frame), event
            self.messages.append(json.loads(event.body))
        assert data or not self._frames.mid_frame
        return bool(data)

    def read_to_end(self) -> None:
        """Read until the process closes its output."""
        while self.read():
            pass

    def error_line(self, wanted: bytes) -> None:
        """Read standard error until a line that holds `wanted`."""
        assert self.popen.stderr is not None
        while wanted not in self._errors:
            data = os.read(self.popen.stderr.fileno(), 65_536)
            assert data, f"standard error ended without {wanted!r}: {self._errors!r}"
            self._errors += data

    def close_input(self) -> None:
        """Close its standard input."""
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def wait(self) -> int:
        """Wait for the end; give the exit code. What it writes to standard error meanwhile is kept."""
        assert self.popen.stderr is not None
        if not self.popen.stderr.closed:
            while data := os.read(self.popen.stderr.fileno(), 65_536):
                self._errors += data
        return self.popen.wait()

    @property
    def errors(self) -> bytes:
        """What was read of standard error so far."""
        return self._errors
