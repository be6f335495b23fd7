"""What the store costs: bytes per chunk and per short turn on disk, CPU microseconds per append, flushes per second.

`python -m tests.bench.store [FOLDER]` prints the figures; FOLDER should lie on the disk in question. The text is prose in
pieces of a token's size, at the pace of a stream: the background commit packs it as it would live. Figures are bytes of
pages that the trees really use, so they contain LMDB's overhead; the file itself also has free pages.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from pathlib import Path

from refold_protocol.ids import CallId
from refold_protocol.session.events import (
    AssistantChunk,
    AssistantMessage,
    Draft,
    EncoderId,
    RequestSent,
    StepEnd,
    StepStart,
    ToolCall,
    Trigger,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.messages import (
    BlockEnd,
    BlockStart,
    FinishChunk,
    Source,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
    text_content,
)
from refold_storage.interface import Handle
from refold_storage.lmdb_store import open_store
from refold_storage.store import LmdbStore
from tests.support.stores import HandClock, new, new_uuid, prompt, tool_result, turn_end

ROOT = Path(__file__).parents[2]
CHUNKS = 20_000
TURNS = 300


async def main() -> None:
    """Run all measurements."""
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for every, sessions in ((1, 1), (4, 1), (20, 1), (200, 1), (20, 8)):
            size, spent = await stream(Path(place) / f"{every}.{sessions}", every, sessions)
            case = f"{sessions} session(s), a commit every {every} chunks"
            say(f"{case:46}{size:8.1f} bytes a chunk {spent:8.1f} CPU µs a chunk, commit thread included")
        say(f"{'a short turn with one tool call':46}{await turns(Path(place) / 'turns'):8.0f} bytes")
        say(f"{'append of one chunk, seal and digest included':46}{await appends(Path(place) / 'appends'):8.2f} CPU µs")
        say(f"{'flush of one event, one after the other':46}{await flushes(Path(place) / 'flushes'):8.0f} a second")


def say(line: str) -> None:
    """Print a figure as soon as it is known."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def words() -> list[str]:
    """Prose in pieces of a token's size."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("*.md")))
    pieces = re.findall(r"\s?\w{1,7}|\s*[^\w\s]|\s+", text)
    return (pieces * (CHUNKS // len(pieces) + 1))[:CHUNKS]


def used(store: LmdbStore) -> int:
    """Bytes of all pages that the databases use."""
    with store.environment.reading() as transaction:
        stats = [
            transaction.stat(database)
            for database in (store.environment.databases.records, store.environment.databases.sessions)
        ]
    return sum((stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"] for stat in stats)


async def stream(folder: Path, every: int, sessions: int) -> tuple[float, float]:
    """Bytes on disk and CPU µs for a chunk of streams that are committed after each `every` chunks."""
    clock = HandClock()
    store = await open_store(folder, new_uuid=new_uuid, clock=clock)
    handles = [await store.create(new(f"s{number}")) for number in range(sessions)]
    count = CHUNKS if every > 1 else CHUNKS // 4
    began = time.process_time()
    for number, piece in enumerate(words()[:count]):
        clock.now += (7, 13, 9, 11, 25, 0, 31)[number % 7]
        handle = handles[number // every % sessions]
        handle.append([Draft(AssistantChunk(3, 2, 1, TextDelta(0, piece)))])
        if number % every == every - 1:
            await handle.flush()
    await asyncio.gather(*(handle.flush() for handle in handles))
    spent = time.process_time() - began
    size = used(store)
    await store.close()
    return size / count, spent / count * 1e6


async def turns(folder: Path) -> float:
    """Bytes on disk for a turn of two steps, one tool call and thirty words, flushed where the loop flushes."""
    clock = HandClock()
    store = await open_store(folder, new_uuid=new_uuid, clock=clock)
    handle = await store.create(new("turns"))
    for turn in range(1, TURNS + 1):
        clock.now += 60_000
        await short_turn(handle, clock, turn)
    size = used(store)
    await store.close()
    return size / TURNS


async def short_turn(handle: Handle, clock: HandClock, turn: int) -> None:
    """A turn as the loop records it."""

    async def record(*drafts: Draft, flush: bool = False) -> None:
        for draft in drafts:
            clock.now += 11
            handle.append([draft])
        if flush:
            await handle.flush()

    def chunk(step: int, piece: BlockStart | TextDelta | ToolCallDelta | BlockEnd | UsageChunk | FinishChunk) -> Draft:
        return Draft(AssistantChunk(turn, step, 1, piece))

    def sent(step: int) -> Draft:
        digest = f"{turn * 7919**20 + step * 104729**15:064x}"[:64]
        return Draft(RequestSent("step", 1, EncoderId("chat-completions", 1), 9_000 + turn, digest, digest[::-1], turn, step))

    me, call, usage = Source("client", "nvim"), CallId(f"call_{turn:08x}"), Usage(1_000 + turn, 30, 900)
    asked = "Where is the log written, and how often?"
    await record(prompt(asked), flush=True)
    await record(Draft(TurnStart(turn, Trigger("message", me))), Draft(UserMessage(text_content(asked), me), "append"))
    await record(Draft(StepStart(turn, 1)), sent(1), flush=True)
    await record(chunk(1, BlockStart(0, "tool-call", call, "search_text")))
    await record(*(chunk(1, ToolCallDelta(0, piece)) for piece in ('{"', "query", '":"', "append", '"}')))
    await record(chunk(1, BlockEnd(0)), chunk(1, FinishChunk("tool-calls")), chunk(1, UsageChunk(usage)))
    block = ToolCallBlock(call, "search_text", '{"query":"append"}')
    await record(Draft(AssistantMessage(turn, 1, (block,), "engine", "chain", "tool-calls", usage), "append"))
    await record(Draft(ToolCall(turn, 1, call, "search_text", '{"query":"append"}')), flush=True)
    await record(tool_result(300), Draft(StepEnd(turn, 1)), Draft(StepStart(turn, 2)), sent(2), flush=True)
    text = words()[turn * 30 : turn * 30 + 30]
    await record(chunk(2, BlockStart(0, "text")), *(chunk(2, TextDelta(0, word)) for word in text))
    await record(chunk(2, BlockEnd(0)), chunk(2, FinishChunk("stop")), chunk(2, UsageChunk(usage)))
    await record(Draft(AssistantMessage(turn, 2, (TextBlock("".join(text)),), "engine", "chain", "stop", usage), "append"))
    await record(Draft(StepEnd(turn, 2)), turn_end(), flush=True)


async def appends(folder: Path) -> float:
    """CPU µs of the event loop's thread for one append."""
    store = await open_store(folder, new_uuid=new_uuid)
    handle = await store.create(new("appends"))
    batches = [[Draft(AssistantChunk(3, 2, 1, TextDelta(0, piece)))] for piece in words()]
    taken: list[float] = []
    for _ in range(5):
        began = time.thread_time()
        for batch in batches:
            handle.append(batch)
        taken.append(time.thread_time() - began)
        await handle.flush()
    await store.close()
    return min(taken) / len(batches) * 1e6


async def flushes(folder: Path) -> float:
    """Flushes a second, each of one event."""
    store = await open_store(folder, new_uuid=new_uuid)
    handle = await store.create(new("flushes"))
    began = time.perf_counter()
    for number in range(500):
        handle.append([Draft(AssistantChunk(3, 2, 1, TextDelta(0, str(number))))])
        await handle.flush()
    spent = time.perf_counter() - began
    await store.close()
    return 500 / spent


if __name__ == "__main__":
    asyncio.run(main())
