"""Owns `refold demo`: a turn with tools on the current folder, offline, and the proof of it from another process."""

from __future__ import annotations

import argparse
import sys

import anyio

from refold_protocol.session.messages import ToolCallBlock
from refold_protocol.session.rebuild import sent_requests
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import Screen
from refold_server.cli.run import Printer, open_session, run_prompt
from refold_server.config_call import DEFAULT_MODEL

QUESTION = "Which file defines chain" "_step?"  # in two pieces, so that the search does not find this line
"""What the demo asks where nobody asks anything else: something about this repository."""


def command(options: argparse.Namespace) -> int:
    """Run the demo."""
    return anyio.run(_command, options)


async def _command(options: argparse.Namespace) -> int:
    config = read_config(options, model=DEFAULT_MODEL)
    screen = Screen(sys.stdout)
    prompt = options.prompt or QUESTION
    screen.line(screen.bold(f"> {prompt}"))
    sys.stdout.flush()
    async with opened(config, create=True) as around:
        session = await open_session(around, None)
        code = await run_prompt(session, prompt, Printer(sys.stdout, sys.stdout, as_json=False))
        handle = session.ledger.handle
        requests = list(sent_requests(handle.read()))
        calls = sum(isinstance(block, ToolCallBlock) for message in requests[-1][2].history for block in message.content)
        events = handle.tail + 1
        name = session.id
    screen.line()
    screen.line(f"{len(requests)} requests, {calls} tool calls, {events} events. Another process rebuilds every request:")
    sys.stdout.flush()
    places = [f"--{key}={value}" for key in ("store", "config") if (value := getattr(options, key)) is not None]
    check = await anyio.run_process(
        [sys.executable, "-m", "refold_server", "verify", name, *places], check=False, stdout=None, stderr=None
    )
    screen.line(f"the log is session {name} in {config.store.path}")
    screen.line(screen.dim(f"read it: refold log {name}   rebuild a request: refold rebuild {name} 1.1"))
    return code or check.returncode
