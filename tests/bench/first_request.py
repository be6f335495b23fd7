"""Spawn to the first request at the provider, beside the floor, interleaved in one run.

`python -m tests.bench.first_request [ROUNDS] [--default]` prints medians of wall and CPU milliseconds since the spawn, at each
answer and when the request had arrived, and the ratio of the last. The session has no tools and no prefix, as the floor has
none, unless `--default` is given.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.turns import CONFIG, Peer, Provider

STEPS = ("initialize", "session/open", "request")
PREFIX = "[prefix]\ninstructions = false\nskills = false\nbaseline = false\neditor = false\n"


def main() -> None:
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 9)
    provider = Provider()
    taken: dict[str, list[list[tuple[float, float]]]] = {"floor": [], "refold": []}
    try:
        for number in range(rounds + 1):
            for name, rows in taken.items():
                row = measure(name, provider, default="--default" in sys.argv)
                if number:  # the first round fills the disk's cache
                    rows.append(row)
    finally:
        provider.process.kill()
        provider.process.wait()
    for name, rows in taken.items():
        for step, pairs in zip(STEPS, zip(*rows, strict=True), strict=True):
            wall, cpu = (statistics.median(values) for values in zip(*pairs, strict=True))
            print(f"{name:>8} {step:>12}: wall {wall:6.1f} ms   cpu {cpu:6.1f} ms")
    for index, kind in enumerate(("wall", "cpu")):
        pairs = zip(taken["refold"], taken["floor"], strict=True)
        print(f"ratio of {kind}: {statistics.median(ours[-1][index] / floor[-1][index] for ours, floor in pairs):.2f}")


def measure(name: str, provider: Provider, *, default: bool) -> list[tuple[float, float]]:
    """Give wall and CPU milliseconds since the spawn, at each step."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.toml")
        config.write_text(CONFIG.format(port=provider.port) + ("" if default else PREFIX))
        env = {**os.environ, "REFOLD_CONFIG": str(config), "REFOLD_STORE": str(Path(folder, "store"))}
        floor = [sys.executable, "-m", "tests.bench.floor", str(provider.port), str(Path(folder, "floor.log"))]
        command = floor if name == "floor" else [sys.executable, "-m", "refold_server", "serve"]
        began = time.monotonic()
        peer = Peer(command, env, str(Path(__file__).parents[2]))
        try:
            row: list[tuple[float, float]] = []

            def mark(at: float) -> None:
                row.append(((at - began) * 1000, cpu_ms(peer.process.pid)))

            peer.call("initialize", {"processId": None, "capabilities": {}})
            mark(time.monotonic())
            session = peer.call("session/open", {"cwd": folder})["session"]
            mark(time.monotonic())
            peer.send("turn/start", {"session": session, "content": [{"type": "text", "text": "short"}]})
            mark(provider.arrived())
            return row
        finally:
            peer.process.kill()
            peer.process.wait()


def cpu_ms(pid: int) -> float:
    """CPU milliseconds of all threads of a process so far."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e6


if __name__ == "__main__":
    main()
