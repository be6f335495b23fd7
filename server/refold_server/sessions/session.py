"""One live session of this process: its log, its loop instance, its turns, and what it accepts from outside.

Accepting an input and running it are two things: an input is accepted when it is durable; it runs when no turn does, or
joins the running one. Must not know of connections: any number of clients may act on it, and it notifies none.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import InputUnknownError, LogError, SessionBusyError
from refold_protocol.ids import InputId, SessionId
from refold_protocol.session.event_data import COMPLETED
from refold_protocol.session.events import (
    AbortCause,
    Draft,
    Event,
    InputAccepted,
    InputSettled,
    SessionSettings,
    SessionTitle,
    Trigger,
    TurnEnd,
    TurnEndReason,
    TurnStart,
)
from refold_protocol.session.messages import InputBlock, Source, text_content
from refold_protocol.session.session_state import PendingInput, Status, status_of
from refold_server.clock import new_input_id
from refold_server.loop.instance import Instance
from refold_server.requests.session_log import UNDURABLE, SessionLog, as_context, waiting
from refold_server.sessions.session_settings import PERMISSIONS, PERMISSIONS_NOW, SettingsPatch, check_settings, patched
from refold_server.sessions.turn_queue import Spawn, Turns

Waits: TypeAlias = Literal["queue", "steer"]
"""How a prompt waits while a turn runs: it runs after it, or joins it between two steps."""


class Accepted(Struct, frozen=True, gc=False):
    """An input that is on disk at `seq`; `turn` is the one that it starts or joins, None while it is queued."""

    input: InputId
    seq: int
    turn: int | None = None


class Session:
    """A session opened for writing. `first` are events that a new session begins with, recorded together with its first
    work and not before."""

    def __init__(self, session_log: SessionLog, instance: Instance, spawn: Spawn, first: tuple[Draft, ...] = ()) -> None:
        self.session_log = session_log
        self.instance = instance
        self.turns = Turns(session_log, instance.run_turn, spawn)
        self._first = first
        self._unjoined = [one.input for one in session_log.folds.pending if one.source == PERMISSIONS]

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self.session_log.handle.id

    @property
    def closed(self) -> bool:
        """Whether `close` got as far as the handle."""
        return self.turns.closed

    def status(self) -> Status:
        """Give the status: as the log says, but `running` from the moment an input was accepted, and `broken` while
        the log cannot be written."""
        status = status_of(self.session_log.folds.work)
        if self.session_log.handle.trouble is not None:
            return replace(status, status="broken")
        if status.status == "idle" and self.turns.running is not None:
            return Status("running", self.turns.running)
        return status

    async def start(
        self, content: tuple[InputBlock, ...], source: Source, key: str | None = None
    ) -> tuple[PendingInput, int, int]:
        """Accept a prompt, make it durable, and start its turn. Gives the input, the turn's number and the input's seq.

        Raises SessionBusyError while a turn runs, LogError when the prompt could not be made durable; it is then
        recorded as withdrawn, so that it never runs later.
        """
        turn = self.turns.take()
        given = self.turns.input = new_input_id()  # from now on it cannot be withdrawn, but interrupted
        try:
            accepted = await self._accept("prompt", content, source, given, key)
        except BaseException:
            self.turns.free()
            raise
        self.turns.run(accepted)
        return accepted, turn, accepted.seq

    async def start_or_wait(
        self, content: tuple[InputBlock, ...], source: Source, how: Waits, key: str | None = None
    ) -> Accepted:
        """Accept a prompt as `start` does; while a turn runs it is queued or steers it. Raises LogError."""
        running = self.turns.running
        if running is None and not self.turns.held:
            accepted, turn, seq = await self.start(content, source, key)
            return Accepted(accepted.input, seq, turn)
        accepted = await self._accept("steer" if how == "steer" else "prompt", content, source, None, key)
        self.turns.run_next()  # the running turn may have ended while this became durable
        return Accepted(accepted.input, accepted.seq, running if how == "steer" else None)

    async def start_pending(self, given: InputId) -> tuple[PendingInput, int, int]:
        """Start the turn of an input that waits since an earlier instance; that of an injection has no step, and is over
        when this returns. Raises InputUnknownError, SessionBusyError, LogError."""
        pending = self._pending(given)
        turn = self.turns.take()
        if pending.mode == "inject":
            self.turns.free()
            await self._join_if_idle(pending)
            return pending, turn, pending.seq
        self.turns.input = given
        try:
            if self.append(*self._notice_anew()):
                await self.session_log.flush()  # only what is durable joins the turn
        except BaseException:
            self.turns.free()
            raise
        self.turns.run(pending)
        return pending, turn, pending.seq

    async def accepted_before(self, key: str, content: tuple[InputBlock, ...]) -> Accepted | None:
        """Give what was accepted under a client's key, once it is durable; None for a new key. Raises InputUnknownError where
        the key belongs to another prompt, LogError."""
        event = self.session_log.accepted_by_key(key)
        if event is None or not isinstance(event.data, InputAccepted):
            return None
        given = event.data
        if given.content != content:
            raise InputUnknownError(f"the key {key!r} was used for another prompt in this session", input=given.input)
        await self.session_log.flush()
        if self.session_log.accepted_by_key(key) is not event:  # whoever sent it first gave up meanwhile, and it was withdrawn
            return None
        return Accepted(given.input, event.seq, self.turns.answered(event.seq, given))

    async def inject(self, content: tuple[InputBlock, ...], source: Source) -> Accepted:
        """Tell the model something without asking anything. It joins the running turn before its next step or end; on an
        idle session it is a turn of its own without a step. Raises LogError, SessionBusyError."""
        accepted = await self._accept("inject", content, source)
        try:
            turn = await self._join_if_idle(accepted)
        except LogError:  # the injection is on disk, and its turn is not: that is reported as the log's trouble
            turn = None
        return Accepted(accepted.input, accepted.seq, turn)

    async def withdraw(self, given: InputId) -> int:
        """Take back an input that waits; give the seq of the record of that. Raises InputUnknownError, LogError."""
        pending = self._pending(given)
        if pending.input == self.turns.input:
            raise InputUnknownError(f"input {given} started turn {self.turns.running}; interrupt that instead", input=given)
        event = self.append(Draft(InputSettled(given, "withdrawn")))[-1]
        await self.session_log.flush()
        return event.seq

    async def interrupt(self, turn: int, cause: AbortCause, *, withdraw_queued: bool = False) -> TurnEndReason | None:
        """Stop a turn; see `Turns.interrupt`. With `withdraw_queued`, what is queued is taken back first, but not what
        the model must hear of settings that are in force."""
        if withdraw_queued and self.turns.knows(turn):
            waits = waiting(self.session_log, ("prompt", "steer", "inject"))
            queued = [one for one in waits if one.input != self.turns.input and one.source != PERMISSIONS]
            self.session_log.append(
                *(Draft(InputSettled(one.input, "withdrawn", "the turn was interrupted")) for one in queued)
            )
        reason = await self.turns.interrupt(turn, cause)
        if withdraw_queued:
            await self.session_log.flush()  # where the turn had ended before, nothing else made the withdrawals durable
        return reason

    async def configure(self, patch: SettingsPatch) -> tuple[SessionSettings, int]:
        """Change settings from the next request on; give those in force and the seq of their record. Raises what
        `check_settings` raises, and LogError: those before hold again then, since that is what whoever asked goes by."""
        before = self.session_log.folds.settings
        settings = patched(before, patch)
        check_settings(self.instance.host, settings, before)
        notice = self._notice_of(before, settings)
        event, *_ = self.append(Draft(settings), *notice)[-1 - len(notice) :]
        if patch.tools_now:
            self.instance.model.thaw_tools()
        try:
            await self.session_log.flush()
        except (LogError, anyio.get_cancelled_exc_class()):
            if self.session_log.folds.settings == settings:
                self.session_log.append(Draft(before), *self._notice_of(settings, before), closing=True)
            raise
        for one in self.session_log.folds.pending:
            if one.source == PERMISSIONS:
                await self._join_if_idle(one)
        return settings, event.seq

    async def rename(self, title: str, source: Source) -> int:
        """Give the session a title; give the seq of its record. Raises LogError."""
        event = self.append(Draft(SessionTitle(title, source)))[-1]
        await self.session_log.flush()
        return event.seq

    def append(self, *drafts: Draft) -> tuple[Event, ...]:
        """Append events from outside the loop, after what this instance must record before its first own event."""
        events = self.session_log.append(*self.instance.opening(), *self._first, *drafts)
        self._first = ()
        return events

    async def close(self, *, cancel: bool = False) -> None:
        """Close the handle. Raises SessionBusyError while a turn runs, unless `cancel` stops it first."""
        turns = self.turns
        if turns.running is not None or turns.held:
            if not cancel:
                what = "its history is being compacted" if turns.held else f"turn {turns.running} runs; interrupt it first"
                raise SessionBusyError(f"{what}, or close with cancel", turn=turns.running)
            try:
                await turns.finish(AbortCause("disposed"))
            except BaseException:  # whoever wanted it closed is gone: it stays open
                turns.closing = False
                raise
        turns.close()
        await self.session_log.handle.close()

    async def _accept(
        self,
        mode: str,
        content: tuple[InputBlock, ...],
        source: Source,
        given: InputId | None = None,
        key: str | None = None,
    ) -> PendingInput:
        self.turns.refuse_closing()
        given = given or new_input_id()
        anew = () if mode == "inject" and self.turns.running is None else self._notice_anew()
        event = self.append(*anew, Draft(InputAccepted(given, mode, content, source, key)))[-1]
        try:
            await self.session_log.flush()
        except (LogError, anyio.get_cancelled_exc_class()):
            if self._waits(given):
                self.session_log.append(Draft(InputSettled(given, "withdrawn", UNDURABLE)), closing=True)
            raise
        return PendingInput(given, event.seq, mode, content, source)

    def _joined_at_once(self, given: InputId, content: tuple[InputBlock, ...], source: Source) -> tuple[Draft, ...]:
        """Give the drafts of an injection on an idle session: a turn of its own without a step."""
        turn = self.session_log.folds.work.last_turn + 1
        return (
            Draft(InputAccepted(given, "inject", content, source)),
            Draft(TurnStart(turn, Trigger("injection", source, given))),
            as_context(PendingInput(given, -1, "inject", content, source)),
            Draft(TurnEnd(turn, COMPLETED)),
        )

    def _notice_of(self, before: SessionSettings, now: SessionSettings) -> tuple[Draft, ...]:
        """Give the notice of another permission mode for the model: context, never an edit of the system text. None for a model
        that saw nothing yet."""
        mode = self.instance.host.permission_mode(now)
        if self.session_log.folds.request_state.header is None or mode == self.instance.host.permission_mode(before):
            return ()
        content = text_content(PERMISSIONS_NOW[mode])
        given = new_input_id()
        if self.turns.running is None:
            return (*self._superseded(), *self._joined_at_once(given, content, PERMISSIONS))
        return (*self._superseded(), Draft(InputAccepted(given, "inject", content, PERMISSIONS)))

    def _superseded(self) -> tuple[Draft, ...]:
        """Settle the notices of permissions that joined no history before an earlier instance ended."""
        unjoined = [one for one in self._unjoined if self._waits(one)]
        return tuple(Draft(InputSettled(one, "withdrawn", "it is told anew")) for one in unjoined)

    def _notice_anew(self) -> tuple[Draft, ...]:
        """Give what stands for that before the first prompt of this instance: the permissions in force, as its own input."""
        superseded = self._superseded()
        if not superseded:
            return ()
        mode = self.instance.host.permission_mode(self.session_log.folds.settings)
        content = text_content(PERMISSIONS_NOW[mode])
        return (*superseded, Draft(InputAccepted(new_input_id(), "inject", content, PERMISSIONS)))

    async def _join_if_idle(self, given: PendingInput) -> int | None:
        """Let an injection join by a turn of its own where no turn runs that it can join; give that turn's number."""
        if self.turns.running is not None or not self._waits(given.input):
            return None
        turn = self.session_log.folds.work.last_turn + 1
        start = Draft(TurnStart(turn, Trigger("injection", given.source, given.input)))
        self.append(start, as_context(given), Draft(TurnEnd(turn, COMPLETED)))
        await self.session_log.flush()
        return turn

    def _pending(self, given: InputId) -> PendingInput:
        for one in self.session_log.folds.pending:
            if one.input == given:
                return one
        raise InputUnknownError(f"no input {given} waits in this session", input=given)

    def _waits(self, given: InputId) -> bool:
        return any(one.input == given for one in self.session_log.folds.pending)
