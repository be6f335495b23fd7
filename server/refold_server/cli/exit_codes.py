"""Exit codes of the command line, and the sentences that tell on standard error why a command ended.

The only place that turns errors and ends of turns into exit codes. Only a bug shows a traceback, and a sentence that says so.
"""

from __future__ import annotations

import sys
import traceback
from typing import Final, cast

from refold_protocol.errors import LogError, ProviderError, RefoldError, SessionError
from refold_protocol.session.events import TurnEndReason
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import OutputLostError, OutputStream, discard_output, standard_error
from refold_server.secret_text import SECRETS

COMPLETED: Final = 0
INTERNAL: Final = 1
USAGE: Final = 2
CREDENTIALS: Final = 3
FAILED: Final = 4
LIMIT: Final = 5
INTERRUPTED: Final = 6
UNWRITABLE: Final = 7
DENIED: Final = 8

MEANINGS: Final[dict[int, str]] = {
    COMPLETED: "completed",
    INTERNAL: "internal error, output that cannot be written, or a difference that a check found",
    USAGE: "wrong usage or configuration; no such session, turn or store",
    CREDENTIALS: "the provider refused the credentials, or there are none",
    FAILED: "the turn failed",
    LIMIT: "a limit was reached (steps or output tokens)",
    INTERRUPTED: "interrupted by a signal, or by a reader of the output that left",
    UNWRITABLE: "the log cannot be opened or written",
    DENIED: "the turn completed, and calls were denied (with run --fail-on-denied alone)",
}
"""Every exit code with its meaning; shown by `refold --help`."""

STORE_CODES: Final = {code: MEANINGS[code] for code in (COMPLETED, INTERNAL, USAGE, INTERRUPTED, UNWRITABLE)}
"""The exit codes of a command that opens a store and runs no turn."""

PRINTING_CODES: Final = {code: MEANINGS[code] for code in (COMPLETED, INTERNAL, USAGE, INTERRUPTED)}
"""The exit codes of a command that opens no store."""


def exit_code_of_turn(reason: TurnEndReason) -> int:
    """Give the exit code for the end of a turn; a foreign kind of end counts as failed."""
    if reason.error is not None:
        return exit_code_of_kind(reason.error.kind)
    return _ENDS.get(reason.kind, FAILED)


def exit_code_of_kind(kind: str) -> int:
    """Give the exit code for an error of a turn, by its kind."""
    if kind == "provider.auth":
        return CREDENTIALS
    if kind.startswith("log."):
        return UNWRITABLE
    return INTERNAL if kind == "invariant" else FAILED


def exit_code_of_error(error: RefoldError) -> int:
    """Give the exit code for an error outside any turn."""
    if error.error_kind in _USAGE_KINDS:
        return USAGE
    if isinstance(error, ProviderError) or error.error_kind == "compaction.failed":
        return exit_code_of_kind(error.error_kind)
    return UNWRITABLE if isinstance(error, LogError | SessionError) else INTERNAL


def report_error(error: Exception) -> int:
    """Say on standard error why the command ended, and give its exit code."""
    first = first_error(error)
    err = standard_error()
    if isinstance(first, RefoldError):
        err.line(f"{err.style.red('refold: ' + first.error_kind)}: {printable(SECRETS.scrub(first.message))}")
        code = exit_code_of_error(first)
    elif isinstance(first, OutputLostError):
        code = _report_lost_output(err, first)
    else:
        err.put(printable(SECRETS.scrub("".join(traceback.format_exception(error)))))
        sentence = printable(SECRETS.scrub(f"{type(first).__name__}: {first}"))
        err.line(f"{err.style.red('refold: invariant')}: a bug in refold, please report it with the lines above: {sentence}")
        code = INTERNAL
    return code


def first_error(error: Exception) -> Exception:
    """Give the first error that is no group: task groups wrap what ends them, and only the first is told."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _report_lost_output(err: OutputStream, lost: OutputLostError) -> int:
    """A reader that leaves early has what it wanted: only the exit code tells that."""
    discard_output(sys.stdout)
    if lost.reader_left:
        return INTERRUPTED
    err.line(f"{err.style.red('refold')}: {lost}")
    return INTERNAL


_ENDS: Final = {
    "completed": COMPLETED,
    "max-tokens": LIMIT,
    "max-steps": LIMIT,
    "aborted": INTERRUPTED,
    "interrupted": INTERRUPTED,
}

_USAGE_KINDS: Final = frozenset(
    {"config.invalid", "session.unknown", "session.exists", "model.unconfigured", "turn.mismatch", "seq.range", "input.unknown"}
)
