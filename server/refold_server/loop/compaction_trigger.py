"""Owns when the history of a session makes room: at a turn's pre-step by pressure, after a refusal of the provider, on request.

What it measures is what the next request would cost; without a meter for the session's model nothing happens by itself.
How a compaction goes is `compacting.py`'s matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from refold_protocol.errors import LogError, ProviderError, RefoldError
from refold_protocol.session.closers import partial_reply
from refold_protocol.session.events import Draft, StepEnd
from refold_protocol.session.messages import EpochHeader, Message
from refold_server.compaction.compaction_plan import CompactionError, Plan, instructions
from refold_server.loop.compaction_pressure import (
    Aim,
    WindowUsage,
    cuts_behind,
    cuts_in,
    is_brimful,
    is_enough,
    plan_of,
    summary_config,
    why_no_plan,
    window_usage,
    worthwhile,
)
from refold_server.loop.compaction_run import CompactionJob, CompactionOutcome, compact
from refold_server.loop.instance import Instance
from refold_server.plugins.hook_table import Assembled, HookContext

MOST_IN_A_ROW: Final = 4
"""So many compactions follow each other before a step goes on with what there is."""

_log = logging.getLogger(__name__)


class CompactionTrigger:
    """What one turn does for room. Knows what was tried in it: a compaction that failed is not tried at each step."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._failed = False
        self._overflowed: str | None = None

    async def compact_if_needed(self, place: HookContext, offered: Assembled, prefix: tuple[Message, ...]) -> None:
        """Compact the history while the next request, with what is offered beside it, would reach the threshold. Raises
        LogError alone: a history that could not be compacted is sent whole."""
        for _ in range(MOST_IN_A_ROW):
            try:
                if self._failed or not await self._relieved(place, offered, prefix):
                    return
            except LogError:
                raise
            except RefoldError as error:
                self._failed = True
                _log.warning("session %s: it was not compacted: %s", place.session, error.message)

    async def after_overflow(self, place: HookContext, error: ProviderError) -> None:
        """End a step whose request did not fit, and compact the history once. Raises the error that ends the turn where that
        does not help, with the numbers; LogError."""
        instance = self._instance
        if self._overflowed is not None or partial_reply(instance.session_log.folds.work) is not None:
            raise _overflow(error, self._overflowed)
        try:
            usage = await window_usage(instance, named=True)
            if usage is not None and usage.policy.auto:
                self._overflowed = await self._after_refusal(place, usage)
        except LogError:
            raise
        except RefoldError as failure:  # also a summary's own overflow: the figures to be told are those of the step's request
            raise _overflow(error, f"No room could be made in the history: {failure.message}") from failure
        if self._overflowed is None:
            raise _overflow(error, None)

    async def _after_refusal(self, place: HookContext, usage: WindowUsage) -> str:
        """End the step, make room once, and give what will be said if that was not enough."""
        instance, aim = self._instance, Aim("overflow", usage.bounds.retain, refused=True)
        cuts = cuts_in(instance, usage, aim)
        plan = None if cuts else worthwhile(instance, usage, aim)
        if plan is None:
            cuts = cuts or cuts_in(instance, usage, aim, everywhere=True)
        else:
            cuts = cuts_behind(instance, usage, aim, plan)
            plan = None if cuts and is_enough(cuts, usage, aim) else plan
        if plan is None and not cuts:
            raise CompactionError("there is nothing in it that could be summed up or cut.")
        instance.session_log.append(Draft(StepEnd(place.turn, place.step, "overflow")), *(cut.draft for cut in cuts))
        if plan is None:
            saved = sum(cut.saved for cut in cuts)
            return f"Tool results were cut once in this turn ({saved:,} tokens by estimate), and it still does not fit."
        landed = await _run(instance, place, usage, plan, aim)
        saved = f"{landed.shadowed:,} tokens of it became {landed.tokens:,} by estimate"
        return f"The history was compacted once in this turn ({saved}), and it still does not fit."

    async def _relieved(self, place: HookContext, offered: Assembled, prefix: tuple[Message, ...]) -> bool:
        """Make room once if the threshold is reached; tell whether anything was done. Large results are cut first: that costs
        no call. What is summed up is not cut before, because the summary would be made from less and paid in full."""
        instance = self._instance
        config = instance.next_config()
        tools = instance.next_tools(offered.tools, config)
        usage = await window_usage(instance, EpochHeader(config, offered.system, tools, prefix))
        if usage is None or not usage.policy.auto or usage.pressure.tokens < usage.bounds.threshold:
            return False
        aim = Aim("pressure", usage.bounds.retain)
        cuts = cuts_in(instance, usage, aim)
        plan = None if cuts else worthwhile(instance, usage, aim)
        if plan is not None:
            cuts = cuts_behind(instance, usage, aim, plan)
            if not cuts:
                await _run(instance, place, usage, plan, aim)
                return True
        elif not cuts and is_brimful(usage, aim):  # else what the model has not read yet would be cut from every result
            cuts = cuts_in(instance, usage, aim, everywhere=True)
        instance.session_log.append(*(cut.draft for cut in cuts))
        return bool(cuts)


async def compact_now(
    instance: Instance, place: HookContext, wishes: str | None, begin: Callable[[], object]
) -> CompactionOutcome:
    """Compact all of the history, because somebody asked for it; `begin` is called once it is known that there is something
    to do, before anything is recorded. Raises TokenMeterError, CompactionError, ProviderError with the history unchanged,
    LogError."""
    request_state = instance.session_log.folds.request_state
    usage = (
        None if request_state.header is None and not request_state.surface.nodes else await window_usage(instance, named=True)
    )
    if usage is None:
        raise CompactionError("Nothing was said in this session yet, so there is nothing to sum up.")
    aim = Aim("user", 0, wishes)
    plan = plan_of(instance, usage, aim)
    if plan is None:
        raise CompactionError(why_no_plan(instance, usage, aim))
    begin()
    return await _run(instance, place, usage, plan, aim)


async def _run(instance: Instance, place: HookContext, usage: WindowUsage, plan: Plan, aim: Aim) -> CompactionOutcome:
    def smaller(most: int) -> Plan | None:
        return plan_of(instance, usage, aim, most)

    config = summary_config(instance, usage)
    job = CompactionJob(
        aim.trigger,
        instructions(aim.wishes),
        lambda cap: replace(config, max_tokens=cap, stop=None),  # a text that ends replies may stand in a summary
        usage.meter.estimate_message,
        smaller,
        usage.policy.attempts,
    )
    return await compact(instance, place, job, plan)


def _overflow(error: ProviderError, what: str | None) -> ProviderError:
    """Give the error with which a turn ends whose request does not fit."""
    message = error.message if what is None else f"{error.message} {what}"
    return ProviderError(
        error.error_kind, message, status=error.status, retry_after_ms=error.retry_after_ms, request_id=error.request_id
    )
