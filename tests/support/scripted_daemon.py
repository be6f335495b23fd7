"""Daemon that follows a script, for tests of clients: it may say what no real one should.

`python -m tests.support.scripted_daemon SCRIPT`, where SCRIPT is JSON: `result` answers every request but `initialize` and
`shutdown`; `then` is a list of bodies sent behind the first such answer, a text being sent as raw bytes; `die` ends the
process there, instead of answering where `answer` is false. What it reads goes to standard error, one message a line.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame


def send(*messages: Any) -> None:
    """Write messages, or raw bytes, at once: a reader finds them together."""
    data = b"".join(
        message.encode() if isinstance(message, str) else encode_frame(json.dumps(message).encode()) for message in messages
    )
    while data:
        data = data[os.write(1, data) :]


def treat(message: Any, script: Any) -> None:
    """Follow the script for one message."""
    os.write(2, json.dumps(message).encode() + b"\n")
    method = message.get("method")
    if method == "exit":
        sys.exit(0)
    if "id" not in message or method is None:
        return
    scripted = method not in ("initialize", "shutdown")
    said: list[Any] = []
    if not scripted or script.get("answer", True):
        said.append({"jsonrpc": "2.0", "id": message["id"], "result": script.get("result") if scripted else {}})
    if scripted:
        said += script.pop("then", ())
    send(*said)
    if scripted and script.get("die"):
        sys.exit(9)


def main() -> None:
    """Serve until the input ends."""
    script = json.loads(sys.argv[1])
    frames = FrameReader()
    while data := os.read(0, 65_536):
        for event in frames.feed(data):
            assert isinstance(event, Frame)
            treat(json.loads(event.body), script)


if __name__ == "__main__":
    main()
