"""Owns a run of the command line from its arguments to its exit code: streams first, then grammar, then the command.

The one place where exceptions end: whatever a command raises becomes a sentence and an exit code. Knows no command itself:
each is a module of this package with a function `command(options) -> int`, imported when it is asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from refold_server.cli.exits import COMPLETED, INTERRUPTED, USAGE
from refold_server.cli.failures import tell_failure
from refold_server.cli.parser import build_parser
from refold_server.cli.screen import Screen
from refold_server.cli.streams import prepare_streams


def run(argv: Sequence[str]) -> int:
    """Parse `argv`, run the command, and give its exit code. Errors are told on standard error in a sentence."""
    prepare_streams()
    try:
        code = _run(argv)
        Screen(sys.stdout).flush()
    except KeyboardInterrupt:  # a signal before there was anything to bring to an end, or in a command that only reads
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - this is where errors are told
        code = tell_failure(error)
    return code


def _run(argv: Sequence[str]) -> int:
    parser = build_parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as end:  # argparse has printed its help or its complaint
        return COMPLETED if end.code in (None, 0) else USAGE
    if options.command is None:
        Screen(sys.stderr, vital=False).put(parser.format_help())
        return USAGE
    module = "import_file" if options.command == "import" else options.command  # no module can have a keyword's name
    command: Callable[[argparse.Namespace], int] = import_module(f"refold_server.cli.{module}").command
    return command(options)
