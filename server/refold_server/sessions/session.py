"""Owns one live session of this process: its ledger, its loop instance, and the turns that run in it one after the other.

Accepting an input and running it are two things: an input is accepted when it is durable; it runs when no turn does.
Must not know of connections: any number of clients may act on it, and none is told anything from here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import anyio

from refold_protocol.errors import (
    InputUnknownError,
    InvariantError,
    LogError,
    RefoldError,
    SessionBusyError,
    TurnMismatchError,
)
from refold_protocol.ids import InputId, SessionId
from refold_protocol.session.events import AbortCause, Draft, Event, InputAccepted, InputSettled, TurnEndReason
from refold_protocol.session.messages import InputBlock, Source
from refold_protocol.session.pending import PendingInput
from refold_protocol.session.status import Status, status_of
from refold_server.clock import new_input_id
from refold_server.loop.control import TurnControl
from refold_server.loop.instance import Instance
from refold_server.loop.ledger import Ledger
from refold_server.loop.turn import run_turn

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Starts a task that outlives the call: the daemon's task group."""

_log = logging.getLogger(__name__)


class Session:
    """A session opened for writing. `ledger` is its log; `instance` its loop instance; `first` are events that a new
    session begins with, recorded together with its first work and not before."""

    def __init__(self, ledger: Ledger, instance: Instance, spawn: Spawn, first: tuple[Draft, ...] = ()) -> None:
        self.ledger = ledger
        self.instance = instance
        self._spawn = spawn
        self._first = first
        self._turn: int | None = None
        self._control: TurnControl | None = None
        self._closing = False
        self.closed = False
        """Whether `close` got as far as the handle."""
        self._changed = anyio.Event()
        self._trouble: RefoldError | None = None

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self.ledger.handle.id

    @property
    def running_turn(self) -> int | None:
        """The number of the turn that runs or is about to; None when idle."""
        return self._turn

    def status(self) -> Status:
        """Give the status as its log tells it; `running` from the moment an input was accepted."""
        status = status_of(self.ledger.folds.work)
        if status.status == "idle" and self._turn is not None:
            return Status("running", self._turn)
        return status

    async def start(self, content: tuple[InputBlock, ...], source: Source) -> tuple[PendingInput, int, int]:
        """Accept a prompt, make it durable, and start its turn. Gives the input, the turn's number and the input's seq.

        Raises SessionBusyError while a turn runs, LogError when the prompt could not be made durable; it is then
        recorded as withdrawn behind it, so that it never runs later.
        """
        turn = self._take_turn()
        try:
            given = new_input_id()
            accepted = Draft(InputAccepted(given, "prompt", content, source))
            event = self.ledger.append(*self._opening(), accepted)[-1]
            self._first = ()
            await self._make_durable(given)
        except BaseException:
            self._free_turn()
            raise
        waiting = PendingInput(given, event.seq, "prompt", content, source)
        self._run(waiting)
        return waiting, turn, event.seq

    def start_pending(self, given: InputId) -> tuple[PendingInput, int, int]:
        """Start the turn of an input that waits since an earlier instance. Raises InputUnknownError, SessionBusyError."""
        waiting = next((one for one in self.ledger.folds.pending if one.input == given), None)
        if waiting is None:
            raise InputUnknownError(f"no input {given} waits in this session", input=given)
        turn = self._take_turn()
        try:
            self.ledger.append(*self._opening())
            self._first = ()
        except BaseException:
            self._free_turn()
            raise
        self._run(waiting)
        return waiting, turn, waiting.seq

    async def wait_turn(self, turn: int) -> Event:
        """Wait for the durable end of a turn and give its event. Raises TurnMismatchError for a turn that never was, and
        the LogError that kept its end from becoming durable."""
        while True:
            event = self.ledger.turn_end(turn)
            if event is not None and turn != self._turn:
                if event.seq > self.ledger.handle.durable:
                    await self.ledger.flush()
                return event
            if turn != self._turn:
                raise self._trouble or TurnMismatchError(f"this session has no turn {turn}", turn=turn)
            await self._changed.wait()

    async def wait_input(self, given: InputId) -> Event:
        """Wait for the end of the turn that an input starts. Raises InputUnknownError."""
        while True:
            turn = self.ledger.turn_of_input(given)
            waits = any(one.input == given for one in self.ledger.folds.pending)
            if turn is not None and not (waits and self.ledger.turn_end(turn)):  # else a crash cut that turn before it joined
                return await self.wait_turn(turn)
            if not waits:
                raise InputUnknownError(f"input {given} started no turn in this session", input=given)
            await self._changed.wait()

    async def interrupt(self, turn: int, cause: AbortCause) -> TurnEndReason | None:
        """Stop a turn and give how it ended, once that is durable; None on a session in which nothing runs or ran so.

        Idempotent. Raises TurnMismatchError for a turn that never was.
        """
        if turn == self._turn and self._control is not None:
            self._control.interrupt(cause)
        elif self.ledger.turn_end(turn) is None and turn != self._turn:
            if self._turn is None and self.ledger.folds.work.last_turn == 0:
                return None
            raise TurnMismatchError(f"this session has no turn {turn}", turn=turn)
        event = await self.wait_turn(turn)
        return getattr(event.data, "reason", None)

    async def finish(self, cause: AbortCause, *, step_seconds: float = 0) -> None:
        """Bring a running turn to its end: after its current step if that takes at most `step_seconds`, else at once."""
        self._closing = True
        if self._control is not None:
            self._control.finish_step(cause)
            with anyio.move_on_after(step_seconds):
                await self._idle()
        if self._control is not None:
            self._control.interrupt(cause)
        await self._idle()

    async def close(self, *, cancel: bool = False) -> None:
        """Close the handle. Raises SessionBusyError while a turn runs, unless `cancel` stops it first."""
        if self._turn is not None:
            if not cancel:
                raise SessionBusyError(f"turn {self._turn} runs; interrupt it first, or close with cancel", turn=self._turn)
            try:
                await self.finish(AbortCause("disposed"))
            except BaseException:  # whoever wanted it closed is gone: it stays open
                self._closing = False
                raise
        self._closing = self.closed = True
        await self.ledger.handle.close()

    def _opening(self) -> tuple[Draft, ...]:
        return (*self.instance.opening(), *self._first)

    async def _make_durable(self, given: InputId) -> None:
        try:
            await self.ledger.flush()
        except (LogError, anyio.get_cancelled_exc_class()):
            self.ledger.append(Draft(InputSettled(given, "withdrawn", "it could not be made durable")))
            raise

    def _take_turn(self) -> int:
        if self._turn is not None or self._closing:
            raise SessionBusyError(
                f"turn {self._turn} runs in this session; wait for its end or interrupt it"
                if self._turn is not None
                else "this session is being closed",
                turn=self._turn,
            )
        self._turn = self.ledger.folds.work.last_turn + 1
        self._control = TurnControl()
        self._trouble = None
        return self._turn

    def _free_turn(self) -> None:
        self._turn = None
        self._control = None
        self._changed.set()
        self._changed = anyio.Event()

    def _run(self, given: PendingInput) -> None:
        control = self._control or TurnControl()

        async def drive() -> None:
            try:
                await run_turn(self.instance, given, control)
            except LogError as error:  # the turn could not be ended on disk: whoever waits for it is told
                _log.error("session %s: %s", self.id, error.message)
                self._trouble = error
            except Exception as error:  # noqa: BLE001 - a bug at a turn's end: told likewise, and other sessions go on
                _log.exception("session %s: the end of turn %s failed", self.id, self._turn)
                self._trouble = InvariantError(f"A bug in refold kept the turn from ending: {error!r}")
            finally:
                self._free_turn()

        self._spawn(drive)

    async def _idle(self) -> None:
        while self._turn is not None:
            await self._changed.wait()
