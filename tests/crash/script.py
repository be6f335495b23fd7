"""What a person does in a life of the harness: everything that a client can ask for, in an order drawn from a seed,
several things at once, until the process is killed.

What is refused is refused: nothing here looks at replies, except to learn which sessions there are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.crash.pipe import Pipe
from tests.crash.wire import Client

SMALL: Final = "seeded/small"
"""The model whose window is soon full."""

LARGE: Final = 40_000
"""Characters of a large injection; some of them make a map of 1 MiB grow."""


class Person:
    """Whoever uses the daemon. `aim` is the first word of the fail point that this life is to get to, or empty; `open` are the
    sessions that it has open."""

    def __init__(self, pipe: Pipe, rng: random.Random, folder: str, aim: str = "") -> None:
        self.client = Client(pipe, self._answered)
        self._rng = rng
        self._folder = folder
        self.aim = aim
        self._known: list[str] = []
        self.open: list[str] = []
        self._turns: dict[str, int] = {}
        self._inputs: list[tuple[str, str]] = []
        self._number = 0

    async def live(self) -> None:
        """Work until killed."""
        await self.start()
        await self.work(lambda: False)

    async def start(self) -> None:
        """Begin the connection and open some sessions."""
        await self.client.ask("initialize", capabilities={}, processId=None)
        self.client.line.put({"method": "initialized", "params": {}})
        await self._look()

    async def work(self, enough: Callable[[], bool]) -> None:
        """Do things, three at a time, until it is enough."""
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(self._work(enough))

    async def _look(self) -> None:
        listed = await self.client.ask("session/list", limit=100, archived=True)
        self._known = [row["session"] for row in listed["sessions"]]
        self._rng.shuffle(self._known)
        for session in self._known[:3]:
            await self._opened(session)
        if not self.open or self.aim == "room":  # what others left may be on the large model, which is never full
            await self._begin()

    async def _work(self, enough: Callable[[], bool]) -> None:
        while not enough():
            action = self._drawn()
            session = self._rng.choice(self.open) if self.open else ""
            await action(session)
            await asyncio.sleep(self._rng.choice((0, 0, 0.002, 0.01)))

    def _drawn(self) -> Callable[[str], Awaitable[None]]:
        """Choose what to do next; what a life aims at is done more often."""
        rows: list[tuple[int, Callable[[str], Awaitable[None]]]] = [
            (12, self._prompt),
            (4, self._wait),
            (2, self._interrupt),
            (3, self._inject),
            (2, self._configure),
            (1, self._rename),
            (2, self._withdraw),
            (2, self._flush),
            (2, self._read),
            (20 if self.aim == "fork" else 2, self._fork),
            (20 if self.aim == "archive" else 1, self._archive),
            (20 if self.aim == "delete" else 1, self._delete),
            (1, self._close),
            (3, self._reopen),
            (20 if self.aim == "map" else 0, self._fill),
            (20 if self.aim == "compact" else 1, self._compact),
        ]
        if not self.open:
            return self._reopen
        weights, actions = zip(*rows, strict=True)
        return self._rng.choices(actions, weights)[0]

    async def _begin(self) -> None:
        settings: dict[str, Any] = {}
        if self.aim == "call":
            settings["permissions"] = {"mode": self._rng.choice(("ask", "allow"))}
        elif self._rng.random() < 0.5:
            settings["permissions"] = {"mode": self._rng.choice(("ask", "ask", "allow", "deny"))}
        if self._rng.random() < (1.0 if self.aim == "room" else 0.25):
            settings["model"] = SMALL
        begun = await self.client.ask("session/open", cwd=self._folder, **settings)
        if begun is not None:
            await self._follow(begun["session"])

    async def _opened(self, session: str) -> None:
        opened = await self.client.ask("session/open", session=session)
        if opened is not None:
            self._inputs += [(session, one["input"]) for one in opened["pendingInputs"]]
            await self._follow(session)

    async def _follow(self, session: str) -> None:
        if session not in self.open:
            self.open.append(session)
        if session not in self._known:
            self._known.append(session)
        after = self._rng.choice((-1, "tail"))
        await self.client.ask("event/subscribe", session=session, after=after)

    async def _reopen(self, session: str) -> None:
        closed = [one for one in self._known if one not in self.open]
        if len(self._known) < 5 or not closed:
            await self._begin()
        else:
            await self._opened(self._rng.choice(closed))

    async def _prompt(self, session: str) -> None:
        waiting = [given for name, given in self._inputs if name == session]
        if waiting and self._rng.random() < 0.2:
            started = await self.client.ask("turn/start", session=session, input=self._rng.choice(waiting))
        else:
            more: dict[str, Any] = {"ifRunning": self._rng.choice(("queue", "steer", "error"))}
            if self._rng.random() < 0.3:
                more["key"] = self._rng.choice("abcdef")
            content = [{"type": "text", "text": f"Question {more.get('key') or self._next()}?"}]
            started = await self.client.ask("turn/start", session=session, content=content, **more)
        if started is not None:
            self._inputs.append((session, started["input"]))
            if "turn" in started:
                self._turns[session] = started["turn"]

    async def _wait(self, session: str) -> None:
        turn = self._turns.get(session)
        if turn is not None:
            await self.client.ask("turn/wait", session=session, turn=turn)

    async def _interrupt(self, session: str) -> None:
        queued = self._rng.random() < 0.3
        await self.client.ask("turn/interrupt", session=session, turn=self._turns.get(session, 1), withdrawQueued=queued)

    async def _inject(self, session: str) -> None:
        await self._say(session, f"By the way, {self._next()}.")

    async def _fill(self, session: str) -> None:
        await self._say(session, self._rng.randbytes(LARGE // 2).hex())

    async def _say(self, session: str, text: str) -> None:
        content = [{"type": "text", "text": text}]
        await self.client.ask("session/inject", session=session, content=content, source={"kind": "client"})

    async def _configure(self, session: str) -> None:
        patch = self._rng.choice(
            (
                {"permissions": {"mode": "allow"}},
                {"permissions": {"mode": "ask"}},
                {"permissions": {"mode": "deny"}},
                {"limits": {"steps": 7}},
            )
        )
        await self.client.ask("session/configure", session=session, patch=patch)

    async def _compact(self, session: str) -> None:
        if self._rng.random() < 0.8:  # it is refused while a turn runs
            await self._wait(session)
        await self.client.ask("session/compact", session=session)

    async def _rename(self, session: str) -> None:
        await self.client.ask("session/rename", session=session, title=f"Title {self._next()}")

    async def _withdraw(self, session: str) -> None:
        if self._inputs:
            of, given = self._inputs.pop(self._rng.randrange(len(self._inputs)))
            await self.client.ask("input/withdraw", session=of, input=given)

    async def _flush(self, session: str) -> None:
        await self.client.ask("session/flush", session=session)

    async def _read(self, session: str) -> None:
        view = self._rng.choice(("transcript", "surface", "status", "header"))
        await self.client.ask("session/read", session=session, view=view)

    async def _fork(self, session: str) -> None:
        if len(self._known) > 9:
            await self._delete(session)
        at = {} if self._rng.random() < 0.3 else {"at": self._rng.randrange(80)}
        forked = await self.client.ask("session/fork", session=session, **at)
        if forked is not None:
            self._known.append(forked["session"])

    async def _archive(self, session: str) -> None:
        await self.client.ask("session/archive", session=self._rng.choice(self._known), archived=self._rng.random() < 0.5)

    async def _delete(self, session: str) -> None:
        if len(self._known) < 3:
            await self._begin()
            return
        gone = self._rng.choice(self._known)
        if gone in self.open:
            await self._closed(gone)
        if gone in self._known:
            self._known.remove(gone)
        await self.client.ask("session/delete", session=gone)

    async def _close(self, session: str) -> None:
        if len(self.open) > 1:
            await self._closed(session)

    async def _closed(self, session: str) -> None:
        if session in self.open:
            self.open.remove(session)
        await self.client.ask("session/close", session=session, cancel=True)

    async def _answered(self, method: str, params: Any) -> Any:
        """Answer the daemon: a question is allowed, denied, or left alone."""
        if method != "approval/request":
            return None
        await asyncio.sleep(self._rng.choice((0, 0.003, 0.02)))
        option = self._rng.choice(("once", "once", "session", "deny", None))
        if option is None:
            outcome = self._rng.choice(("allowed", "denied"))
            await self.client.ask(
                "approval/answer", session=params["session"], approval=params["approval"], outcome=outcome, scope="once"
            )
            return None
        return {"option": option}

    def _next(self) -> int:
        self._number += 1
        return self._number
