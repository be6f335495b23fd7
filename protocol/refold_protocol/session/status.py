"""The status of a session, as far as its log tells: a view of the state of its turn."""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.grammar import TurnState


class Status(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`status` is `idle`, `running`, `waiting` (for an approval), `compacting` or `broken` (its log cannot be written).

    `turn` and `step` are the open ones. Calls and approvals are in the order in which they were asked for.
    """

    status: str
    turn: int | None = None
    step: int | None = None
    open_calls: tuple[CallId, ...] = ()
    open_approvals: tuple[ApprovalId, ...] = ()


def status_of(work: TurnState) -> Status:
    """Give the status that follows from what stands open. Never `broken`: that is about the log, not in it."""
    if work.compaction is not None:
        word = "compacting"
    elif work.approvals:
        word = "waiting"
    elif work.turn is not None:
        word = "running"
    else:
        word = "idle"
    calls = tuple(call.id for call in work.calls)
    return Status(word, work.turn, work.step, calls, tuple(approval for approval, _ in work.approvals))


def phase_of(work: TurnState) -> str | None:
    """Say what a running turn waits for: `approval`, `tool`, `provider`, or `loop` for none of these; None when idle."""
    if work.approvals:
        return "approval"
    if any(call.started is not None for call in work.calls):
        return "tool"
    if (work.sent and not work.replied and work.step is not None) or (work.compaction is not None and work.turn is not None):
        return "provider"
    return None if work.turn is None else "loop"
