"""Owns `refold run`: one turn in the current folder, streamed to a person or, with --json, to a program.

Whatever ends the turn early (a signal, a reader that left), it is brought to its end in the log, and the session is named.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial

import anyio

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import AbortCause, PermissionSettings, SessionSettings, TurnEnd
from refold_protocol.session.messages import Source, text_content
from refold_protocol.session.session_state import PendingInput
from refold_server.cli.asking import Asker, keyboard_of
from refold_server.cli.exits import FAILED, INTERRUPTED, exit_of_end
from refold_server.cli.failures import single
from refold_server.cli.interrupts import Interrupts
from refold_server.cli.opened import Opened, opened, read_config
from refold_server.cli.pending import oldest_waiting, tell_waiting, withdraw_waiting
from refold_server.cli.printer import Printer
from refold_server.cli.prompt import current_folder, read_prompt
from refold_server.cli.streams import Outlet, OutputLostError
from refold_server.config_call import resolve_model
from refold_server.sessions.session import Session, SettingsPatch
from refold_server.sessions.tail import Tail

LAST_SECONDS = 5.0
"""How long a reader that is slow may keep a process that was told to end (SIGTERM, SIGHUP)."""


def command(options: argparse.Namespace) -> int:
    """Run one turn and give the exit code of its end."""
    interrupts = Interrupts()
    with interrupts.installed():
        _refuse_what_does_not_go_together(options)
        prompt = None if options.prompt is None else read_prompt(options.prompt)
        return interrupts.run(partial(_command, options, prompt, interrupts))


def _refuse_what_does_not_go_together(options: argparse.Namespace) -> None:
    if options.session is not None and options.model is not None:
        raise ConfigError("--model", "is for a new session; this release cannot change the model of one that exists")
    for name in ("pending", "withdraw"):
        if getattr(options, name) and options.session is None:
            raise ConfigError(f"--{name}", "needs --session, which says where an input waits")
    if options.withdraw and options.permissions is not None:
        raise ConfigError("--withdraw", "runs no turn, and --permissions is for one")


async def _command(options: argparse.Namespace, prompt: str | None, interrupts: Interrupts) -> int:
    config = read_config(options, model=options.model)
    cwd = current_folder() if options.session is None else ""
    if options.session is None:
        resolve_model(config, config.model)  # told before a store is made
    printer = Printer(Outlet(sys.stdout, vital=True), Outlet(sys.stderr, vital=False), as_json=options.json)
    async with opened(config, create=options.session is None, turns=True) as around:
        if options.withdraw:
            name = SessionId(str(options.session))
            return await withdraw_waiting(await around.sessions.open(name), printer)
        session = await open_session(around, options.session, cwd, options.permissions)
        given = oldest_waiting(session) if prompt is None else prompt
        return await run_prompt(session, given, printer, interrupts)


async def open_session(around: Opened, session: str | None, cwd: str, mode: str | None = None) -> Session:
    """Open a session for writing, or begin one in the folder `cwd` whose model is the configuration's. A permission mode
    becomes the session's own setting."""
    permissions = None if mode is None else PermissionSettings(mode)
    if session is None:
        return await around.sessions.create(cwd, SessionSettings(model=around.config.model, permissions=permissions))
    live = await around.sessions.open(SessionId(session))
    settings = live.ledger.folds.settings
    live.instance.host.call_config(settings)  # a model that is not there is told before the turn
    if permissions not in (None, settings.permissions):
        await live.configure(SettingsPatch(permissions=permissions))
    return live


async def run_prompt(session: Session, prompt: str | PendingInput, printer: Printer, interrupts: Interrupts) -> int:
    """Run one prompt, or an input that waits, print it as it goes, and give the exit code of its end. A signal interrupts the
    turn; so does the loss of the output. Raises LogError when the end could not be made durable, OutputLostError."""
    asker = Asker(session, printer, keyboard_of(printer))
    tail = Tail(session.ledger.handle, session.ledger.handle.tail)
    await printer.begin(session.id)
    await tell_waiting(session, printer, None if isinstance(prompt, str) else prompt)
    try:
        if isinstance(prompt, str):
            _, turn, _ = await session.start(text_content(prompt), Source("cli"))
        else:
            _, turn, _ = await session.start_pending(prompt.input)
        return await _follow(session, turn, tail, asker, interrupts)
    except OutputLostError:
        await printer.note(f"refold: nothing takes the output any more; the turn was stopped. It is in session {session.id}")
        raise
    except BaseException:
        if session.ledger.handle.durable >= 0:  # there is something to come back to
            with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
                await printer.end(session.id)
        raise
    finally:
        tail.close()


async def _follow(session: Session, turn: int, tail: Tail, asker: Asker, interrupts: Interrupts) -> int:
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
                tasks.start_soon(_notice_end, session, turn, tail, asker)
                if (code := await _print_turn(tail, turn, asker)) is not None:
                    await asker.printer.end(session.id)
            tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise single(group) from None
    finally:
        with anyio.CancelScope(shield=True):
            await session.interrupt(turn, AbortCause("disposed", "its output was lost"))  # raises what kept it from its end
    return FAILED if code is None else code


def _cause(number: signal.Signals) -> AbortCause:
    return AbortCause("user") if number is signal.SIGINT else AbortCause("disposed", number.name)


async def _print_turn(tail: Tail, turn: int, asker: Asker) -> int | None:
    """Print what is told until the turn's end and give its exit code; None when the end will never be told."""
    while not tail.closed:
        batch = tail.take()
        if batch is None:
            await tail.wait()
            continue
        events = [decode_event(line) for line in batch.lines]
        await asker.show(events)
        for event in events:
            if isinstance(event.data, TurnEnd) and event.data.turn == turn:
                return exit_of_end(event.data.reason)
    return None


async def _notice_end(session: Session, turn: int, tail: Tail, asker: Asker) -> None:
    """Ask nothing more once the turn ended; wait for no news either when its end cannot be told."""
    try:
        await session.turns.wait(turn)
    except RefoldError:  # told by whoever waits for the turn next
        tail.close()
    finally:
        asker.stop()
