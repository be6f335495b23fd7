"""Opening a long session for writing until it is ready to prompt, and its first views, against its length.

`python -m tests.bench.opening [TURNS…] [--rounds N] [--words N]` makes sessions of short turns (a prompt, one tool call, an
answer of N chunks), opens each in fresh daemons, and prints medians: wall and CPU ms of `session/open`, from the first
prompt to the provider, of views (the first and the last page of the transcript), and the daemon's memory (MB) afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from refold_protocol.ids import SessionId
from refold_protocol.session.codec import CHAIN_START, chain, decode_event
from refold_protocol.session.events import EncoderId, RequestSent, StepStart
from refold_protocol.session.header import header_draft
from refold_protocol.session.messages import BlockEnd, BlockStart, FinishChunk, TextDelta, ToolCallDelta
from refold_server.clock import epoch_ms, uuid7
from refold_storage.interface import NewSession, SessionRecord
from refold_storage.lmdb_store import open_store
from tests.bench.startup import cpu_ms
from tests.bench.turns import CONFIG, Peer, Provider
from tests.support.logs import HEADER, Log, call

ANSWER = tuple(re.split(" ", "The log is the truth, and what follows from it is derived again whenever somebody asks."))


OPENED = "session/open"
PROMPT = "first prompt → provider"


def begin_step(log: Log) -> None:
    """Open a step whose request is nobody's: a digest would be computed from all that stands before it."""
    assert log.work.turn is not None
    log.add(StepStart(log.work.turn, log.work.last_step + 1))
    if log.request_state.header is None:
        draft = header_draft(None, HEADER, anchored=True)
        assert draft is not None
        log.write(draft)
    log.add(RequestSent("step", 1, EncoderId("no-such-dialect", 1), 0, "0" * 64, "0" * 64, *log.here()))


def add_turn(log: Log, number: int, words: tuple[str, ...]) -> None:
    """Write one turn: 15 events, 9 chunks, and one for each word of the answer."""
    log.turn(f"What does file {number} say of folding?", log.accept(f"input-{number}"))
    begin_step(log)
    log.stream(BlockStart(0, "tool-call", f"call_{number}", "read_file"))
    log.stream(*(ToolCallDelta(0, part) for part in ('{"path"', ':"file-', str(number), '.txt"}')))
    log.stream(BlockEnd(0), FinishChunk("tool-calls"))
    log.reply(call(f"call_{number}", f'{{"path":"file-{number}.txt"}}'), finish="tool-calls")
    log.call(f"call_{number}")
    log.result(f"call_{number}", f"1\tFile {number} says that a log is folded.")
    log.end_step()
    begin_step(log)
    log.stream(BlockStart(0, "text"), *(TextDelta(0, word + " ") for word in words), BlockEnd(0), FinishChunk("stop"))
    log.reply(" ".join(words))
    log.end_step()
    log.end_turn()


async def make(folder: str, turns: int, words: int = len(ANSWER)) -> str:
    """Put a session of that many turns into the store, with answers of so many words; give its id."""
    answer = tuple(islice(cycle(ANSWER), words))
    log = Log()
    log.instance()
    for number in range(1, turns + 1):
        add_turn(log, number, answer)
    store = await open_store(folder, new_uuid=uuid7, clock=epoch_ms)
    made = await store.create(NewSession(SessionId(uuid7()), tempfile.gettempdir(), epoch_ms()))
    empty: SessionRecord = made.record
    await made.close()
    digest = chain(log.lines, CHAIN_START).hex()
    await store.import_session(replace(empty, tail=len(log.events) - 1, head_digest=digest), log.lines)
    await store.close()
    return empty.id


async def decode_all(folder: str, session: str) -> float:
    """CPU milliseconds of reading and decoding each line once, chunks too, and nothing else: what there is to compare with."""
    store = await open_store(folder, new_uuid=uuid7, clock=epoch_ms)
    handle = await store.open(SessionId(session), "read")
    began = time.process_time()
    for first in range(0, handle.tail + 1, 1_000):
        for line in handle.lines(first, min(first + 999, handle.tail)):
            decode_event(line)
    taken = time.process_time() - began
    await store.close()
    return taken * 1000


