"""Which files a prompt, a provider's chunk and a tool call pass: a daemon that notes each product function it enters.

`python -m tests.bench.walks` starts `refold serve` under a profiler with a scripted offline reply, sends one prompt, and
prints for each of the three ways how many files were entered and how often the way climbed, that is, went from a package
to one that lies above it (protocol, storage, server).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROFILED = """
import sys, threading, time, atexit, os
seen = []
def note(frame, kind, value):
    if kind == "call":
        name = frame.f_code.co_filename
        if "/refold_" in name: seen.append((time.monotonic_ns(), threading.get_ident(), name[name.index("/refold_") + 1:]))
threading.setprofile(note)
sys.setprofile(note)
from refold_server.{main} import main
code = 1
try: code = main(["serve"])
finally:
    sys.setprofile(None); threading.setprofile(None)
    with open(os.environ["WALKS"], "w") as out:
        for at, thread, name in seen: out.write(f"{at} {thread} {name}\\n")
sys.exit(code)
"""
DELAY_S = 0.4
LEVEL = {"refold_protocol": 0, "refold_storage": 1, "refold_server": 2}


class Peer:
    """A client of a few lines: frames out, frames in, each with the time at which it came."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.told = process, list[tuple[int, dict[str, Any]]]()

    def send(self, **message: Any) -> None:
        assert self.process.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def take(self) -> dict[str, Any]:
        out = self.process.stdout
        assert out
        length = 0
        while (line := out.readline().strip()) or not length:
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(out.read(length))
        self.told.append((time.monotonic_ns(), message))
        return message

    def reply(self, number: int) -> dict[str, Any]:
        while (message := self.take()).get("id") != number or "method" in message:
            pass
        return message["result"]

    def event(self, kind: str) -> int:
        """Wait for an event of this type; give the time at which it was told."""
        while True:
            message = self.take()
            if message.get("method") == "session/events" and any(e["type"] == kind for e in message["params"]["events"]):
                return self.told[-1][0]


def way(notes: list[tuple[int, int, str]], begin: int, end: int) -> tuple[list[str], int]:
    """The files entered between two times, in order of first entry, and the climbs within each thread."""
    files, last, climbs = dict[str, None](), dict[int, int](), 0
    for at, thread, name in notes:
        if begin <= at < end:
            level = LEVEL.get(name.split("/")[0], 2)
            climbs += thread in last and level > last[thread]
            files[name], last[thread] = None, level
    return list(files), climbs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        replies = [
            {"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}], "delayMs": int(DELAY_S * 1000)},
            {"text": "one two three four", "chunk": 4, "delayMs": int(DELAY_S * 1000)},
        ]
        (home / "script.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        (home / "a.txt").write_text("alpha\n")
        (home / "config.toml").write_text(
            'model = "rehearsal/workspace"\n[models."rehearsal/workspace"]\n'
            f"extra = {{script = {json.dumps(str(home / 'script.jsonl'))}}}\n"
        )
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": folder,
            "REFOLD_CONFIG": str(home / "config.toml"),
            "REFOLD_STORE": str(home / "store"),
            "WALKS": str(home / "walks"),
        }
        program = PROFILED.replace("{main}", "main" if len(sys.argv) < 2 else sys.argv[1])
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=home
        )
        peer = Peer(process)
        peer.send(id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": {}})
        peer.reply(1)
        peer.send(method="initialized", params={})
        peer.send(id=2, method="session/open", params={"cwd": folder})
        session = peer.reply(2)["session"]
        peer.send(id=3, method="event/subscribe", params={"session": session, "after": -1})
        peer.reply(3)
        peer.send(id=9, method="daemon/health")
        peer.reply(9)
        asked = time.monotonic_ns()
        peer.send(id=4, method="turn/start", params={"session": session, "content": [{"type": "text", "text": "what?"}]})
        peer.reply(4)
        answered = peer.told[-1][0]
        called = peer.event("tool/call")
        result = peer.event("tool/result")
        first = peer.event("assistant/chunk")
        second = peer.event("assistant/chunk")
        peer.event("turn/end")
        peer.send(id=5, method="shutdown")
        peer.reply(5)
        peer.send(method="exit")
        process.wait(30)
        notes = [
            (int(at), int(thread), name)
            for at, thread, name in (line.split(" ", 2) for line in (home / "walks").read_text().splitlines())
        ]
    half = int(DELAY_S * 5e8)
    for title, begin, end in (
        ("prompt: bytes to the durable reply", asked, answered),
        ("chunk: provider's bytes to the client", second - half, second + 5_000_000),
        ("tool call: recorded to its result", called - 20_000_000, result),
    ):
        files, climbs = way(notes, begin, end)
        print(f"{title}: {len(files)} files, {climbs} climbs")
        for name in files:
            print(f"    {name}")
    del first


if __name__ == "__main__":
    main()
