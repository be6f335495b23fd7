"""Owns `refold demo`: a turn with tools on the current folder, offline, and the proof of it from another process."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import anyio

from refold_protocol.session.messages import ToolCallBlock
from refold_protocol.session.rebuild import sent_requests
from refold_server.call_config import DEFAULT_MODEL
from refold_server.cli.interrupts import Interrupts
from refold_server.cli.opened import opened, read_config
from refold_server.cli.printer import Printer
from refold_server.cli.prompt import current_folder, read_prompt
from refold_server.cli.run import open_session, run_prompt
from refold_server.cli.screen import Screen
from refold_server.cli.streams import Outlet
from refold_server.sessions.session import Session

QUESTION = "Which file defines chain_step?"  # in two pieces, so that the search does not find this line
"""What the demo asks where nobody asks anything else: something about this repository."""


def command(options: argparse.Namespace) -> int:
    """Run the demo."""
    interrupts = Interrupts()
    with interrupts.installed():
        prompt = QUESTION if options.prompt is None else read_prompt(options.prompt)
        return interrupts.run(partial(_command, options, prompt, interrupts))


async def _command(options: argparse.Namespace, prompt: str, interrupts: Interrupts) -> int:
    config = read_config(options, model=DEFAULT_MODEL)
    cwd = current_folder()
    screen = Screen(sys.stdout)
    screen.line(screen.look.bold(f"> {prompt}"))
    screen.flush()
    outlet = Outlet(sys.stdout, vital=True)
    async with opened(config, create=True, turns=True) as around:
        session = await open_session(around, None, cwd)
        code = await run_prompt(session, prompt, Printer(outlet, outlet), interrupts)
        screen.line()
        screen.line(f"{_counted(session)} Another process rebuilds every request:")
        screen.flush()
        name = session.id
    proof = await _verified(name, options)
    screen.line(f"the log is session {name} in {config.store.path}")
    refold = _as_called(sys.argv[0])
    screen.line(screen.look.dim(f"read it: {refold} log {name}   rebuild a request: {refold} rebuild {name} 1.1"))
    return code or proof


def _as_called(program: str) -> str:
    """Give the command as it was called, where it was named by a path: `make demo` calls one that no PATH has."""
    called = Path(program)
    return program if called.name == "refold" and len(called.parts) > 1 and called.exists() else "refold"


def _counted(session: Session) -> str:
    handle = session.ledger.handle
    requests = [request for _, _, request in sent_requests(handle.read())]
    last = requests[-1].history if requests else ()
    calls = sum(isinstance(block, ToolCallBlock) for message in last for block in message.content)
    return f"{len(requests)} requests, {calls} tool calls, {handle.tail + 1} events."


async def _verified(session: str, options: argparse.Namespace) -> int:
    """Verify in a process of its own, and give its exit code. `-P`: what lies in the current folder is nobody's code."""
    places = [f"--{key}={value}" for key in ("store", "config") if (value := getattr(options, key)) is not None]
    command = [sys.executable, "-P", "-m", "refold_server", "verify", session, *places]
    return (await anyio.run_process(command, check=False, stdout=None, stderr=None)).returncode
