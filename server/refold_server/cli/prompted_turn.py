"""One turn run from the command line: the prompt or the input that waits, what is printed, and the exit code of its end.

Whatever ends the turn early (a signal, a reader that left), its end is written to the log, and the session is named. Inputs
that wait since an earlier process never run by themselves: their sender may have given them up, or sent them again.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

import anyio
from msgspec import Struct

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import AbortCause, AssistantMessage, ToolResult, TurnEnd, TurnStart
from refold_protocol.session.messages import Source, text_content, text_of
from refold_protocol.session.session_state import PendingInput
from refold_server.cli.approval_prompt import DENIED as DENIED_CALL
from refold_server.cli.approval_prompt import ApprovalPrompt, keyboard_of
from refold_server.cli.command_context import Interrupts
from refold_server.cli.exit_codes import COMPLETED, DENIED, FAILED, INTERRUPTED, exit_code_of_turn, first_error
from refold_server.cli.formatting import one_line
from refold_server.cli.permission_rules import PermissionRules
from refold_server.cli.terminal import OutputLostError, standard_error
from refold_server.cli.turn_output import TurnPrinter
from refold_server.sessions.event_tail import Tail
from refold_server.sessions.session import Accepted, Session
from refold_server.sessions.session_settings import PERMISSIONS

FROM_STDIN: Final = "-"
"""The prompt that means: read it from standard input."""

LAST_SECONDS = 5.0
"""How long a reader that is slow may keep a process that was told to end (SIGTERM, SIGHUP)."""

WAITING_CHARACTERS: Final = 60
"""How much of a waiting input is shown."""


def read_prompt(text: str) -> str:
    """Give the prompt; `-` reads standard input to its end, which is UTF-8, and drops line breaks at its end as a shell
    does. Raises ConfigError for a blank prompt, and for one that is not text."""
    prompt = _standard_input() if text == FROM_STDIN else text
    if not prompt.strip():
        raise ConfigError("PROMPT", "is blank; say what to do")
    return prompt


class TurnWishes(Struct, frozen=True):
    """How a turn is run: the `key` of its prompt, the `rules` that answer questions, whether a denied call has an exit code."""

    key: str | None = None
    rules: PermissionRules | None = None
    fail_on_denied: bool = False


PLAIN_TURN: Final = TurnWishes()


async def run_prompt(
    session: Session,
    prompt: str | PendingInput,
    printer: TurnPrinter,
    interrupts: Interrupts,
    wishes: TurnWishes = PLAIN_TURN,
) -> int:
    """Run one prompt, or an input that waits, print it as it goes, and give the exit code of its end. A signal interrupts the
    turn; so does the loss of the output. A prompt whose key was used is not asked again: what waits of it is run, a turn that
    ended is printed. Raises LogError when the end could not be made durable, InputUnknownError for a key with another prompt,
    OutputLostError."""
    if isinstance(prompt, str) and wishes.key is not None:
        before = await session.accepted_before(wishes.key, text_content(prompt))
        waits = [one for one in session.session_log.folds.pending if before is not None and one.input == before.input]
        if waits:
            prompt = waits[0]
        elif before is not None:
            return await _print_again(session, before, printer, wishes)
    questions = ApprovalPrompt(session, printer, keyboard_of(printer), wishes.rules)
    tail = Tail(session.session_log.handle, session.session_log.handle.tail)
    await printer.begin(session.id)
    await tell_waiting(session, printer, None if isinstance(prompt, str) else prompt)
    if session.session_log.folds.work.last_turn == 0 and (unmetered := session.instance.model.unmetered()) is not None:
        await printer.note(f"({unmetered})")
    try:
        if isinstance(prompt, str):
            _, turn, _ = await session.start(text_content(prompt), Source("cli"), wishes.key)
        else:
            _, turn, _ = await session.start_pending(prompt.input)
        code = await _follow(session, turn, tail, questions, interrupts)
        return DENIED if code == COMPLETED and wishes.fail_on_denied and questions.denied else code
    except OutputLostError:
        await printer.note(f"refold: nothing takes the output any more; the turn was stopped. It is in session {session.id}")
        raise
    except BaseException:
        if session.session_log.handle.durable >= 0:  # the session can be continued
            with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
                await printer.end(session.id)
        raise
    finally:
        tail.close()


async def _print_again(session: Session, before: Accepted, printer: TurnPrinter, wishes: TurnWishes) -> int:
    """Print the turn that an earlier process ran for the same key, and give its exit code."""
    handle, code, denied = session.session_log.handle, FAILED, False
    await printer.begin(session.id)
    await printer.note("(the prompt of that key was run before; this is its turn)")
    turn = None
    for event in handle.read(before.seq):
        if isinstance(event.data, TurnStart) and event.data.trigger.input == before.input:
            turn = event.data.turn
        if turn is None:
            continue
        await printer.show([event])
        if isinstance(event.data, ToolResult) and event.data.error is not None:
            denied = denied or event.data.error.name == DENIED_CALL
        if isinstance(event.data, TurnEnd):
            code = exit_code_of_turn(event.data.reason)
            break
    if turn is None:
        await printer.note("(it was taken back, and no turn of it ran)")
    await printer.end(session.id)
    return DENIED if code == COMPLETED and wishes.fail_on_denied and denied else code


def waiting_inputs(session: Session) -> list[PendingInput]:
    """Give the inputs that wait in the order of acceptance, without what the session says of its permissions: it says that
    anew itself."""
    return [one for one in session.session_log.folds.pending if one.source != PERMISSIONS]


def oldest_waiting(session: Session) -> PendingInput:
    """Give what has waited longest. Raises ConfigError where nothing waits."""
    for one in waiting_inputs(session):
        return one
    raise ConfigError("--pending", f"no input waits in session {session.id}")


async def tell_waiting(session: Session, printer: TurnPrinter, runs: PendingInput | None) -> None:
    """Name what waits and is not `runs`, and say what can be done with it. Raises OutputLostError."""
    rest = [one for one in waiting_inputs(session) if runs is None or one.input != runs.input]
    for one in rest:
        await printer.note(f"(an earlier input waits and is not run: {_waiting_text(one)})")
    if rest:
        what = f"refold run --session {session.id}"
        await printer.note(f"({what} --pending runs the oldest, {what} --withdraw takes back all that waits)")


async def withdraw_waiting(session: Session, printer: TurnPrinter) -> int:
    """Take back all that waits, tell of it, and give the exit code. Raises LogError, OutputLostError."""
    handle, rest = session.session_log.handle, waiting_inputs(session)
    await printer.begin(session.id)
    for one in rest:
        before = handle.tail
        await session.withdraw(one.input)
        await printer.show(decode_event(line) for line in handle.lines(before + 1))
        await printer.note(f"(taken back: {_waiting_text(one)})")
    if not rest:
        await printer.note("(no input waits)")
    await printer.end(session.id)
    return COMPLETED


def _waiting_text(given: PendingInput) -> str:
    return one_line(text_of(given.content), WAITING_CHARACTERS)


async def _follow(session: Session, turn: int, tail: Tail, questions: ApprovalPrompt, interrupts: Interrupts) -> int:
    """Print a turn to its end. Whatever stops the printing stops the turn too, and its end in the log is waited for."""
    code = INTERRUPTED
    try:
        async with anyio.create_task_group() as tasks:

            async def stop(number: signal.Signals) -> None:
                await session.interrupt(turn, _cause(number))

            def ask(number: signal.Signals) -> None:
                if number is not signal.SIGINT:
                    tasks.cancel_scope.deadline = anyio.current_time() + LAST_SECONDS
                tasks.start_soon(stop, number)

            with interrupts.handled(ask):
                tasks.start_soon(_notice_end, session, turn, tail, questions)
                tasks.start_soon(questions.printer.show_life)
                if (code := await _print_turn(tail, turn, questions)) is not None:
                    await questions.printer.end(session.id)
            tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise first_error(group) from None
    finally:
        with anyio.CancelScope(shield=True):
            await session.interrupt(turn, AbortCause("disposed", "its output was lost"))  # raises what kept it from its end
    return FAILED if code is None else code


def _cause(number: signal.Signals) -> AbortCause:
    return AbortCause("user") if number is signal.SIGINT else AbortCause("disposed", number.name)


async def _print_turn(tail: Tail, turn: int, questions: ApprovalPrompt) -> int | None:
    """Print what is told until the turn's end and give its exit code; None when the end will never be told."""
    while not tail.closed:
        batch = tail.take()
        if batch is None:
            await tail.wait()
            continue
        events = [decode_event(line) for line in batch.lines]
        await questions.show(events)
        for event in events:
            if isinstance(event.data, AssistantMessage) and (cut := questions.session.instance.model.cut_off(event.seq)):
                await questions.printer.note(f"({cut})")
            if isinstance(event.data, TurnEnd) and event.data.turn == turn:
                return exit_code_of_turn(event.data.reason)
    return None


async def _notice_end(session: Session, turn: int, tail: Tail, questions: ApprovalPrompt) -> None:
    """Ask nothing more once the turn ended; wait for no news either when its end cannot be told."""
    try:
        await session.turns.wait(turn)
    except RefoldError:  # whoever waits for the turn next tells it
        tail.close()
    finally:
        questions.stop()


def _standard_input() -> str:
    if sys.stdin.isatty():
        standard_error().line("(type the prompt; Ctrl-D at the beginning of a line ends it)")
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ConfigError("PROMPT", f"standard input is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:  # a folder, or a terminal that is gone
        raise ConfigError("PROMPT", f"standard input cannot be read: {error.strerror}") from None
