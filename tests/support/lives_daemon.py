"""Daemon for tests of clients that outlive it: each of its lives follows a script of its own, until it is killed.

`python -m tests.support.lives_daemon FOLDER`. `lives.json` there is a list with an object for each life: `answers` gives the
result of a method (or `{"error": …}`, or null for no answer; of a list, one after the other), `then` the messages that follow
the answer to a method. What a life reads goes to `life-N.jsonl`, one message a line. `daemon/health` answers the process id.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame


def send(message: Any) -> None:
    """Write one message."""
    data = encode_frame(json.dumps({"jsonrpc": "2.0", **message}).encode())
    while data:
        data = data[os.write(1, data) :]


def treat(message: Any, life: Any) -> None:
    """Follow the script for one message."""
    method = message.get("method")
    if method == "exit":
        sys.exit(0)
    if "id" not in message or method is None:
        return
    known: dict[str, Any] = {
        "initialize": {"capabilities": {}, "serverInfo": {"name": "lives", "version": "0"}},
        "daemon/health": {"pid": os.getpid()},
    }
    answer: Any = life.get("answers", {}).get(method, known.get(method, {}))
    if isinstance(answer, list):
        answer = cast("list[Any]", answer).pop(0)
    if answer is not None:
        send({"id": message["id"], **(answer if "error" in answer else {"result": answer})})
        for more in life.get("then", {}).get(method, ()):
            send(more)


def main() -> None:
    """Live until the input ends."""
    folder = Path(sys.argv[1])
    number = len(list(folder.glob("life-*.jsonl")))
    life = json.loads((folder / "lives.json").read_text())[number]
    frames = FrameReader()
    with (folder / f"life-{number}.jsonl").open("a") as heard:
        while data := os.read(0, 65_536):
            for event in frames.feed(data):
                assert isinstance(event, Frame)
                message = json.loads(event.body)
                print(json.dumps(message), file=heard, flush=True)
                treat(message, life)


if __name__ == "__main__":
    main()
