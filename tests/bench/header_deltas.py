"""What header deltas save against snapshots: bytes of lines and bytes on disk for each change of a header.

`python -m tests.bench.header_deltas [--json] [--turns N]` plays N turns (default: 100) of a session with a system text of
20 kB and 40 tools, of which one line, one tool, or both change in each turn, once with deltas and once with a snapshot for
each change. Text is the prose of this repository. Bytes on disk are those of pages that the trees use, one flush a turn.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

import anyio
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from refold_protocol.json_text import compact_json
from refold_protocol.session.codec import seal
from refold_protocol.session.events import Draft, RequestHeader
from refold_protocol.session.header import header_draft
from refold_protocol.session.messages import CallConfig, EpochHeader, ToolSchema
from refold_storage.lmdb_store import open_store
from tests.bench.store import used
from tests.support.stores import HandClock, new, new_uuid

ROOT = Path(__file__).parents[2]
SYSTEM_BYTES, TOOLS = 20_000, 40
CASES = ("one line", "one tool", "a line and a tool")


class Figure(Struct, frozen=True):
    """Bytes for each change of a header; `micros` is CPU µs to compare two headers and make the event's draft."""

    case: str
    snapshot_line: float
    delta_line: float
    snapshot_stored: float
    delta_stored: float
    delta_micros: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What header deltas save against snapshots.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", type=int, default=100)
    options = parser.parse_args()
    figures = [anyio.run(measure, case, options.turns) for case in CASES]
    if options.json:
        print(json.dumps(to_builtins(figures)))
        return
    for one in figures:
        print(
            f"{one.case:18} line: {one.snapshot_line:8.0f} B as a snapshot, {one.delta_line:6.0f} B as a delta"
            f" (1/{one.snapshot_line / one.delta_line:.0f});  on disk: {one.snapshot_stored:7.0f} B, {one.delta_stored:6.0f} B"
            f" (1/{one.snapshot_stored / one.delta_stored:.0f});  {one.delta_micros:.0f} CPU µs a change"
        )


async def measure(case: str, turns: int) -> Figure:
    """Play one case in both ways."""
    headers = list(course(case, turns))
    began = time.process_time()
    deltas = [made for old, new in pairwise(headers) if (made := header_draft(old, new, anchored=True))]
    spent = time.process_time() - began
    snapshots = [Draft(RequestHeader(header, "fallback")) for header in headers[1:]]
    assert len(deltas) == len(snapshots) == turns
    lines = [sum(len(seal(draft, 1_000, 1_790_000_000_000).line) for draft in drafts) / turns for drafts in (snapshots, deltas)]
    disk = [await stored(drafts) / turns for drafts in (snapshots, deltas)]
    return Figure(case, lines[0], lines[1], disk[0], disk[1], spent / turns * 1e6)


def course(case: str, turns: int) -> Iterator[EpochHeader]:
    """The header of each turn, the one before the first included."""
    chance, prose = Random(7), _prose()
    written = prose.split("\n")
    count = sum(size < SYSTEM_BYTES for size in accumulate(len(line) + 1 for line in written))
    lines, spare = written[:count], written[count:]
    tools = [_tool(number, chance, prose) for number in range(TOOLS)]
    config = CallConfig("engine", "chain", "chat-completions", max_tokens=8_192)
    header = EpochHeader(config, "\n".join(lines), tuple(tools))
    yield header
    for turn in range(turns):
        if case != "one tool":
            lines[chance.randrange(len(lines))] = f"{turn}: {chance.choice(spare)}"
        if case != "one line":
            place = chance.randrange(TOOLS)
            tools[place] = _tool(place, chance, prose)
        header = replace(header, system="\n".join(lines), tools=tuple(tools))
        yield header


async def stored(drafts: list[Draft]) -> int:
    """Bytes on disk of a session that holds `drafts`, one flush for each."""
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(folder, new_uuid=new_uuid, clock=HandClock())
        handle = await store.create(new("headers"))
        for draft in drafts:
            handle.append([draft])
            await handle.flush()
        size = used(store)
        await store.close()
    return size


def _prose() -> str:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("*.md")))
    return re.sub(r"\n{2,}", "\n", text)


def _tool(number: int, chance: Random, prose: str) -> ToolSchema:
    def words(size: int) -> str:
        start = chance.randrange(len(prose) - size)
        return " ".join(prose[start : start + size].split())

    properties = {name: {"type": "string", "description": words(60)} for name in ("path", "pattern", "limit")}
    schema = {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
    return ToolSchema(f"tool_{number}", words(200), compact_json(schema))


if __name__ == "__main__":
    main()
