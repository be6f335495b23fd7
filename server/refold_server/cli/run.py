"""Owns `refold run`: one turn in the current folder, streamed to a person or, with --json, to a program."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import TextIO

import anyio

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import (
    AbortCause,
    AssistantChunk,
    AssistantMessage,
    Event,
    SessionSettings,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from refold_protocol.session.messages import ReasoningDelta, Source, TextDelta, text_content, text_of
from refold_server.cli.exits import FAILED, exit_of_end
from refold_server.cli.opened import Opened, opened, read_config
from refold_server.cli.people import Screen, call_line, end_sentence, printable
from refold_server.sessions.session import Session
from refold_server.sessions.tail import Tail


def command(options: argparse.Namespace) -> int:
    """Run one turn and give the exit code of its end."""
    return anyio.run(_command, options)


async def _command(options: argparse.Namespace) -> int:
    prompt = _prompt(options.prompt)
    if options.session is not None and options.model is not None:
        raise ConfigError("--model", "is for a new session; this release cannot change the model of one that exists")
    async with opened(read_config(options, model=options.model), create=options.session is None) as around:
        session = await open_session(around, options.session)
        return await run_prompt(session, prompt, Printer(sys.stdout, sys.stderr, as_json=options.json))


async def open_session(around: Opened, session: str | None) -> Session:
    """Open a session for writing, or begin one in the current folder whose model is the configuration's."""
    if session is not None:
        live = await around.sessions.open(SessionId(session))
        live.instance.host.call_config(live.ledger.folds.settings)  # a model that is not there is told before the turn
        return live
    return await around.sessions.create(str(Path.cwd()), SessionSettings(model=around.config.model))


async def run_prompt(session: Session, prompt: str, printer: Printer) -> int:
    """Run one prompt and print it as it goes. SIGINT and SIGTERM interrupt the turn. Gives the exit code."""
    tail = Tail(session.ledger.handle, session.ledger.handle.tail)
    printer.begin(session.id)
    async with anyio.create_task_group() as tasks:
        _, turn, _ = await session.start(text_content(prompt), Source("cli"))
        tasks.start_soon(_interrupt_on_signal, session, turn)
        tasks.start_soon(_notice_trouble, session, turn, tail)
        code = await _print_turn(tail, turn, printer)
        tasks.cancel_scope.cancel()
    tail.close()
    if code is None:
        await session.wait_turn(turn)  # raises what kept the end from becoming durable
        code = FAILED
    printer.end(session.id)
    return code


async def _print_turn(tail: Tail, turn: int, printer: Printer) -> int | None:
    """Print what is told until the turn's end; None when the end will never be told."""
    while not tail.closed:
        batch = tail.take()
        if batch is None:
            await tail.wait()
            continue
        for line in batch.lines:
            event = decode_event(line)
            printer.show(event)
            if isinstance(event.data, TurnEnd) and event.data.turn == turn:
                return exit_of_end(event.data.reason)
    return None


async def _interrupt_on_signal(session: Session, turn: int) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            await session.interrupt(turn, AbortCause("user"))


async def _notice_trouble(session: Session, turn: int, tail: Tail) -> None:
    """Stop waiting for news when the turn ended without an end that can be told."""
    try:
        await session.wait_turn(turn)
    except RefoldError:  # told by whoever waits for the turn next
        tail.close()


class Printer:
    """Prints a turn: text on standard output, everything else of interest to a person on standard error."""

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool) -> None:
        self._out = out
        self._aside = Screen(err)
        self._json = as_json
        self._terminal = out.isatty()
        self._at_line_start = True

    def begin(self, session: SessionId) -> None:
        """Say which session it is, to a program."""
        if self._json:
            self._write(json.dumps({"session": session}) + "\n")

    def end(self, session: SessionId) -> None:
        """Say which session it was, to a person: the last line."""
        if not self._json:
            self._fresh_line()
            self._write(f"session {session}\n")

    def show(self, event: Event) -> None:
        """Show one event."""
        if self._json:
            self._write(event.line.decode() + "\n")
            return
        match event.data:
            case AssistantChunk(chunk=TextDelta(text=text)):
                self._write(printable(text) if self._terminal else text)
            case AssistantChunk(chunk=ReasoningDelta(text=text)):
                self._aside.stream.write(self._aside.dim(printable(text)))
            case AssistantMessage():
                self._fresh_line()
            case ToolCall(name=name, arguments=arguments):
                self._tell(self._aside.dim(f"→ {call_line(name, arguments)}"))
            case ToolResult(is_error=True, content=content):
                self._tell(self._aside.red(f"✗ {printable(text_of(content)).split(chr(10), 1)[0]}"))
            case TurnEnd(reason=reason) if reason.kind != "completed":
                self._tell(self._aside.red(f"turn {printable(end_sentence(reason))}"))
            case _:
                pass

    def _tell(self, line: str) -> None:
        self._fresh_line()
        self._aside.line(line)
        self._aside.stream.flush()

    def _fresh_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._at_line_start = text.endswith("\n")


def _prompt(text: str) -> str:
    prompt = sys.stdin.read() if text == "-" else text
    if not prompt.strip():
        raise ConfigError("PROMPT", "is blank; say what to do")
    return prompt
