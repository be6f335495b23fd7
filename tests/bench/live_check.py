"""CPU of the live check as a share of a step's own time, in its normal mode and in the one of tests.

`python -m tests.bench.live_check [TURNS]` runs short turns of one session over LMDB without HTTP, twice, and tells the
share over the last 64 turns, in which the normal mode checks once.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from refold_protocol.ids import SessionId
from refold_protocol.session.messages import Source, text_content
from refold_protocol.session.request import Request
from refold_server.clock import epoch_ms, uuid7
from refold_server.loop.instance import Instance
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.live_check import EVERY, CheckMode, LiveCheck
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.session import Session
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import open_store
from tests.bench.chunk_cost import BytesProvider, stream_bytes
from tests.support.loop_host import ScriptedHost


class Timed(LiveCheck):
    """A live check that counts its own CPU seconds; nothing else runs while it does."""

    spent = 0.0

    async def check(self, request: Request, body: bytes) -> None:
        began = time.process_time()
        await super().check(request, body)
        Timed.spent += time.process_time() - began


async def share(folder: str, turns: int, mode: CheckMode) -> tuple[float, float]:
    """CPU seconds of the last EVERY turns in all, and of the check in them."""
    store = await open_store(folder, new_uuid=uuid7, clock=epoch_ms)
    provider = BytesProvider([b"".join(stream_bytes(5))])
    taken = 0.0
    async with anyio.create_task_group() as tasks:

        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(work)

        session_log = SessionLog(await store.create(NewSession(SessionId(uuid7()), "/", epoch_ms())))
        session = Session(session_log, Instance(session_log, ScriptedHost(provider), SessionHooks(), "Be brief."), spawn)
        session.instance.model.live_check = Timed(session_log.handle, mode)
        began = 0.0
        for number in range(turns):
            if number == turns - EVERY:
                began, Timed.spent = time.process_time(), 0.0
            _, turn, _ = await session.start(text_content("short"), Source("cli"))
            await session.turns.wait(turn)
        taken = time.process_time() - began
        await session.close()
    await store.close()
    return taken, Timed.spent


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    modes: tuple[CheckMode, ...] = ("sampled", "always")
    for mode in modes:
        with tempfile.TemporaryDirectory() as folder:
            taken, spent = anyio.run(share, folder, turns, mode)
        own = taken - spent
        print(
            f"{mode:>7}, turns {turns - EVERY + 1}-{turns}: {taken / EVERY * 1e6:.0f} CPU µs a turn, the check "
            f"{spent / EVERY * 1e6:.0f} µs of it, {spent / own:.1%} of the rest"
        )


if __name__ == "__main__":
    main()
