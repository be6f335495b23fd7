"""Spawn to the answer of `initialize`, against the floor of `import asyncio, msgspec, lmdb`, interleaved in one run.

`python -m tests.bench.startup [ROUNDS]` prints medians (minima) of wall and CPU milliseconds and their ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

FLOOR = "import asyncio, msgspec, lmdb, sys; sys.stdin.buffer.read(1); sys.stdout.buffer.write(b'.'); sys.stdout.flush()"
BODY = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":null,"capabilities":{}}}'
FRAME = b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    cases: dict[str, Callable[[], tuple[float, float]]] = {
        "floor": lambda: measure([sys.executable, "-c", FLOOR], b"."),
        "refold serve": lambda: measure([sys.executable, "-m", "refold_server", "serve"], FRAME),
    }
    for case in cases.values():
        case()  # compiled files and the disk's cache
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            taken[name].append(case())
    for name, rows in taken.items():
        walls, cpus = [wall for wall, _ in rows], [cpu for _, cpu in rows]
        print(
            f"{name:>14}: wall {statistics.median(walls):6.1f} ms ({min(walls):.1f})"
            f"   cpu {statistics.median(cpus):6.1f} ms ({min(cpus):.1f})"
        )
    ratios = [ours[0] / floor[0] for ours, floor in zip(taken["refold serve"], taken["floor"], strict=True)]
    print(f"{'ratio':>14}: wall {statistics.median(ratios):.2f}")


def measure(command: list[str], sent: bytes) -> tuple[float, float]:
    """Wall and CPU milliseconds from spawn to the first byte of an answer to `sent`."""
    with tempfile.TemporaryDirectory() as store:
        environment = {**os.environ, "REFOLD_STORE": store}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        began = time.perf_counter()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(sent)
            process.stdin.flush()
            process.stdout.read(1)
            wall = time.perf_counter() - began
            cpu = cpu_ms(process.pid)
            process.stdin.close()
            process.stdout.read()
            process.wait()
    return wall * 1000, cpu


def cpu_ms(pid: int) -> float:
    """CPU milliseconds that a process has used so far (user and system; resolution of the kernel's clock tick)."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e6


if __name__ == "__main__":
    main()
