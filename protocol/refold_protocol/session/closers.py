"""The closers of a log that ends in open work, and the partial reply that the loop writes as well.

Pure and deterministic: the same events give the same closers, byte for byte, because their times reuse the last event's.
The resumer appends them; a cold read applies them in memory. Storage never does either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from refold_protocol.session.chunks import NO_FINISH, assemble, partial_content
from refold_protocol.session.codec import seal
from refold_protocol.session.event_data import FORKED, INTERRUPTED
from refold_protocol.session.events import (
    ApprovalDecided,
    AssistantMessage,
    CompactEnd,
    Draft,
    Event,
    StepEnd,
    ToolErrorInfo,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    TurnError,
)
from refold_protocol.session.grammar import NO_TURN, OpenCall, TurnState, turn_step
from refold_protocol.session.messages import Source, text_content

NOT_STARTED: Final = "TOOL_NOT_STARTED"
OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"

_NOT_STARTED_TEXT = "This call did not run: the session was interrupted before the tool started. It is safe to try again."
_UNKNOWN_TEXT = (
    "The session was interrupted while this tool ran, so its outcome is unknown. Check what it did before you try again."
)
_FORKED_BEFORE_TEXT = "This call did not run here: the session was forked before the tool started. It is safe to try again."
_FORKED_INSIDE_TEXT = (
    "The session was forked while this tool ran, so its answer stands only in the session it was forked from. What it changed "
    "may be changed already: look before you try again."
)
_NOTHING_CHANGED = TurnError("interrupted", "The compaction was interrupted; nothing was changed.")
_CLOSER = Source("closer")


def interrupted_turn_closers(events: Iterable[Event], reason: TurnEndReason = INTERRUPTED) -> tuple[Draft, ...]:
    """Give what must follow `events` (a whole log) so that nothing is open; nothing when nothing is.

    In this order: the partial reply, cancelled approvals, error results of unanswered calls, the end of a compaction, of
    the step, of the turn. `reason` is FORKED in a fork's seed.
    """
    work, time = NO_TURN, 0
    for event in events:
        work, time = turn_step(work, event), event.time
    return closers_of(work, time, reason)


def closers_of(work: TurnState, time: int, reason: TurnEndReason = INTERRUPTED) -> tuple[Draft, ...]:
    """Give the closers of a log whose fold is `work` and whose last event has `time` (Unix epoch ms)."""
    drafts: list[Draft] = []
    partial = partial_reply(work)
    if partial is not None:
        drafts.append(partial)
    drafts.extend(Draft(ApprovalDecided(approval, "cancelled", "once", _CLOSER)) for approval, _ in work.approvals)
    if work.turn is not None and work.step is not None:
        drafts.extend(_unanswered(work.turn, work.step, call, forked=reason == FORKED) for call in work.calls)
    if work.compaction is not None:
        drafts.append(Draft(CompactEnd(None if work.landed else _NOTHING_CHANGED)))  # a fork may be cut between landing and end
    if work.turn is not None:
        if work.step is not None:
            drafts.append(Draft(StepEnd(work.turn, work.step, "aborted")))
        drafts.append(Draft(TurnEnd(work.turn, reason)))
    return tuple(_at(draft, time) for draft in drafts)


def partial_reply(work: TurnState) -> Draft | None:
    """Give the interrupted reply of a step that streamed something visible and has no message yet, else None.

    The loop writes it when a turn is cancelled or fails for good, the closers after a crash: the same bytes.
    """
    if work.turn is None or work.step is None or work.replied or work.route is None:
        return None
    reply = assemble(work.stream.chunks)
    content = partial_content(reply.content)
    if content is None:
        return None
    message = AssistantMessage(
        work.turn,
        work.step,
        content,
        work.route.provider,
        work.route.model,
        reply.finish or NO_FINISH,
        usage=reply.usage,
        interrupted=True,
    )
    return Draft(message, surface_op="append", sources=work.stream.ranges)


def open_at_end(work: TurnState) -> bool:
    """Tell whether a log with this fold needs closers."""
    return work.turn is not None or work.compaction is not None


def _unanswered(turn: int, step: int, call: OpenCall, *, forked: bool) -> Draft:
    if call.started is not None and call.approval in (None, "allowed"):
        code, text = OUTCOME_UNKNOWN, _FORKED_INSIDE_TEXT if forked else _UNKNOWN_TEXT
    else:
        code, text = NOT_STARTED, _FORKED_BEFORE_TEXT if forked else _NOT_STARTED_TEXT
    result = ToolResult(
        turn, step, call.id, text_content(text), True, ToolErrorInfo("Forked" if forked else "Interrupted", code)
    )
    sources = None if call.started is None else ((call.started, call.started),)
    return Draft(result, surface_op="append", sources=sources)


def _at(draft: Draft, time: int) -> Draft:
    return Draft(draft.data, draft.surface_op, draft.sources, draft.ignorable, draft.type, time)


def drafts_as_events(drafts: Sequence[Draft], tail: int) -> tuple[Event, ...]:
    """Seal closers in memory, as a cold read does, after the event `tail`. They have times of their own."""
    return tuple(seal(draft, tail + 1 + place, draft.time or 0) for place, draft in enumerate(drafts))
