"""The turns of one session: one at a time, then the next queued one, and those who wait for an end.

An end is given to those who wait once it is durable. Must not know who asks; accepts no input itself (`session.py` does).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, TypeAlias

import anyio

from refold_protocol.errors import (
    InputPendingError,
    InputUnknownError,
    InvariantError,
    LogError,
    RefoldError,
    SessionBusyError,
    SessionReadOnlyError,
    TurnMismatchError,
)
from refold_protocol.ids import InputId
from refold_protocol.session.events import (
    AbortCause,
    ContextMessage,
    Event,
    InputAccepted,
    InputSettled,
    SteeringMessage,
    TurnEnd,
    TurnEndReason,
)
from refold_protocol.session.session_state import PendingInput
from refold_server.loop.turn import TurnControl
from refold_server.requests.session_log import SessionLog, waiting

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Starts a task that outlives the call: the daemon's task group."""

RunTurn: TypeAlias = Callable[[PendingInput, TurnControl], Awaitable[TurnEndReason]]
"""Runs one turn to its end. Raises LogError when that could not be made durable."""

_log = logging.getLogger(__name__)


class Turns:
    """The turns of one session. `running` is the number of the one that runs or is about to, None when idle; `input` is
    what it was started with."""

    def __init__(self, session_log: SessionLog, run_turn: RunTurn, spawn: Spawn) -> None:
        self.running: int | None = None
        self.input: InputId | None = None
        self.closing = False
        self.closed = False
        self._log = session_log
        self._run_turn = run_turn
        self._spawn = spawn
        self._control = TurnControl()
        self._held: anyio.CancelScope | None = None
        self._changed = anyio.Event()
        self._trouble: RefoldError | None = None
        self._watchers: list[Callable[[], None]] = []
        self._log.handle.watch_durable(self._made_durable)
        self._log.handle.observe(self._accepted)

    @property
    def held(self) -> bool:
        """Whether the history is being changed, so that no turn begins."""
        return self._held is not None

    @contextmanager
    def hold(self) -> Generator[anyio.CancelScope]:
        """Keep turns from beginning while the history is changed; what comes in is queued. The scope is cancelled when the
        session is closed. Raises SessionBusyError while a turn runs, or somebody else holds it."""
        self.refuse_busy()
        self._held = scope = anyio.CancelScope()
        try:
            with scope:
                yield scope
        finally:
            self._held = None
            self.run_next()
            self.notify()

    def refuse_busy(self) -> None:
        """Raise SessionBusyError while a turn runs, the history is changed, or the session is on its way out."""
        if self.held:
            raise SessionBusyError("this session's history is being compacted; wait for its end, or queue")
        if self.running is not None:
            raise SessionBusyError(
                f"turn {self.running} runs in this session; wait for its end, interrupt it, or queue", turn=self.running
            )
        self.refuse_closing()

    def take(self) -> int:
        """Reserve the next turn and give its number; `run` or `free` follows. Raises SessionBusyError."""
        self.refuse_busy()
        self.running = self._log.folds.work.last_turn + 1
        self._control = TurnControl()
        self._trouble = None
        return self.running

    def refuse_closing(self) -> None:
        """Raise SessionBusyError when the session is on its way out."""
        if self.closing:
            raise SessionBusyError("this session is being closed")

    def free(self) -> None:
        """Say that the reserved turn is over, or never began."""
        self.running = self.input = None
        self.notify()

    def notify(self) -> None:
        """Wake whoever waits for a change, and call those who watch."""
        self._wake()
        for watcher in tuple(self._watchers):
            watcher()

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` whenever a turn ended or the next one began, and when the session is closed; it must not raise. Give
        the function that ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def close(self) -> None:
        """Say that the session is closed: nothing that waits begins here any more, and whoever waits for it is woken."""
        self.closing = self.closed = True
        self.notify()

    def run(self, given: PendingInput) -> None:
        """Run the reserved turn with `given`, in a task of its own; queued inputs follow it."""
        control = self._control
        self.input = given.input

        async def drive() -> None:
            try:
                await self._run_turn(given, control)
            except LogError as error:  # the turn could not be ended on disk: whoever waits for it gets the error
                _log.error("session %s: %s", self._log.handle.id, error.message)
                self._trouble = error
            except asyncio.CancelledError:  # of this task, and not of the daemon: else all sessions would go with it
                if anyio.current_effective_deadline() == -inf:
                    raise
                _log.error("session %s: a plugin cancelled the task of turn %s", self._log.handle.id, self.running)
            except Exception as error:  # noqa: BLE001 - a bug at a turn's end: reported likewise, and other sessions go on
                _log.exception("session %s: the end of turn %s failed", self._log.handle.id, self.running)
                self._trouble = InvariantError(f"A bug in refold kept the turn from ending: {error!r}")
            finally:
                self.running = self.input = None
                self._forgive()
                self.run_next()
                self.notify()

        self._spawn(drive)

    def run_next(self) -> None:
        """Start the turn of the oldest input that waits, if there is one and nothing runs. Left-over steering is a prompt."""
        if self.running is not None or self.held or self.closing or self._trouble is not None:
            return
        queued = waiting(self._log, ("prompt", "steer"))
        if queued:
            self.take()
            self.run(queued[0])

    def knows(self, turn: int) -> bool:
        """Tell whether there is such a turn: one that runs, or that has ended."""
        return turn == self.running or self._log.turn_end(turn) is not None

    def at(self, seq: int) -> int | None:
        """Give the first turn that was not over at `seq`: the one that ran then, where one did. O(log turns)."""

        def end(turn: int) -> float:
            event = self._log.turn_end(turn)
            return inf if event is None else event.seq

        turns = range(1, self._log.folds.work.last_turn + 1)
        over = bisect_left(turns, seq, key=end)
        return turns[over] if over < len(turns) else None

    def answered(self, seq: int, given: InputAccepted) -> int | None:
        """Give the turn that the answer to the input of event `seq` named: the one that steering was to join or a prompt
        started at once, None for a prompt that was queued."""
        ran, started = self.at(seq), self._log.turn_of_input(given.input)
        if self._is_left_over(given.input):  # also one whose turn was cut off before it joined the history
            return None
        if given.mode == "steer":
            return ran or self.running
        if ran is None:  # its turn is about to begin
            return self.running if self.input == given.input else None
        return started if started == ran and not self._compacted_first(seq) else None

    async def wait(self, turn: int) -> Event:
        """Wait for the durable end of a turn and give its event. Raises TurnMismatchError for a turn that never was, and
        the error that kept its end from becoming durable."""
        while True:
            event = self._log.turn_end(turn)
            if event is not None and turn != self.running:
                if event.seq > self._log.handle.durable:
                    await self._log.flush()
                return event
            if turn != self.running:
                raise self._trouble or TurnMismatchError(f"this session has no turn {turn}", turn=turn)
            await self._changed.wait()

    async def wait_input(self, given: InputId) -> Event:
        """Wait for the end of the turn that an input starts. Raises InputUnknownError, as soon as it will start none,
        InputPendingError for one that an earlier process left, and SessionReadOnlyError when the session is closed while it
        waits."""
        while True:
            turn = self._log.turn_of_input(given)
            waits = any(one.input == given for one in self._log.folds.pending)
            if turn is not None and not (waits and self._log.turn_end(turn)):  # else a crash cut that turn before it joined
                return await self.wait(turn)
            if not waits:
                raise InputUnknownError(f"input {given} started no turn in this session", input=given)
            if self.closed:
                session = self._log.handle.id
                message = f"session {session} was closed here before input {given} started its turn"
                raise SessionReadOnlyError(message, session=session)
            if self._is_left_over(given):
                raise InputPendingError(
                    f"input {given} waits since an earlier process ended before it ran; turn/start with this input runs it, "
                    "input/withdraw takes it back",
                    input=given,
                )
            await self._changed.wait()

    async def interrupt(self, turn: int, cause: AbortCause) -> TurnEndReason | None:
        """Stop a turn and give how it ended, once that is durable; None on a session in which no turn ever ran.

        Idempotent. Raises TurnMismatchError for a turn that never was.
        """
        if turn == self.running:
            self._control.interrupt(cause)
        elif not self.knows(turn):
            if self.running is None and self._log.folds.work.last_turn == 0:
                return None
            raise TurnMismatchError(f"this session has no turn {turn}", turn=turn)
        event = await self.wait(turn)
        return event.data.reason if isinstance(event.data, TurnEnd) else None

    async def finish(self, cause: AbortCause, *, step_seconds: float = 0) -> None:
        """Bring a running turn to its end: after its current step if that takes at most `step_seconds`, else at once.
        Nothing that is queued runs any more."""
        self.closing = True
        if self._held is not None:
            self._held.cancel()
        if self.running is not None:
            self._control.finish_step(cause)
            with anyio.move_on_after(step_seconds):
                await self._idle()
        if self.running is not None:
            self._control.interrupt(cause)
        await self._idle()

    def _is_left_over(self, given: InputId) -> bool:
        """Tell whether an input waits since an earlier instance, and nobody started it in this one."""
        opened_at = self._log.opened_at
        return given != self.input and any(one.input == given and one.seq <= opened_at for one in self._log.folds.pending)

    def _compacted_first(self, seq: int) -> bool:
        """Tell whether the history was compacted between an input and its turn, so that it was queued."""
        for event in self._log.handle.read(seq + 1):
            if event.type in ("compact/end", "turn/start"):
                return event.type == "compact/end"
        return False

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _accepted(self, events: Sequence[Event]) -> None:
        if any(isinstance(event.data, InputSettled | SteeringMessage | ContextMessage) for event in events):
            self._wake()  # an input that somebody waits for may have come to its end without a turn

    def _made_durable(self, durable: int) -> None:
        del durable
        if self._trouble is not None and self.running is None and self._forgive():
            self.run_next()  # what was queued after the turn that could not be kept runs after all
            self.notify()

    def _forgive(self) -> bool:
        """Forget the trouble of the last turn once its end is on disk; tell whether it was forgotten."""
        end = None if self._trouble is None else self._log.turn_end(self._log.folds.work.last_turn)
        if end is None or end.seq > self._log.handle.durable:
            return False
        self._trouble = None
        return True

    async def _idle(self) -> None:
        while self.running is not None or self.held:
            await self._changed.wait()
