"""Owns what becomes of an exception that ends a command: a sentence on standard error, and an exit code.

Only a bug shows a traceback, in front of a sentence that says so.
"""

from __future__ import annotations

import sys
import traceback
from typing import cast

from refold_protocol.errors import RefoldError
from refold_server.cli.exits import INTERNAL, INTERRUPTED, exit_of_error
from refold_server.cli.people import printable
from refold_server.cli.screen import Screen
from refold_server.cli.streams import OutputLostError, forsake


def tell_failure(error: Exception) -> int:
    """Tell the person why the command ended, and give its exit code."""
    found = single(error)
    screen = Screen(sys.stderr, vital=False)
    if isinstance(found, RefoldError):
        screen.line(f"{screen.look.red('refold: ' + found.error_kind)}: {printable(found.message)}")
        code = exit_of_error(found)
    elif isinstance(found, OutputLostError):
        code = _tell_lost_output(screen, found)
    else:
        screen.put(printable("".join(traceback.format_exception(error))))
        sentence = printable(f"{type(found).__name__}: {found}")
        screen.line(
            f"{screen.look.red('refold: invariant')}: a bug in refold, please report it with the lines above: {sentence}"
        )
        code = INTERNAL
    screen.flush()
    return code


def single(error: Exception) -> Exception:
    """Give the first error that is no group: task groups wrap what ends them, and the first speaks for all."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _tell_lost_output(screen: Screen, lost: OutputLostError) -> int:
    """A reader that leaves early has what it wanted: that is told by the exit code alone."""
    forsake(sys.stdout)
    if lost.reader_left:
        return INTERRUPTED
    screen.line(f"{screen.look.red('refold')}: {lost}")
    return INTERNAL
