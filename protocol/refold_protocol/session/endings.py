"""The ways a turn ends: seven of its own, one that the step limit adds, and room for more.

`TURN_ENDS` is the one table of kinds. A kind that is not in it is a plugin's and is treated as a legal foreign value:
every place that branches on kinds has a default.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from refold_protocol.session.events import AbortCause, TurnEndReason, TurnError


class EndKind(Struct, frozen=True, gc=False):
    """A row of the table: which member carries its payload (None: none does), and who writes it."""

    payload: str | None
    written_by: tuple[str, ...]
    meaning: str


TURN_ENDS: Final[dict[str, EndKind]] = {
    "completed": EndKind(None, ("loop",), "the model had nothing more to do"),
    "max-tokens": EndKind(None, ("loop",), "a reply was cut by the output limit"),
    "aborted": EndKind("cause", ("loop",), "somebody stopped it"),
    "error": EndKind("error", ("loop",), "something failed that the loop could not go on from"),
    "blocked": EndKind("reason", ("loop",), "the prompt was vetoed; no step ran"),
    "interrupted": EndKind(None, ("closer",), "its process died; the next writer closed it"),
    "forked": EndKind(None, ("closer",), "a fork was cut inside it"),
    "max-steps": EndKind(None, ("loop",), "the limit of steps was reached"),
}

COMPLETED: Final = TurnEndReason("completed")
MAX_TOKENS: Final = TurnEndReason("max-tokens")
MAX_STEPS: Final = TurnEndReason("max-steps")
INTERRUPTED: Final = TurnEndReason("interrupted")
FORKED: Final = TurnEndReason("forked")


def aborted(cause: AbortCause) -> TurnEndReason:
    """Give the end of a turn that somebody stopped."""
    return TurnEndReason("aborted", cause=cause)


def failed(error: TurnError) -> TurnEndReason:
    """Give the end of a turn that failed."""
    return TurnEndReason("error", error=error)


def is_foreign_end(kind: str) -> bool:
    """Tell whether a plugin may end a turn with this kind: `vendor/name`, which none of ours is."""
    vendor, slash, name = kind.partition("/")
    return bool(vendor.strip() and slash and name.strip()) and kind not in TURN_ENDS


def blocked(reason: str) -> TurnEndReason:
    """Give the end of a turn whose prompt was vetoed."""
    return TurnEndReason("blocked", reason=reason)
