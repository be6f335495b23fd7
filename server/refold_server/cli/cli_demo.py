"""The command `refold demo`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refold_protocol.session.messages import ToolCallBlock
from refold_server.cli.command_line import add_store, unicode_text
from refold_server.cli.exit_codes import MEANINGS
from refold_server.cli.terminal import AsyncOutputStream, standard_output

if TYPE_CHECKING:
    from refold_server.cli.command_context import Interrupts
    from refold_server.sessions.session import Session

SUMMARY = "run a turn with tools on the current folder, offline, and prove it"
DESCRIPTION = """Run a turn with tools on the current folder with the embedded provider, which needs no network and no key; then
rebuild and compare each of its requests in another process, and say where the log is."""
EXIT_CODES = MEANINGS

QUESTION: Final = "Which file defines chain_step?"
"""The prompt where none is given: something about this repository."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        type=unicode_text,
        help="what to ask about the current folder (default: a question about refold's own source)",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    from refold_server.cli.command_context import Interrupts
    from refold_server.cli.prompted_turn import read_prompt

    interrupts = Interrupts()
    with interrupts.installed():
        prompt = QUESTION if options.prompt is None else read_prompt(options.prompt)
        return interrupts.run(partial(_demo, options, prompt, interrupts))


async def _demo(options: argparse.Namespace, prompt: str, interrupts: Interrupts) -> int:
    from refold_server.call_config import DEFAULT_MODEL
    from refold_server.cli.chosen_session import SessionWishes, open_session
    from refold_server.cli.command_context import current_folder, open_context, read_config
    from refold_server.cli.prompted_turn import run_prompt
    from refold_server.cli.turn_output import TurnPrinter

    config = read_config(options, model=DEFAULT_MODEL)
    cwd = current_folder()
    out = standard_output()
    out.line(out.style.bold(f"> {prompt}"))
    out.flush()
    stream = AsyncOutputStream(sys.stdout)
    async with open_context(config, create=True, turns=True) as context:
        session = await open_session(context, SessionWishes(cwd=cwd))
        code = await run_prompt(session, prompt, TurnPrinter(stream, stream), interrupts)
        out.line()
        out.line(f"{_counted(session)} Another process rebuilds every request:")
        out.flush()
        name = session.id
    proof = await _verified(name, options)
    out.line(f"the log is session {name} in {config.store.path}")
    refold = _program_name(sys.argv[0])
    out.line(out.style.dim(f"read it: {refold} log {name}   rebuild a request: {refold} rebuild {name} 1.1"))
    return code or proof


def _program_name(program: str) -> str:
    """Give the command as it was called, where it was named by a path: `make demo` calls one that no PATH has."""
    called = Path(program)
    return program if called.name == "refold" and len(called.parts) > 1 and called.exists() else "refold"


def _counted(session: Session) -> str:
    from refold_protocol.session.request import sent_requests

    handle = session.session_log.handle
    requests = [request for _, _, request in sent_requests(handle.read())]
    last = requests[-1].history if requests else ()
    calls = sum(isinstance(block, ToolCallBlock) for message in last for block in message.content)
    return f"{len(requests)} requests, {calls} tool calls, {handle.tail + 1} events."


async def _verified(session: str, options: argparse.Namespace) -> int:
    """Verify in a process of its own, and give its exit code. `-P`: what lies in the current folder is no code of ours."""
    import anyio

    named = [f"--{key}={value}" for key in ("store", "config") if (value := getattr(options, key)) is not None]
    command = [sys.executable, "-P", "-m", "refold_server", "verify", session, *named]
    return (await anyio.run_process(command, check=False, stdout=None, stderr=None)).returncode
