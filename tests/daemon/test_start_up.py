"""What is imported when: `initialize` is answered before anything heavy is, and a session offline never needs the rest.

Standard error and the frames come in one pipe, so that the order of bytes is the order of events: the packages that the
interpreter tells of before the answer were imported before it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from refold_protocol.rpc.framing import encode_frame
from tests.support.chat_stream import reply
from tests.support.daemons import Json, Place
from tests.support.fake_provider import FakeProvider, answer

IMPORTED = re.compile(rb"^import time: +\d+ \| +\d+ \| +(\w+)", re.MULTILINE)
FRAME = re.compile(rb"Content-Length: (\d+)\r\n\r\n")
HEAVY = {"anyio", "asyncio", "httpx", "lmdb", "lsprotocol", "platformdirs", "pygls", "ssl"}


class Told:
    """A daemon that tells its imports. `imported` holds the top-level packages so far."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._data = b""
        self._aside = b""
        self._last_id = 0

    @property
    def imported(self) -> set[str]:
        return {name.decode() for name in IMPORTED.findall(self._aside)}

    def call(self, method: str, params: Json) -> Any:
        """Send a request and give its result; what else comes is passed over."""
        self._last_id += 1
        self.notify(method, params, id=self._last_id)
        while True:
            message = json.loads(self._frame())
            if message.get("id") == self._last_id:
                return message["result"]

    def notify(self, method: str, params: Json, **more: Any) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(
            encode_frame(json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode())
        )

    def read_to_end(self) -> None:
        while self._read():
            pass
        self._aside += self._data

    def _frame(self) -> bytes:
        while (head := FRAME.search(self._data)) is None or len(self._data) < head.end() + int(head[1]):
            assert self._read(), self._data
        end = head.end() + int(head[1])
        body = self._data[head.end() : end]
        self._aside, self._data = self._aside + self._data[: head.start()], self._data[end:]
        return body

    def _read(self) -> bool:
        assert self._popen.stdout is not None
        data = os.read(self._popen.stdout.fileno(), 1 << 16)
        self._data += data
        return bool(data)


@contextmanager
def telling_daemon(place: Place) -> Generator[Told]:
    command = ["sh", "-c", 'exec "$0" -X importtime -m refold_server serve 2>&1', sys.executable]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=place.daemon_env) as popen:
        try:
            yield Told(popen)
        finally:
            popen.kill()


def initialized(daemon: Told, place: Place) -> None:
    """Begin the connection."""
    options = {"store": str(place.store)}
    answer = daemon.call("initialize", {"capabilities": {}, "initializationOptions": options})
    assert answer["serverInfo"]["name"] == "refold"


def test_initialize_is_answered_before_anything_heavy_is_imported(place: Place) -> None:
    with telling_daemon(place) as daemon:
        initialized(daemon, place)
        assert "msgspec" in daemon.imported
        assert not daemon.imported & HEAVY
        daemon.notify("exit", {})
        daemon.read_to_end()
        assert {"asyncio", "lmdb", "ssl"} <= daemon.imported, "they are noticed where they are imported"


def test_a_session_offline_never_imports_the_http_client_or_the_language_server(place: Place) -> None:
    with telling_daemon(place) as daemon:
        initialized(daemon, place)
        session = daemon.call("session/open", {"cwd": str(place.workspace)})["session"]
        daemon.call("event/subscribe", {"session": session, "after": -1})
        prompt = [{"type": "text", "text": "Where is the zebra?"}]
        daemon.call("turn/start", {"session": session, "content": prompt})
        end = daemon.call("turn/wait", {"session": session, "turn": 1})
        assert end["data"]["reason"] == {"kind": "completed"}
        assert daemon.call("log/verify", {"session": session})["equal"] == 4
        daemon.notify("shutdown", {}, id=0)
        daemon.notify("exit", {})
        daemon.read_to_end()
        assert "lmdb" in daemon.imported
        assert not daemon.imported & {"h11", "httpcore", "httpx", "lsprotocol", "pygls", "cattrs"}


def test_a_session_over_http_imports_the_client_without_its_command_line(place: Place) -> None:
    """Where click and rich are installed, httpx would bring its command line along."""
    with FakeProvider(answer(reply("Here."))) as provider:
        place.provider(provider.base_url)
        with telling_daemon(place) as daemon:
            initialized(daemon, place)
            session = daemon.call("session/open", {"cwd": str(place.workspace)})["session"]
            daemon.call("turn/start", {"session": session, "content": [{"type": "text", "text": "Where is the zebra?"}]})
            end = daemon.call("turn/wait", {"session": session, "turn": 1})
            assert end["data"]["reason"] == {"kind": "completed"}
            daemon.notify("exit", {})
            daemon.read_to_end()
            assert "httpx" in daemon.imported
            assert not daemon.imported & {"click", "rich"}
