"""Owns the inputs that wait while a turn runs: which may join it, and as what.

An input belongs to the instance that accepted it, which is to say: it stands behind the place at which the log was opened.
What an earlier instance left behind is only offered. An input joins once it is durable, because only then was it answered.
"""

from __future__ import annotations

from collections.abc import Container

from refold_protocol.session.enclosing import enclosed_content
from refold_protocol.session.events import ContextMessage, Draft, SteeringMessage
from refold_protocol.session.session_state import PendingInput
from refold_server.loop.ledger import Ledger


def waiting(ledger: Ledger, modes: Container[str]) -> list[PendingInput]:
    """Give the durable inputs of the running instance that wait in one of `modes`, in the order of acceptance."""
    opened_at, durable = ledger.opened_at, ledger.handle.durable
    return [one for one in ledger.folds.pending if one.mode in modes and opened_at < one.seq <= durable]


def join_before_step(ledger: Ledger, turn: int) -> None:
    """Let what waits join the history before a step of `turn` starts: first steering, then injections."""
    steering = [
        Draft(SteeringMessage(turn, enclosed_content("steering", one.content), one.source, one.input), surface_op="append")
        for one in waiting(ledger, ("steer",))
    ]
    ledger.append(*steering, *joining_context(ledger))


def joining_context(ledger: Ledger) -> list[Draft]:
    """Give the drafts by which waiting injections join the history: before a step, or at the end of a turn."""
    return [as_context(one) for one in waiting(ledger, ("inject",))]


def as_context(given: PendingInput) -> Draft:
    """Give the draft by which an injection joins the history."""
    content = enclosed_content("context", given.content)
    return Draft(ContextMessage(content, given.source, "context", given.input), surface_op="append")
