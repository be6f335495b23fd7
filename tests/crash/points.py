"""Table of fail points: places between two steps at which a child of the harness ends itself by SIGKILL.

Nothing of it is in the product: each row puts itself around named functions of it, in the child alone, after the fork.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from refold_server.compaction import compaction_run
from refold_server.compaction.compaction_trigger import CompactionTrigger
from refold_server.loop import turn
from refold_server.loop.approvals import Approvals
from refold_server.loop.tool_calls import ToolCalls
from refold_server.requests import model_call
from refold_server.requests.session_log import SessionLog
from refold_server.rpc import change_methods as compact_methods
from refold_server.sessions.session import Session
from refold_server.tools import text_change
from refold_storage import store as session_changes
from refold_storage import store_opening as opening
from refold_storage.commit import CommitQueue
from refold_storage.environment import Environment
from refold_storage.high_water import HighWaterMark
from refold_storage.store import LmdbStore
from refold_storage.writer import WriteHandle
from tests.crash.pipe import Pipe, now_ms
from tests.crash.wire import Client

Hit = Callable[[], None]
"""Called whenever the place is passed; does not come back from the chosen time."""


class Point(Struct, frozen=True):
    """A fail point. A life ends there at one of the first `most` times that it is passed; `put` puts it in."""

    name: str
    most: int
    put: Callable[[Hit], None]


class Stages:
    """Who is told of the stages of commits, `commit` and `change` by the thread that makes them; and whether closers are
    being written."""

    def __init__(self) -> None:
        self.told: list[Callable[[str, str], None]] = []
        self.repairing = 0

    def __call__(self, stage: str) -> None:
        """The store's fail point."""
        for tell in self.told:
            tell(threading.current_thread().name.removeprefix("refold "), stage)


STAGES: Final = Stages()


def before(owner: Any, name: str) -> Callable[[Hit], None]:
    """A place in front of a function, sync or not."""

    def put(hit: Hit) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def outer(*given: Any, **more: Any) -> Any:
            hit()
            return inner(*given, **more)

        setattr(owner, name, outer)

    return put


def behind(owner: Any, name: str, when: Callable[[Any], bool] = lambda _: True) -> Callable[[Hit], None]:
    """A place behind a function that is not async, where its result is as wanted."""

    def put(hit: Hit) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def outer(*given: Any, **more: Any) -> Any:
            result = inner(*given, **more)
            if when(result):
                hit()
            return result

        setattr(owner, name, outer)

    return put


def awaited(owner: Any, name: str, when: Callable[[Any], bool] = lambda _: True) -> Callable[[Hit], None]:
    """A place behind an async function, where its result is as wanted."""

    def put(hit: Hit) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        async def outer(*given: Any, **more: Any) -> Any:
            result = await inner(*given, **more)
            if when(result):
                hit()
            return result

        setattr(owner, name, outer)

    return put


def asked_for(purpose: str) -> Callable[[Hit], None]:
    """The place after the record of a request is durable."""
    return awaited(model_call, "_record", lambda sent: sent.purpose == purpose)


def at_stage(thread: str, stage: str, *, repairing: bool = False) -> Callable[[Hit], None]:
    """A place in a commit."""

    def put(hit: Hit) -> None:
        def told(maker: str, reached: str) -> None:
            if (maker, reached) == (thread, stage) and (STAGES.repairing > 0 or not repairing):
                hit()

        STAGES.told.append(told)

    return put


def inside_commits(hit: Hit) -> None:
    """A place in the middle of LMDB's own commit, while pages or the disk are written: up to 2 ms after it began."""
    delays = itertools.cycle((0.0, 0.0002, 0.0004, 0.0007, 0.001, 0.002))

    def told(maker: str, reached: str) -> None:
        if (maker, reached) == ("commit", "written"):
            timer = threading.Timer(next(delays), hit)
            timer.daemon = True
            timer.start()

    STAGES.told.append(told)


def inside_openings(hit: Hit) -> None:
    """A place in the middle of LMDB's own opening of the data file: up to 0.7 ms after it began."""
    inner = getattr(opening, "_mapped")  # noqa: B009 - private to the product

    @functools.wraps(inner)
    def mapped(*given: Any, **more: Any) -> Any:
        timer = threading.Timer(os.getpid() % 8 * 0.0001, hit)
        timer.daemon = True
        timer.start()
        return inner(*given, **more)

    setattr(opening, "_mapped", mapped)  # noqa: B010 - as above


