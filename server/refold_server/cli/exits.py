"""Owns the exit codes of the command line, and which error or turn's end leads to which."""

from __future__ import annotations

from typing import Final

from refold_protocol.errors import LogError, ProviderError, RefoldError, SessionError
from refold_protocol.session.events import TurnEndReason

COMPLETED: Final = 0
INTERNAL: Final = 1
USAGE: Final = 2
CREDENTIALS: Final = 3
FAILED: Final = 4
LIMIT: Final = 5
INTERRUPTED: Final = 6
UNWRITABLE: Final = 7

MEANINGS: Final[dict[int, str]] = {
    COMPLETED: "completed",
    INTERNAL: "internal error, output that cannot be written, or a difference that a check found",
    USAGE: "wrong usage or configuration; no such session, turn or store",
    CREDENTIALS: "the provider refused the credentials, or there are none",
    FAILED: "the turn failed",
    LIMIT: "a limit was reached (steps or output tokens)",
    INTERRUPTED: "interrupted by a signal, or by a reader of the output that left",
    UNWRITABLE: "the log cannot be opened or written",
}
"""Every exit code with its meaning; shown by `refold --help`."""


def exit_of_end(reason: TurnEndReason) -> int:
    """Give the exit code for the end of a turn; a foreign kind of end counts as failed."""
    if reason.error is not None:
        return exit_of_kind(reason.error.kind)
    return _ENDS.get(reason.kind, FAILED)


def exit_of_kind(kind: str) -> int:
    """Give the exit code for an error of a turn, by its kind."""
    if kind == "provider.auth":
        return CREDENTIALS
    if kind.startswith("log."):
        return UNWRITABLE
    return INTERNAL if kind == "invariant" else FAILED


def exit_of_error(error: RefoldError) -> int:
    """Give the exit code for an error outside any turn."""
    if error.error_kind in _USAGE_KINDS:
        return USAGE
    if isinstance(error, ProviderError) or error.error_kind == "compaction.failed":
        return exit_of_kind(error.error_kind)
    return UNWRITABLE if isinstance(error, LogError | SessionError) else INTERNAL


_ENDS: Final = {
    "completed": COMPLETED,
    "max-tokens": LIMIT,
    "max-steps": LIMIT,
    "aborted": INTERRUPTED,
    "interrupted": INTERRUPTED,
}

_USAGE_KINDS: Final = frozenset(
    {"config.invalid", "session.unknown", "session.exists", "model.unconfigured", "turn.mismatch", "seq.range"}
)
