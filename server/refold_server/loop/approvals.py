"""The questions of one session whether a call may run: asked, answered, out of time. Each is a recorded fact.

A question is durable before anybody is asked, its answer before anything runs (fail closed). The first valid answer wins.
Must not know who answers: clients and terminals watch, and call `answer`. What stands open when a turn is cancelled is
settled by the turn's end, after a crash by the closers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import anyio
from msgspec import Struct

from refold_protocol.errors import ApprovalSettledError
from refold_protocol.ids import ApprovalId
from refold_protocol.session.events import ApprovalAsked, ApprovalDecided, ApprovalSubject, Draft
from refold_protocol.session.messages import Source
from refold_server.clock import new_approval_id
from refold_server.config import Mode
from refold_server.plugins.hook_table import Call
from refold_server.requests.session_log import SessionLog

Outcome: TypeAlias = Literal["allowed", "denied"]
Scope: TypeAlias = Literal["once", "session"]
NOBODY: Final = Source("loop", "time limit")
GONE: Final = Source("loop", "client gone")
BY_GRANT: Final = Source("loop", "allowed for the session")


class Question(Struct, frozen=True, gc=False):
    """A question that is on disk and waits for its answer until `deadline` (seconds of anyio's clock)."""

    id: ApprovalId
    call: Call
    subject: ApprovalSubject
    deadline: float


class Verdict(Struct, frozen=True, gc=False):
    """Whether a call may run; where not, `reason` says why, for the model."""

    allowed: bool
    reason: str = ""


Watcher: TypeAlias = Callable[[Question], None]
"""Called with each new question, and with one that is not open any more; must not raise."""


class _Waiting(Struct):
    question: Question
    settled: anyio.Event
    durable: bool = False
    decided: ApprovalDecided | None = None


class Approvals:
    """The questions of one session."""

    def __init__(self, session_log: SessionLog) -> None:
        self._log = session_log
        self._open: dict[ApprovalId, _Waiting] = {}
        self._asked: list[Watcher] = []
        self._settled: list[Watcher] = []
        self._denier: Source | None = None

    @property
    def open(self) -> tuple[Question, ...]:
        """The questions that are on disk and wait for an answer, oldest first."""
        return tuple(waiting.question for waiting in self._open.values() if waiting.durable and waiting.decided is None)

    def watch(self, asked: Watcher, settled: Watcher) -> Callable[[], None]:
        """Call `asked` with each question from now on, `settled` when it is not open any more; give what stops that."""
        self._asked.append(asked)
        self._settled.append(settled)

        def stop() -> None:
            if asked in self._asked:
                self._asked.remove(asked)
                self._settled.remove(settled)

        return stop

    async def verdict(self, call: Call, subject: ApprovalSubject, mode: Mode, limit_s: float) -> Verdict:
        """Find out whether a call that changes something may run. Raises LogError when question or answer cannot be kept."""
        if mode == "allow":
            return Verdict(True)
        if mode == "deny":
            return Verdict(False, f"This session's permissions do not let {call.name} run, and nobody was asked.")
        approval = new_approval_id()
        asked = Draft(ApprovalAsked(approval, call.id, call.name, subject))
        if call.name in self._log.folds.granted.tools:
            self._log.append(asked, Draft(ApprovalDecided(approval, "allowed", "session", BY_GRANT)))
            await self._log.flush()
            return Verdict(True)
        return await self._ask(Question(approval, call, subject, anyio.current_time() + limit_s), asked, limit_s)

    def answer(self, approval: ApprovalId, outcome: Outcome, scope: Scope, by: Source) -> int:
        """Settle a question; give the seq of the record, which the caller flushes before it answers. Raises
        ApprovalSettledError for one that is not open."""
        waiting = self._open.get(approval)
        if waiting is None or waiting.decided is not None:
            raise ApprovalSettledError(f"no approval {approval} waits for an answer in this session", approval=approval)
        decided = ApprovalDecided(approval, outcome, scope, by)
        event = self._log.append(Draft(decided))[-1]
        waiting.decided = decided
        waiting.settled.set()
        if waiting.durable:
            self._notify(self._settled, waiting.question)
        return event.seq

    def deny_all(self, by: Source) -> None:
        """Settle every open question as denied, and from now on each new one at once: nobody is there who could answer.
        Raises LogError."""
        self._denier = by
        for waiting in tuple(self._open.values()):
            if waiting.decided is None:
                self.answer(waiting.question.id, "denied", "once", by)

    async def _ask(self, question: Question, asked: Draft, limit_s: float) -> Verdict:
        waiting = self._open[question.id] = _Waiting(question, anyio.Event())
        try:
            self._log.append(asked)
            if self._denier is not None:
                self.answer(question.id, "denied", "once", self._denier)
            await self._log.flush()  # fail closed: nobody is asked what a crash would forget
            if waiting.decided is None:
                waiting.durable = True
                await self._answered(waiting, limit_s)
        finally:
            del self._open[question.id]
            if waiting.durable and waiting.decided is None:  # the turn was cancelled; its end records that
                self._notify(self._settled, question)
        await self._log.flush()  # fail closed: a permission that is not durable lets nothing run
        return self._verdict(waiting.decided, question.call, limit_s)

    async def _answered(self, waiting: _Waiting, limit_s: float) -> None:
        self._notify(self._asked, waiting.question)
        with anyio.move_on_after(limit_s):
            await waiting.settled.wait()
        if waiting.decided is None:
            self.answer(waiting.question.id, "denied", "once", NOBODY)

    def _verdict(self, decided: ApprovalDecided | None, call: Call, limit_s: float) -> Verdict:
        if decided is not None and decided.outcome == "allowed":
            return Verdict(True)
        if decided is not None and decided.by == NOBODY:
            return Verdict(False, f"Nobody answered within {limit_s:g} s whether {call.name} may run, so it did not.")
        if decided is not None and decided.by == self._denier:
            return Verdict(False, f"Nobody could be asked whether {call.name} may run, so it did not.")
        return Verdict(False, f"The user did not allow this call of {call.name}. It did not run.")

    def _notify(self, watchers: list[Watcher], question: Question) -> None:
        for watcher in tuple(watchers):
            watcher(question)
