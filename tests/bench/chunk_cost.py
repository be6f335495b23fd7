"""CPU per streamed chunk, from a provider's bytes to the frame of a notification, with the log in LMDB.

`python -m tests.bench.chunk_cost [CHUNKS] [EVENTS_PER_READ]` prints CPU microseconds a chunk for decoding alone, for
decoding and appending, and for the whole way to a client's frames; and how many notifications carried them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.ids import SessionId
from refold_protocol.rpc.envelope import encode_notification
from refold_protocol.rpc.framing import encode_frame
from refold_protocol.session.messages import Chunk, Source, text_content
from refold_protocol.session.request import Request
from refold_server.clock import epoch_ms, uuid7
from refold_server.loop.instance import Instance
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import SessionLog
from refold_server.rpc.event_methods import notice_of
from refold_server.sessions.event_tail import Tail
from refold_server.sessions.session import Session
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import open_store
from tests.support.loop_host import ScriptedHost, ScriptedProvider

WORDS = ("the", " log", " is", " the", " truth,", " and", " what", " follows", " from", " it", ".\\n")


def stream_bytes(chunks: int) -> list[bytes]:
    """One SSE event a chunk, as a chat-completions server writes it."""
    head = b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    events = [b'%s{"content":"%s"},"finish_reason":null}]}\n\n' % (head, WORDS[n % len(WORDS)].encode()) for n in range(chunks)]
    return [*events, head + b'{},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]


class BytesProvider(ScriptedProvider):
    """Gives what the dialect's decoder makes of prepared bytes, yielding to the loop after each read."""

    def __init__(self, reads: list[bytes]) -> None:
        super().__init__()
        self._reads = reads

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        decoder = dialect_named("chat-completions").make_decoder()
        for data in self._reads:
            for chunk in decoder.feed(data):
                yield chunk
            await anyio.lowlevel.checkpoint()
        for chunk in decoder.close():
            yield chunk


async def whole_way(reads: list[bytes], folder: str, *, follow: bool) -> tuple[float, int]:
    """CPU seconds of one turn, and the number of notifications."""
    store = await open_store(folder, new_uuid=uuid7, clock=epoch_ms)
    frames, spent = 0, 0.0
    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(work)

        handle = await store.create(NewSession(SessionId(uuid7()), "/", epoch_ms()))
        session_log = SessionLog(handle)
        session = Session(
            session_log, Instance(session_log, ScriptedHost(BytesProvider(reads)), SessionHooks(), "Be brief."), spawn
        )
        tail = Tail(handle, -1)

        async def publish() -> None:
            nonlocal frames
            while not tail.closed:
                batch = tail.take()
                if batch is None:
                    await tail.wait()
                    continue
                encode_frame(encode_notification("session/events", notice_of(1, handle.writer, batch)))
                frames += 1

        if follow:
            tasks.start_soon(publish)
        began = time.process_time()
        _, turn, _ = await session.start(text_content("go"), Source("cli"))
        await session.turns.wait(turn)
        spent = time.process_time() - began
        tail.close()
        await session.close()
    await store.close()
    return spent, frames


def main() -> None:
    chunks = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    per_read = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    events = stream_bytes(chunks)
    reads = [b"".join(events[place : place + per_read]) for place in range(0, len(events), per_read)]
    began = time.process_time()
    decoder = dialect_named("chat-completions").make_decoder()
    for data in reads:
        decoder.feed(data)
    decoding = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        appending, _ = anyio.run(lambda: whole_way(reads, folder, follow=False))
    with tempfile.TemporaryDirectory() as folder:
        telling, frames = anyio.run(lambda: whole_way(reads, folder, follow=True))
    for name, seconds in (("decode", decoding), ("decode, append, commit", appending), ("…, notify", telling)):
        print(f"{name:>24}: {seconds / chunks * 1e6:6.2f} CPU µs a chunk")
    print(f"{'notifications':>24}: {frames} for {chunks} chunks, {per_read} a read")


if __name__ == "__main__":
    main()