def memory_mb(pid: int, name: str) -> float:
    """Resident memory of a process in MB: `VmRSS` now, `VmHWM` at its peak."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


class Run:
    """One fresh daemon. `row` is what it took, by name."""

    def __init__(self, folder: str, store: str, provider: Provider) -> None:
        config = Path(folder, "config.toml")
        config.write_text(CONFIG.format(port=provider.port))
        env = {**os.environ, "REFOLD_CONFIG": str(config), "REFOLD_STORE": store}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        here = str(Path(__file__).parents[2])
        self.peer = Peer([sys.executable, "-m", "refold_server", "serve"], env, here)
        self.provider = provider
        self.row: dict[str, float] = {}
        self.peer.call("initialize", {"processId": None, "capabilities": {}})
        self.peer.call("session/list", {"limit": 1})  # the store is open, everything is imported

    def timed(self, name: str, method: str, params: Any) -> Any:
        """Make a request; note its milliseconds."""
        cpu, began = cpu_ms(self.peer.process.pid), time.monotonic()
        result = self.peer.call(method, params)
        self.row[f"{name}, wall ms"] = (time.monotonic() - began) * 1000
        self.row[f"{name}, CPU ms"] = cpu_ms(self.peer.process.pid) - cpu
        return result

    def memory(self, name: str) -> None:
        """Note the memory that the daemon has now, and the most that it had."""
        self.row[f"memory MB {name}"] = memory_mb(self.peer.process.pid, "VmRSS")
        self.row[f"memory MB {name}, peak"] = memory_mb(self.peer.process.pid, "VmHWM")

    def end(self) -> None:
        self.peer.process.kill()
        self.peer.process.wait()


def prompted(folder: str, store: str, session: str, provider: Provider) -> dict[str, float]:
    """Open for writing, prompt twice."""
    run = Run(folder, store, provider)
    run.memory("before")
    run.timed(OPENED, "session/open", {"session": session})
    run.memory("opened")
    run.peer.session = session
    run.peer.call("event/subscribe", {"session": session, "after": "tail"})
    for name in (PROMPT, "second prompt → provider"):
        began = run.peer.turn("short")[0]
        run.row[f"{name}, wall ms"] = (provider.arrived() - began) * 1000
    run.memory("prompted")
    run.end()
    return run.row


def viewed(folder: str, store: str, session: str, provider: Provider) -> dict[str, float]:
    """Look at a session that nobody writes."""
    run = Run(folder, store, provider)
    page = {"limit": 100}
    read: dict[str, Any] = {"session": session}
    run.timed("open for reading", "session/open", {**read, "mode": "read"})
    run.timed("status", "session/read", {**read, "view": "status"})
    tail = run.peer.call("session/open", {**read, "mode": "read"})["tail"]
    run.timed("transcript, first 100", "session/read", {**read, "view": "transcript", "page": page})
    run.timed("transcript, last 100", "session/read", {**read, "view": "transcript", "page": {**page, "after": tail - 1_000}})
    run.timed("surface, first 100", "session/read", {**read, "view": "surface", "page": page})
    run.timed("events, last 100", "session/read", {**read, "view": "events", "page": {**page, "after": tail - 100}})
    run.memory("viewed")
    run.end()
    return run.row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("turns", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--words", type=int, default=len(ANSWER), help="words of an answer, each a chunk")
    options = parser.parse_args()
    columns: list[dict[str, float]] = []
    provider = Provider()
    with tempfile.TemporaryDirectory() as folder:
        for turns in options.turns:
            store = str(Path(folder, f"store-{turns}"))
            session = asyncio.run(make(store, turns, options.words))
            rows: list[dict[str, float]] = []
            for number in range(options.rounds + 1):
                copy = f"{store}-{number}"  # a prompt writes: each round has a store of its own
                shutil.copytree(store, copy)
                row = prompted(folder, copy, session, provider) | viewed(folder, store, session, provider)
                row["decoding each line once, CPU ms"] = least = asyncio.run(decode_all(store, session))
                row["session/open / that"] = row[f"{OPENED}, CPU ms"] / least
                rows.append(row)
                shutil.rmtree(copy)
            columns.append({name: statistics.median(row[name] for row in rows[1:]) for name in rows[0]})
    provider.process.kill()
    provider.process.wait()
    print(f"{'':>40}" + "".join(f"{turns:>10}" for turns in options.turns))
    for name in columns[0]:
        print(f"{name:>40}" + "".join(f"{column[name]:>10.2f}" for column in columns))


if __name__ == "__main__":
    main()