def repairing(hit: Hit) -> None:
    """The place at which closers are accepted and not flushed."""
    inner = SessionLog.flush

    async def flush(self: SessionLog) -> int:
        if STAGES.repairing:
            hit()
        return await inner(self)

    SessionLog.flush = flush


def mark_repairs() -> None:
    """Have `STAGES` know when closers are being written."""
    inner = SessionLog.repair

    async def repair(self: SessionLog) -> bool:
        STAGES.repairing += 1
        try:
            return await inner(self)
        finally:
            STAGES.repairing -= 1

    SessionLog.repair = repair


POINTS: Final = (
    Point("opening: its turn is taken, LMDB has not begun", 1, before(opening, "_trusted")),
    Point("opening: somewhere in LMDB's own", 1, inside_openings),
    Point("opening: LMDB has opened it, nothing is compared", 1, before(opening, "_compare")),
    Point("opening: its turn is over, the write lock is not taken", 1, before(opening, "_databases")),
    Point("commit: on the disk, not noted beside it", 20, before(HighWaterMark, "put")),
    Point("commit: the write lock is held", 20, at_stage("commit", "begun")),
    Point("commit: all is written, nothing committed", 20, at_stage("commit", "written")),
    Point("commit: somewhere between its beginning and its end", 20, inside_commits),
    Point("commit: committed, nobody told", 20, before(CommitQueue, "_tell")),
    Point("commit: told to the event loop, not to who waits", 20, before(CommitQueue, "_deliver")),
    Point("input: durable, not answered", 4, awaited(Session, "_accept")),
    Point("request: durable, not sent", 5, asked_for("step")),
    Point("call: durable, not begun", 5, before(ToolCalls, "_run_one")),
    Point("call: done, no result", 5, awaited(ToolCalls, "_run_one")),
    Point("call: its file is made, nothing is said", 3, behind(text_change, "make_file")),
    Point("approval: question durable, nobody asked", 2, before(Approvals, "_answered")),
    Point("approval: answered, not durable", 2, behind(Approvals, "answer")),
    Point("approval: answer durable, nothing done", 2, before(Approvals, "_verdict")),
    Point("wire: a reply was sent", 30, before(Client, "replied")),
    Point("wire: an open was answered", 3, before(Client, "opened")),
    Point("wire: an end was told", 4, before(Client, "ended")),
    Point("turn: its end accepted, not durable", 3, behind(turn, "_close")),
    Point("closers: accepted, not durable", 1, repairing),
    Point("closers: written, not committed", 1, at_stage("commit", "written", repairing=True)),
    Point("closers: durable, the open not answered", 1, awaited(SessionLog, "repair", bool)),
    Point("fork: written, not committed", 2, behind(session_changes, "fork")),
    Point("fork: durable, not answered", 2, awaited(LmdbStore, "fork")),
    Point("delete: done, not committed", 1, behind(session_changes, "delete")),
    Point("delete: durable, not answered", 1, awaited(LmdbStore, "delete")),
    Point("archive: durable, not answered", 1, awaited(LmdbStore, "set_archived")),
    Point(
        "compact: the call for a summary durable, not sent",
        2,
        awaited(model_call, "_record", lambda sent: sent.purpose == "summary"),
    ),
    Point("compact: summed up, not landed", 2, before(compaction_run, "_land")),
    Point("compact: landed, not durable", 2, behind(compaction_run, "_land")),
    Point("compact: durable, not answered", 2, awaited(compact_methods, "compact_session")),
    Point("room: made by a step, not durable", 2, awaited(CompactionTrigger, "_compacted", bool)),
    Point("map: full, not grown", 1, before(Environment, "grow")),
    Point("map: grown, the commit not repeated", 1, behind(Environment, "grow", bool)),
)
"""Every fail point, in the order in which a campaign aims at them."""


def arm(pipe: Pipe, point: Point | None, nth: int) -> None:
    """Put `point` into this process, for its `nth` passing."""
    mark_repairs()
    if point is None:
        return
    left = nth

    def hit() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            pipe.say("*", f"{now_ms()} {point.name}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    point.put(hit)


def promise_too_early() -> None:
    """Break the product on purpose: what was accepted counts as durable."""

    async def flush(self: WriteHandle, up_to: int | None = None, **more: Any) -> int:
        del up_to, more
        return self.tail

    WriteHandle.flush = flush
    WriteHandle.durable = property(lambda self: self.tail)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
