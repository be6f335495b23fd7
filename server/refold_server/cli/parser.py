"""Owns the command line's grammar: the commands, their options and help, and the exit code of what they raise."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from refold_protocol.errors import RefoldError
from refold_server import __version__
from refold_server.cli.exits import INTERNAL, INTERRUPTED, MEANINGS, USAGE, exit_of_error
from refold_server.cli.people import complain

VIEWS: Final = ("transcript", "surface", "events", "header")
"""Views that `refold log` shows."""


def run(argv: Sequence[str]) -> int:
    """Parse `argv`, run the command, and give its exit code. Errors are told on standard error in a sentence."""
    parser = build_parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as end:  # argparse has printed its help or its complaint
        return end.code if isinstance(end.code, int) else USAGE
    if options.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    module = import_module(f"refold_server.cli.{options.command}")
    command: Callable[[argparse.Namespace], int] = module.command
    try:
        code = command(options)
        sys.stdout.flush()
        return code
    except RefoldError as error:
        complain(error)
        return exit_of_error(error)
    except BrokenPipeError:  # whoever read our output has gone; nothing more can be told there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERNAL
    except KeyboardInterrupt:
        return INTERRUPTED


def build_parser() -> argparse.ArgumentParser:
    """Give the whole grammar."""
    parser = argparse.ArgumentParser(
        prog="refold",
        description="Hosts LLM agent sessions for editors and scripts, and can prove what the model saw.",
        epilog="exit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in MEANINGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"refold {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_serve(commands)
    _add_run(commands)
    _add_log(commands)
    _add_rebuild(commands)
    _add_verify(commands)
    _add_demo(commands)
    return parser


def turn_and_step(text: str) -> tuple[int, int]:
    """Read `TURN.STEP`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not TURN.STEP, for example 1.2")
    return int(found[1]), int(found[2])


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser(
        "serve",
        help="serve one editor or program over standard input and output (JSON-RPC, LSP framing)",
        description="Serve one client over standard input and output: JSON-RPC 2.0 in LSP framing.",
    )
    _add_places(serve)


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    one = commands.add_parser(
        "run",
        help="run one turn and print the reply",
        description="Run one turn in the current folder and stream the reply. The last line of standard output names the "
        "session. Tool calls and the turn's end are told on standard error.",
    )
    one.add_argument("prompt", metavar="PROMPT", help="what to ask; - reads it from standard input")
    one.add_argument("--session", metavar="ID", help="go on with this session instead of beginning one")
    one.add_argument("--model", metavar="PROVIDER/MODEL", help="model for a new session (default: the configuration's)")
    one.add_argument("--json", action="store_true", help='print {"session": …}, then each event of the turn, one a line')
    _add_places(one)


def _add_log(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    log = commands.add_parser("log", help="show a session's log", description="Show a session's log.")
    log.add_argument("session", metavar="SESSION")
    log.add_argument(
        "--view",
        choices=VIEWS,
        default="transcript",
        help="transcript: as a person read it (default); surface: as the model sees it now; events: every event; "
        "header: config, system text and tools in force",
    )
    log.add_argument("--json", action="store_true", help="one JSON value a line")
    _add_places(log)


def _add_rebuild(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    rebuild = commands.add_parser(
        "rebuild",
        help="print the exact body of a request, rebuilt from the log",
        description="Print the exact body of the request of a step, rebuilt from the log, without a line break behind it: "
        "piped into an HTTP client it is the request that was sent. Exit code 1 when it differs from what was recorded.",
    )
    rebuild.add_argument("session", metavar="SESSION")
    rebuild.add_argument("place", metavar="TURN.STEP", type=turn_and_step, help="for example 1.2")
    _add_places(rebuild)


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verify = commands.add_parser(
        "verify",
        help="prove that logs are whole and that each request follows from them",
        description="Check the digest chain, the grammar and every request of a log. Exit code 0 when nothing differs, 1 "
        "on a difference.",
    )
    which = verify.add_mutually_exclusive_group(required=True)
    which.add_argument("session", metavar="SESSION", nargs="?")
    which.add_argument("--all", action="store_true", help="every session of the store")
    verify.add_argument("--strict", action="store_true", help="count a request whose encoder is not shipped as a difference")
    verify.add_argument("--json", action="store_true", help="one JSON object a session, one a line")
    _add_places(verify)


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="run a turn with tools on the current folder, offline, and prove it",
        description="Run a turn with tools on the current folder with the embedded offline provider, then check it from "
        "another process.",
    )
    demo.add_argument("prompt", metavar="PROMPT", nargs="?", help="what to ask about the current folder")
    _add_places(demo)


def _add_places(command: argparse.ArgumentParser) -> None:
    command.add_argument("--store", metavar="FOLDER", help="where sessions are kept (REFOLD_STORE; default: the platform's)")
    command.add_argument("--config", metavar="FILE", help="the configuration file (REFOLD_CONFIG; default: the platform's)")
