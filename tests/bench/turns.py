"""Whole turns through the whole daemon, against the floor in the same run.

`python -m tests.bench.turns [--json] [--turns N] [--chunks N]` measures prompt → provider, a flood of chunks, chunks a
millisecond apart, the overhead of a turn at turn 1, 25, 100, …, following a log from its start, and idle wake-ups.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame
from tests.bench.startup import cpu_ms

CONFIG = """
model = "fast/m"
[tools]
enabled = []
[providers.fast]
dialect = "chat-completions"
base_url = "http://127.0.0.1:{port}/v1"
"""


class Provider:
    """The provider's process; `arrived` gives the time at which the next request had arrived."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "tests.bench.provider"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.lines = self.process.stdout
        self.port = int(self.lines.readline())

    def arrived(self) -> float:
        return float(self.lines.readline())


class Peer:
    """A daemon at the other end of two pipes, spoken to without any client's comforts."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, cwd=cwd, bufsize=0)
        self.frames = FrameReader()
        self.waiting: list[Any] = []
        self.notifications = 0
        self.last_id = 0
        self.session = ""

    def send(self, method: str, params: Any) -> int:
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(encode_frame(msgspec.json.encode(message)))
        return self.last_id

    def call(self, method: str, params: Any) -> Any:
        wanted = self.send(method, params)
        while True:
            message = self.next()
            if message.get("id") == wanted:
                return message["result"]

    def next(self) -> Any:
        assert self.process.stdout is not None
        while not self.waiting:
            data = self.process.stdout.read(1 << 20)
            if not data:
                raise EOFError("the daemon ended")
            self.waiting = [msgspec.json.decode(event.body) for event in self.frames.feed(data) if isinstance(event, Frame)]
        return self.waiting.pop(0)

    def begin(self, cwd: str) -> None:
        self.call("initialize", {"processId": None, "capabilities": {}})
        self.session = self.call("session/open", {"cwd": cwd})["session"]
        self.call("event/subscribe", {"session": self.session, "after": -1})

    def turn(self, text: str) -> tuple[float, float, float, float]:
        """Run a turn; give the times of prompt, first chunk, end, and the CPU milliseconds that it took."""
        before = cpu_ms(self.process.pid)
        prompt = time.monotonic()
        self.send("turn/start", {"session": self.session, "content": [{"type": "text", "text": text}]})
        first = 0.0
        while True:
            message = self.next()
            if message.get("method") == "session/events":
                self.notifications += 1
                for event in message["params"]["events"]:
                    if event["type"] == "assistant/chunk" and not first:
                        first = time.monotonic()
                    if event["type"] == "turn/end":
                        end = time.monotonic()
                        return prompt, first, end, cpu_ms(self.process.pid) - before


@contextmanager
def peers(folder: str, provider: Provider) -> Generator[dict[str, Peer]]:
    config = Path(folder, "config.toml")
    config.write_text(CONFIG.format(port=provider.port))
    env = {**os.environ, "REFOLD_CONFIG": str(config), "REFOLD_STORE": str(Path(folder, "store"))}
    floor = [sys.executable, "-m", "tests.bench.floor", str(provider.port), str(Path(folder, "floor.log"))]
    here = str(Path(__file__).parents[2])
    found = {
        "refold": Peer([sys.executable, "-m", "refold_server", "serve"], env, here),
        "floor": Peer(floor, env, here),
    }
    try:
        for peer in found.values():
            peer.begin(folder)
        yield found
    finally:
        for peer in found.values():
            peer.process.kill()
            peer.process.wait()
        provider.process.kill()
        provider.process.wait()


def median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def measure(turns: int, chunks: int) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    marks = [mark for mark in (1, 25, 100, 1_000) if mark <= turns]
    provider = Provider()
    with tempfile.TemporaryDirectory() as folder, peers(folder, provider) as found:
        for name, peer in found.items():
            row: dict[str, float] = {}
            to_provider: dict[int, list[float]] = {mark: [] for mark in marks}
            overhead: dict[int, list[float]] = {mark: [] for mark in marks}
            for number in range(1, turns + 5):
                prompt, _, end, _ = peer.turn("short")
                arrived = provider.arrived()
                for mark in marks:
                    if mark <= number < mark + 5:
                        to_provider[mark].append((arrived - prompt) * 1000)
                        overhead[mark].append((end - prompt) * 1000)
            for mark in marks:
                row[f"prompt → provider ms, turn {mark}"] = median(to_provider[mark][1 if mark == 1 else 0 :])
                row[f"turn ms, turn {mark}"] = median(overhead[mark][1 if mark == 1 else 0 :])
            for kind in ("flood", "paced"):
                rows: list[tuple[float, float]] = []
                for _ in range(3 if kind == "flood" else 1):
                    before = peer.notifications
                    _, first, end, cpu = peer.turn(f"{kind} {chunks}")
                    provider.arrived()
                    rows.append(((end - first) * 1000, cpu * 1000 / chunks))
                    row[f"{kind} notifications"] = peer.notifications - before
                row[f"{kind} ms"] = median([wall for wall, _ in rows])
                row[f"{kind} CPU µs a chunk"] = median([cpu for _, cpu in rows])
            results[name] = row
        results["refold"].update(follow(found["refold"]) | idle(found["refold"]))
    return results


def follow(peer: Peer) -> dict[str, float]:
    """Read the whole log from its start, through a second subscription."""
    tail = peer.call("session/flush", {"session": peer.session})["durable"]
    began = time.monotonic()
    number = peer.send("event/subscribe", {"session": peer.session, "after": -1})
    subscription, last = None, -1
    while last < tail:
        message = peer.next()
        if message.get("id") == number:
            subscription = message["result"]["subscription"]
        elif subscription is not None and message["params"].get("subscription") == subscription:
            last = message["params"]["events"][-1]["seq"] if message["params"]["events"] else last
    return {"followed events": tail + 1, "followed events/s": round((tail + 1) / (time.monotonic() - began))}


def idle(peer: Peer) -> dict[str, float]:
    """Count the times that the idle daemon's threads were scheduled in two seconds."""

    def switches() -> int:
        total = 0
        for status in Path(f"/proc/{peer.process.pid}/task").glob("*/status"):
            total += sum(int(line.split()[1]) for line in status.read_text().split("\n") if line.startswith("voluntary"))
        return total

    time.sleep(1)
    before = switches()
    time.sleep(2)
    return {"idle wake-ups/s": (switches() - before) / 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--chunks", type=int, default=5_000)
    options = parser.parse_args()
    results = measure(options.turns, options.chunks)
    if options.json:
        print(json.dumps(results, ensure_ascii=False))
        return
    print(f"{'':>34} {'refold':>12} {'floor':>12} {'ratio':>8}")
    for name, ours in results["refold"].items():
        floor = results["floor"].get(name)
        ratio = "" if not floor else f"{ours / floor:8.2f}"
        print(f"{name:>34} {ours:>12} {'' if floor is None else floor:>12} {ratio}")


if __name__ == "__main__":
    main()
