"""Owns the error of a compaction that changed nothing, and which failures are worth another try."""

from __future__ import annotations

from typing import Any, Final

from refold_protocol.errors import RefoldError

_PASSING: Final = frozenset(
    {
        "compaction.failed",
        "provider.unreachable",
        "provider.overloaded",
        "provider.badStream",
        "provider.timeout",
        "provider.contextOverflow",
    }
)


class CompactionError(RefoldError):
    """A history could not be compacted, and is what it was. `again` tells whether another try may do better."""

    kind = "compaction.failed"

    def __init__(self, message: str, *, again: bool = False, **details: Any) -> None:
        super().__init__(message, **details)
        self.again = again


def is_passing(error: RefoldError) -> bool:
    """Tell whether asking once more may help: models word a summary differently, and servers come back."""
    if isinstance(error, CompactionError):
        return error.again
    return error.error_kind in _PASSING
