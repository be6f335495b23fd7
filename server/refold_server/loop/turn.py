"""One turn: from `turn/start` to a durable `turn/end`, whatever happens in between, and the switch that stops it.

The end of a turn runs shielded from the cancellation that caused it. It leaves nothing open: a partial reply is kept,
calls that did not run are answered, the step and the turn are closed in one batch.
"""

from __future__ import annotations

import logging

import anyio

from refold_protocol.errors import LogError, ProviderError, RefoldError
from refold_protocol.session.closers import partial_reply
from refold_protocol.session.event_data import COMPLETED, MAX_STEPS, MAX_TOKENS, aborted, blocked, failed
from refold_protocol.session.events import (
    AbortCause,
    ApprovalDecided,
    Draft,
    InputSettled,
    StepEnd,
    Trigger,
    TurnEnd,
    TurnEndReason,
    TurnError,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.messages import Source
from refold_protocol.session.session_state import PendingInput
from refold_server.compaction.compaction_trigger import CompactionTrigger, why_too_large
from refold_server.loop.step import StepDone, run_step
from refold_server.loop.tool_calls import ToolCalls
from refold_server.plugins.hook_table import Stop
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import SessionLog, joining_context
from refold_server.requests.session_model import SessionModel
from refold_server.tools.tool_failure import first_line


class TurnControl:
    """One turn's stop switch. `cause` is who pulled it first; `stop_after_step` ends the turn between two steps."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.cause: AbortCause | None = None
        self.stop_after_step: AbortCause | None = None

    def interrupt(self, cause: AbortCause) -> None:
        """Stop at once. Idempotent; the first cause stays."""
        if self.cause is None:
            self.cause = cause
        self.scope.cancel()

    def finish_step(self, cause: AbortCause) -> None:
        """Let the current step end, then stop."""
        if self.stop_after_step is None:
            self.stop_after_step = cause


END_SECONDS = 30
"""How long the end of a turn may take to become durable."""

_log = logging.getLogger(__name__)


async def run_turn(
    session_log: SessionLog,
    model: SessionModel,
    tools: ToolCalls,
    hooks: SessionHooks,
    trigger: CompactionTrigger,
    given: PendingInput,
    control: TurnControl,
) -> TurnEndReason:
    """Run one turn for a pending input and give how it ended. Raises LogError when the end could not be made durable."""
    turn = session_log.folds.work.last_turn + 1
    session_log.append(Draft(TurnStart(turn, Trigger("message", given.source, given.input))))
    trouble: LogError | None = None
    reason = aborted(AbortCause("disposed"))
    try:
        with control.scope:
            blocker = await _join(session_log, model, hooks, given, turn)
            reason = blocker or await _steps(session_log, model, tools, hooks, trigger, control, turn)
        if control.scope.cancelled_caught:
            reason = aborted(control.cause or AbortCause("disposed"))
    except LogError as error:  # no turn goes on without its log: end it, and raise after the end was tried
        trouble, reason = error, failed(TurnError(error.error_kind, error.message, session_log.folds.work.step))
    except RefoldError as error:
        reason = failed(_turn_error(error, session_log.folds.work.step))
    except Exception as error:  # noqa: BLE001 - a bug in a hook or here must not lose the turn's end; it is reported as one
        _log.exception("turn %d failed", turn)
        reason = failed(
            TurnError("invariant", f"A bug in refold: {type(error).__name__}: {first_line(error)}", session_log.folds.work.step)
        )
    finally:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + END_SECONDS):
            _close(session_log, tools, hooks, given, turn, reason)
            await session_log.flush()
    if trouble is not None:
        raise trouble
    return reason


async def _join(
    session_log: SessionLog, model: SessionModel, hooks: SessionHooks, given: PendingInput, turn: int
) -> TurnEndReason | None:
    """Let a prompt join the history. Gives how the turn ends where a hook blocked it, or it is larger than the window."""
    submitted = await hooks.prompt_submit(hooks.place(turn), given.content, given.source)
    reason = submitted.blocked
    if reason is None:
        reason = why_too_large(session_log, model, submitted.content)
    if reason is not None:
        session_log.append(Draft(InputSettled(given.input, "blocked", reason)))
        return blocked(reason)
    session_log.append(
        Draft(UserMessage(submitted.content, given.source, given.input), surface_op="append"),
        *(Draft(message, surface_op="append") for message in submitted.context),
    )
    return None


async def _steps(
    session_log: SessionLog,
    model: SessionModel,
    tools: ToolCalls,
    hooks: SessionHooks,
    trigger: CompactionTrigger,
    control: TurnControl,
    turn: int,
) -> TurnEndReason:
    limit = model.step_limit()
    trigger.begin_turn()
    capped = False
    step = 0
    while True:
        step += 1
        try:
            done = await run_step(session_log, model, tools, hooks, trigger, turn, step)
        except ProviderError as error:
            if error.error_kind != "provider.contextOverflow":
                raise
            await trigger.after_overflow(hooks.place(turn, step), error)
            done = StepDone(False, True)
        capped = capped or done.capped
        if done.stopped is not None:
            return _stopped(done.stopped)
        if not done.go_on:
            return MAX_TOKENS if capped else COMPLETED
        if control.stop_after_step is not None:
            return aborted(control.stop_after_step)
        if step >= limit:
            return MAX_STEPS


def _stopped(stop: Stop) -> TurnEndReason:
    if stop.kind is None:
        return aborted(AbortCause("hook", stop.reason))
    return TurnEndReason(stop.kind, reason=stop.reason, payload=stop.payload)


def _turn_error(error: RefoldError, step: int | None) -> TurnError:
    if isinstance(error, ProviderError):
        return TurnError(error.error_kind, error.message, step, error.status, error.retry_after_ms, error.request_id)
    return TurnError(error.error_kind, error.message, step)


def _close(
    session_log: SessionLog, tools: ToolCalls, hooks: SessionHooks, given: PendingInput, turn: int, reason: TurnEndReason
) -> None:
    """Append, in one batch, all that still stands open, then the turn's end."""
    try:
        hooks.tell_failed_observers()
    except LogError as error:  # the log takes no more but what closes
        _log.error("turn %d: %s", turn, error.message)
    work = session_log.folds.work
    drafts: list[Draft] = []
    if work.step is not None:
        partial = partial_reply(work)
        if partial is not None:
            drafts.append(partial)
        drafts += [Draft(ApprovalDecided(approval, "cancelled", "once", Source("loop"))) for approval, _ in work.approvals]
        for call in work.calls:
            drafts.extend(tools.unanswered(turn, work.step, call))
        drafts.append(Draft(StepEnd(turn, work.step, _outcome(reason))))
    if any(waiting.input == given.input for waiting in session_log.folds.pending):
        drafts.append(Draft(InputSettled(given.input, "aborted", "the turn ended before the prompt joined the history")))
    session_log.append(*drafts, *joining_context(session_log), Draft(TurnEnd(turn, reason)), closing=True)


def _outcome(reason: TurnEndReason) -> str:
    if reason.error is None:
        return "aborted"
    return "overflow" if reason.error.kind == "provider.contextOverflow" else "error"
