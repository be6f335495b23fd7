"""Model of the crash harness: it draws its replies from a seed, and says which body it was sent before the first
chunk of its reply.

Replies are text in pieces, calls that read, calls that write, cut streams and refusals; who asks for a summary mostly gets
one. Every file that it asks for has a name of its own, so that what a call did can be laid at the door of one `tool/call`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Iterator
from hashlib import sha256
from typing import Final

from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from refold_protocol.session.request import Request
from refold_server.compaction.compaction_decision import instructions
from tests.crash.pipe import Pipe

ASKED: Final = instructions()[:60].encode()
"""What stands in the body of a request for a summary."""

WORDS = ("the", "zebra", "sleeps", "under", "a", "tree", "and", "nobody", "knows", "why")


class SeededModel:
    """A provider. `life` makes the names of files unique, `busy` (0 to 1) says how often it writes files."""

    def __init__(self, pipe: Pipe, rng: random.Random, life: str, busy: float = 0.3) -> None:
        self._pipe = pipe
        self._rng = rng
        self._life = life
        self._busy = busy
        self._calls = 0

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Give a reply. Raises ProviderError now and then."""
        del request
        self._pipe.say("b", sha256(body).hexdigest().encode())
        for chunk in self._summary() if ASKED in body and self._rng.random() < 0.85 else self._reply(len(body)):
            pause = self._rng.random()
            if pause < 0.3:
                await asyncio.sleep(0 if pause < 0.2 else self._rng.random() * 0.01)
            if self._rng.random() < 0.001:
                raise ProviderError("provider.unavailable", "the model went away")
            yield chunk

    def _summary(self) -> Iterator[Chunk]:
        yield from self._spoken(0, "text", self._rng.randrange(1, 12))
        yield FinishChunk("stop")

    def _reply(self, prompt: int) -> Iterator[Chunk]:
        draw, index, calls = self._rng.random(), 0, 0
        if draw < 0.3:
            yield from self._spoken(index, "reasoning", self._rng.randrange(1, 20))
            index += 1
        if draw < 0.8:
            yield from self._spoken(index, "text", self._rng.choice((1, 5, 30, 120)))
            index += 1
        if draw < 0.03:  # cut: no end is said
            return
        if draw > 0.45:
            calls = self._rng.randrange(1, 4)
            for _ in range(calls):
                yield from self._call(index)
                index += 1
        yield UsageChunk(Usage(prompt, 3))
        yield FinishChunk("length" if draw < 0.06 else "tool-calls" if calls else "stop")

    def _spoken(self, index: int, kind: str, words: int) -> Iterator[Chunk]:
        yield BlockStart(index, kind)
        for _ in range(words):
            word = f" {self._rng.choice(WORDS)}"
            yield ReasoningDelta(index, word) if kind == "reasoning" else TextDelta(index, word)
        yield BlockEnd(index)

    def _call(self, index: int) -> Iterator[Chunk]:
        self._calls += 1
        draw = self._rng.random()
        if draw < self._busy:
            name, arguments = "write_file", {"path": f"out/{self._life}-{self._calls}.txt", "content": "written\n"}
        elif draw < self._busy + 0.3:
            name, arguments = "read_file", {"path": self._rng.choice(("animals.txt", "horses.txt"))}
        elif draw < self._busy + 0.6:
            name, arguments = "list_files", {}
        else:
            name, arguments = "no_such_tool", {}
        text = json.dumps(arguments)
        yield BlockStart(index, "tool-call", f"{self._life}-{self._calls}", name)
        yield ToolCallDelta(index, text[:9])
        yield ToolCallDelta(index, text[9:])
        yield BlockEnd(index)
