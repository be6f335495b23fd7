"""Questions to the person at the terminal whether a tool call may run: when one is shown, what is read, what it means.

A question is shown in its place in the turn, after all that came before it. Without a terminal every call that would be asked
about is denied, and how to allow it is said once. What was typed before the line that asks stood there is no answer to it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import suppress
from typing import Final

import anyio

from refold_protocol.errors import RefoldError
from refold_protocol.session.events import ApprovalAsked, ApprovalDecided, Event, ToolResult
from refold_protocol.session.messages import Source
from refold_server.cli.formatting import question_of
from refold_server.cli.permission_rules import BY_RULE, PermissionRules
from refold_server.cli.turn_output import TurnPrinter
from refold_server.loop.approvals import Outcome, Question, Scope
from refold_server.sessions.session import Session

PERSON: Final = Source("cli", "terminal")
"""Who answers at a terminal."""

NOBODY: Final = Source("cli", "no terminal")
"""Who denies where nobody can be asked."""

DENIED: Final = "Denied"
"""The name of the error with which the model is told that a person, a rule or the session's mode denied a call. Calls that no
tool would run, as those out of the workspace, have other names."""

_ANSWERS: Final[dict[str, tuple[Outcome, Scope]]] = {
    "y": ("allowed", "once"),
    "yes": ("allowed", "once"),
    "s": ("allowed", "session"),
    "session": ("allowed", "session"),
    "": ("denied", "once"),
    "n": ("denied", "once"),
    "no": ("denied", "once"),
}


class ApprovalPrompt:
    """Asks the questions of one session, on the terminal `keyboard` (a descriptor), or denies them where that is None."""

    def __init__(
        self, session: Session, printer: TurnPrinter, keyboard: int | None, rules: PermissionRules | None = None
    ) -> None:
        self.printer = printer
        self.denied = False
        """Whether a call of the turn was denied, by whomever."""
        self.session = session
        self._keyboard = keyboard
        self._scope: anyio.CancelScope | None = None
        self._stopped = False
        self._hinted = False
        self._rules = rules
        if rules is not None:
            session.instance.approvals.watch(self._apply_rules, lambda _: None)
        elif keyboard is None:
            session.instance.approvals.deny_all(NOBODY)

    async def show(self, events: list[Event]) -> None:
        """Show some events, then ask what they ask; return when that is settled. Raises OutputLostError."""
        await self.printer.show(events)
        for event in events:
            if isinstance(event.data, ToolResult) and event.data.error is not None:
                self.denied = self.denied or event.data.error.name == DENIED
            if isinstance(event.data, ApprovalAsked) and self._keyboard is not None:
                await self._ask(event.data, self._keyboard)
            elif isinstance(event.data, ApprovalDecided) and event.data.by == NOBODY and not self._hinted:
                self._hinted = True
                await self.printer.note(_HINT)

    def stop(self) -> None:
        """Ask nothing more: the turn is over."""
        self._stopped = True
        if self._scope is not None:
            self._scope.cancel()

    def _apply_rules(self, question: Question) -> None:
        """Answer a question by the rules, or, where nobody else can, deny it."""
        assert self._rules is not None  # else nobody watches
        folder = self.session.session_log.handle.record.cwd
        outcome = self._rules.outcome(question.call.name, question.call.arguments, folder)
        by = NOBODY if outcome is None else BY_RULE
        if outcome is not None or self._keyboard is None:
            with suppress(RefoldError):  # settled meanwhile, or the log takes nothing more: the turn shows it
                self.session.instance.approvals.answer(question.id, outcome or "denied", "once", by)

    async def _ask(self, asked: ApprovalAsked, keyboard: int) -> None:
        still_open = (approval for approval, _ in self.session.session_log.folds.work.approvals)
        if self._stopped or asked.id not in still_open:
            return
        approvals = self.session.instance.approvals
        with anyio.CancelScope() as scope:
            self._scope = scope
            stop = approvals.watch(lambda _: None, lambda question: scope.cancel() if question.id == asked.id else None)
            try:
                outcome, reach = await self._read(asked, keyboard)
                stop()
                with suppress(RefoldError):  # settled meanwhile, or the log takes nothing more: the turn shows it
                    approvals.answer(asked.id, outcome, reach, PERSON)
            finally:
                stop()
                self._scope = None

    async def _read(self, asked: ApprovalAsked, keyboard: int) -> tuple[Outcome, Scope]:
        await self.printer.show_question(asked)
        while True:
            await self.printer.prompt(f"{question_of(asked)} y: once, s: for this session, N: no ")
            with suppress(termios.error):  # a terminal that is gone: reading finds that
                termios.tcflush(keyboard, termios.TCIFLUSH)  # what was typed before the question stood there whole
            await self.printer.prompt("> ", goes_on=True)
            line = await _line(keyboard)
            if line is None:
                return "denied", "once"
            self.printer.answered()
            answer = _ANSWERS.get(line.strip().lower())
            if answer is not None:
                return answer


def keyboard_of(printer: TurnPrinter) -> int | None:
    """Give the terminal on which a person can be asked what `printer` shows: standard input, if both ends are a terminal."""
    return sys.stdin.fileno() if printer.is_seen and sys.stdin.isatty() else None


async def _line(keyboard: int) -> str | None:
    """Read a line without blocking the loop; None where there will be none any more."""
    data = b""
    while not data.endswith(b"\n"):
        await _readable(keyboard)
        try:
            piece = os.read(keyboard, 1024)
        except BlockingIOError:  # another process reads here too, and was quicker
            continue
        except OSError:  # the terminal is gone
            return None
        if not piece:
            return None
        data += piece
    return data.decode("utf-8", "replace")


async def _readable(keyboard: int) -> None:
    loop = asyncio.get_running_loop()
    ready = anyio.Event()
    loop.add_reader(keyboard, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(keyboard)


_HINT: Final = (
    "refold: a call was denied: there is no terminal on which somebody could be asked whether it may run; "
    "--permissions allow lets such calls run"
)
