"""What the next writer does after a kill: it opens the log, once and again, and goes on with a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from typing import Any

from refold_protocol.ids import SessionId
from refold_protocol.session.closers import closers_of, drafts_as_events, open_at_end
from refold_protocol.session.codec import decode_event
from refold_protocol.session.event_data import FORKED, INTERRUPTED
from refold_protocol.session.events import InstanceStart, TurnEnd
from refold_protocol.session.grammar import fold_turns
from refold_protocol.session.messages import Chunk, FinishChunk, Source, TextDelta, text_content
from refold_protocol.session.request import Request
from refold_protocol.session.session_state import fold_all
from refold_server.config_file import load_config
from refold_server.requests.session_log import is_seed
from refold_server.services import Services
from refold_server.sessions.session_registry import Sessions
from refold_storage.interface import Store
from tests.crash.child import Ground, place_model
from tests.crash.replaces import torn_compactions


class ShortModel:
    """Answers every request in one word."""

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Give the reply."""
        del request, body
        yield TextDelta(0, "Yes.")
        yield FinishChunk("stop")


def sessions_over(ground: Ground, store: Store) -> Sessions:
    """Give the product's sessions over a store, with a model that answers in one word."""
    place_model(ShortModel())
    shared = Services(load_config(ground.config, {}, store=str(ground.store)))
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.get_running_loop().create_task(work())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return Sessions(store, shared.host, spawn, plugins=shared.plugins)


async def reopened(store: Store, session: str, lines: Sequence[bytes], ground: Ground) -> list[str]:
    """Open a log for writing twice; say what that did besides appending the closers that are due, once."""
    first = await _opened(store, session, ground)
    second = await _opened(store, session, ground)
    return list(_faults(store, session, lines, first, second))


async def _opened(store: Store, session: str, ground: Ground) -> list[bytes]:
    sessions = sessions_over(ground, store)
    live = await sessions.open(SessionId(session))
    lines = live.session_log.handle.lines(0)
    assert live.session_log.handle.durable == len(lines) - 1, "an open was answered before its closers were durable"
    assert live.session_log.folds.pending == fold_all(map(decode_event, lines)).pending
    await sessions.close(SessionId(session))
    return lines


def _faults(
    store: Store, session: str, before: Sequence[bytes], first: Sequence[bytes], second: Sequence[bytes]
) -> Iterator[str]:
    events = [decode_event(line) for line in before]
    work = fold_turns(events)
    parent = store.get(SessionId(session)).parent
    seed = is_seed(parent, work)
    due = closers_of(work, events[-1].time, FORKED if seed else INTERRUPTED) if open_at_end(work) else ()
    expected = [*before, *(event.line for event in drafts_as_events(due, len(before) - 1))]
    behind = [decode_event(line).data for line in first[len(expected) :]]
    if first[: len(expected)] != expected:
        yield f"opening it for writing appended {first[len(before) :]}"
    if any(not isinstance(data, InstanceStart) for data in behind) or len(behind) > seed:
        yield f"opening it for writing appended {behind} behind the closers"
    inherited = -1 if parent is None else parent.at
    yield from torn_compactions([decode_event(line) for line in first], inherited, closed=True)
    if second != first:
        yield f"opening it again appended {second[len(first) :]}"


async def prompted(ground: Ground, store: Store, session: str) -> list[str]:
    """Go on with a session; say what kept the turn from its end."""
    sessions = sessions_over(ground, store)
    live = await sessions.open(SessionId(session))
    _, turn, _ = await live.start(text_content("Are you there?"), Source("cli"))
    end = await live.turns.wait(turn)
    await sessions.close(SessionId(session))
    completed = isinstance(end.data, TurnEnd) and end.data.reason.kind == "completed"
    return [] if completed else [f"the next turn ended {end.line!r}"]
