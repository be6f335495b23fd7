"""The trigger of a compaction: at a turn's pre-step by pressure, after a refusal of the provider, on request.

Measures what the next request would cost and asks `compaction_decision` what to do; without a meter for the session's model
nothing happens by itself. How a summary is asked for is `compaction_run`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from refold_protocol.errors import LogError, ProviderError, RefoldError
from refold_protocol.session.closers import partial_reply
from refold_protocol.session.events import Draft, SessionSettings, StepEnd
from refold_protocol.session.header import canonical_header
from refold_protocol.session.messages import CallConfig, EpochHeader, InputBlock, Message, text_content
from refold_protocol.session.token_estimate import UNCONFIGURED, TokenMeterError, estimate_header, estimate_message
from refold_server.compaction.compaction_decision import (
    CompactionError,
    Plan,
    PlanInput,
    WindowUsage,
    bounds_of,
    decide,
    instructions,
    last_cuts,
    planned,
    region_of,
    replacement,
)
from refold_server.compaction.compaction_run import CompactionJob, CompactionOutcome, SummaryBudget, compact
from refold_server.plugins.hook_table import Assembled, HookContext
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import SessionLog
from refold_server.requests.session_model import SessionModel

MOST_IN_A_ROW: Final = 4
"""So many compactions follow each other before a step goes on with what there is."""

MOST_SUMMARIES: Final = 2
"""So many summaries are asked for by themselves in one turn: each costs a whole request."""

MOST_SKIPPED: Final = 8
"""After failures in a row, at most so many turns go by before a history is summed up by itself again."""

_SURELY: Final = 1.25
"""Estimates may be a fifth too high: what is larger than so many windows does not fit for sure."""

_log = logging.getLogger(__name__)


class CompactionTrigger:
    """The compactions of one session that happen by themselves. A compaction that failed is not tried at each step of its turn,
    and after failures in a row one, two, four turns go by first; a refusal of the provider waits for none of that."""

    def __init__(self, session_log: SessionLog, model: SessionModel, hooks: SessionHooks) -> None:
        self._session_log = session_log
        self._model = model
        self._hooks = hooks
        self._failures = 0
        self._skipped = 0
        self._failed = False
        self._overflowed: str | None = None
        self._left = MOST_SUMMARIES

    def begin_turn(self) -> None:
        """Forget what was tried in the turn before."""
        self._failed = self._skipped > 0
        self._skipped = max(0, self._skipped - 1)
        self._overflowed = None
        self._left = MOST_SUMMARIES

    async def compact_if_needed(self, place: HookContext, offered: Assembled, prefix: tuple[Message, ...]) -> None:
        """Compact the history while the next request, with what is offered beside it, would reach the threshold. Raises
        LogError alone: a history that could not be compacted is sent whole."""
        for _ in range(MOST_IN_A_ROW):
            try:
                if self._failed or not await self._compacted(place, offered, prefix):
                    return
            except LogError:
                raise
            except RefoldError as error:
                self._failed = True
                self._failures += 1
                self._skipped = min(MOST_SKIPPED, 2 ** (self._failures - 1))
                _log.warning("session %s: it was not compacted: %s", place.session, error.message)

    async def after_overflow(self, place: HookContext, error: ProviderError) -> None:
        """End a step whose request did not fit, and compact the history once. Raises the error that ends the turn where that
        does not help, with the numbers; LogError."""
        if self._overflowed is not None or partial_reply(self._session_log.folds.work) is not None:
            raise _overflow(error, f"{self._overflowed or ''}{self._parts()}".strip() or None)
        try:
            usage = await window_usage(self._session_log, self._model, named=True)
            if usage is not None and usage.policy.auto:
                self._overflowed = await self._after_refusal(place, replace(usage, refused=True))
        except LogError:
            raise
        except RefoldError as failure:  # also a summary's own overflow: the figures to be told are those of the step's request
            raise _overflow(error, f"No room could be made in the history: {failure.message}{self._parts()}") from failure
        if self._overflowed is None:
            raise _overflow(error, None)

    def _parts(self) -> str:
        """Say what fills the window, by estimate; nothing for a model without a meter."""
        try:
            meter = self._model.meter()
        except RefoldError:
            return ""
        pressure, nodes = meter.measure(self._session_log), meter.measure_surface(self._session_log).nodes
        largest = max(nodes, key=lambda node: node.tokens, default=None)
        part = "" if largest is None else f", of it event {largest.seq} alone about {largest.tokens:,}"
        return (
            f" By estimate the window has {pressure.window:,} tokens, what stands before the history takes "
            f"{pressure.header:,}, and the history {pressure.surface:,}{part}. Begin a new session, fork this one from before "
            "that event, or choose a model with a larger window."
        )

    async def _after_refusal(self, place: HookContext, usage: WindowUsage) -> str:
        """End the step, compact once, and give what will be said if that was not enough."""
        job = _job(self._session_log, self._model, usage, "overflow", usage.bounds.retain)
        decision = decide(usage, job.given)
        if decision.plan is None and not decision.cuts:
            raise CompactionError("there is nothing in it that could be summed up or cut.")
        self._session_log.append(Draft(StepEnd(place.turn, place.step, "overflow")), *(cut.draft for cut in decision.cuts))
        if decision.plan is None or self._left <= 0:
            saved = sum(cut.saved for cut in decision.cuts)
            return f"Tool results were cut once in this turn ({saved:,} tokens by estimate), and it still does not fit."
        try:
            landed = await self._compact(place, job, decision.plan)
        except ProviderError as failure:
            cuts = last_cuts(usage, job.given) if failure.error_kind == "provider.contextOverflow" else ()
            if not cuts or decision.cuts:
                raise
            self._session_log.append(*(cut.draft for cut in cuts))
            return "What is too large for a summary was cut once in this turn, and it still does not fit."
        saved = f"{landed.shadowed:,} tokens of it became {landed.tokens:,} by estimate"
        return f"The history was compacted once in this turn ({saved}), and it still does not fit."

    async def _compacted(self, place: HookContext, offered: Assembled, prefix: tuple[Message, ...]) -> bool:
        """Compact once if the threshold is reached; tell whether anything was done. After cuts all is measured anew."""
        config = self._model.next_config()
        tools = self._model.next_tools(offered.tools, config)
        header = EpochHeader(config, offered.system, tools, prefix)
        usage = await window_usage(self._session_log, self._model, header)
        if usage is None or not usage.policy.auto or not usage.is_due:
            return False
        job = _job(self._session_log, self._model, usage, "pressure", usage.bounds.retain)
        decision = decide(usage, job.given)
        if decision.cuts:
            self._session_log.append(*(cut.draft for cut in decision.cuts))
        elif decision.plan is not None and self._left > 0:
            await self._compact(place, job, decision.plan)
        else:
            return False
        return True

    async def _compact(self, place: HookContext, job: CompactionJob, plan: Plan) -> CompactionOutcome:
        tries = min(self._left, job.usage.policy.attempts)
        budget = SummaryBudget(tries)
        try:
            landed = await compact(self._session_log, self._model, self._hooks, place, job, plan, budget)
        finally:
            self._left -= tries - budget.left
        self._failures = self._skipped = 0
        return landed


async def compact_now(
    session_log: SessionLog,
    model: SessionModel,
    hooks: SessionHooks,
    place: HookContext,
    wishes: str | None,
    begin: Callable[[], object],
) -> CompactionOutcome:
    """Compact all of the history, because somebody asked for it; `begin` is called once it is known that there is something
    to do, before anything is recorded. Raises TokenMeterError, CompactionError, ProviderError with the history unchanged,
    LogError."""
    request_state = session_log.folds.request_state
    nothing = request_state.header is None and not request_state.surface.nodes
    usage = None if nothing else await window_usage(session_log, model, named=True)
    if usage is None:
        raise CompactionError("Nothing was said in this session yet, so there is nothing to sum up.")
    job = _job(session_log, model, usage, "user", 0, wishes)
    plan = planned(job.given, 0)
    if plan is None:
        raise CompactionError(_why_no_plan(job.given))
    begin()
    return await compact(session_log, model, hooks, place, job, plan, SummaryBudget(usage.policy.attempts))


def why_too_large(session_log: SessionLog, model: SessionModel, content: tuple[InputBlock, ...]) -> str | None:
    """Say why a prompt can never be answered: it is larger than the window by itself, with what stands before the history. None
    for one that may fit, and for a model without a meter."""
    try:
        config = model.next_config()
        profile = model.meter_of(f"{config.provider}/{config.model}").profile
    except RefoldError:  # the first step reports what is wrong with the model
        return None
    recorded = session_log.folds.request_state.header if model.anchored else None  # that of an earlier opening may be larger
    header = recorded or EpochHeader(config, model.system, None, model.prefix)
    before = estimate_header(canonical_header(header), profile.density)
    price = estimate_message(Message("user", content), profile.density)
    if before + price <= profile.window * _SURELY:
        return None
    return (
        f"The prompt does not fit: it takes about {price:,} tokens, what stands before the history about {before:,}, and the "
        f"window of {profile.model} has {profile.window:,}. Nothing was sent, and the history is what it was. Shorten the "
        "prompt, put the text into a file that can be read in parts, or choose a model with a larger window."
    )


async def window_usage(
    session_log: SessionLog, model: SessionModel, live: EpochHeader | None = None, *, named: bool = False
) -> WindowUsage | None:
    """Measure what the next request would cost with the header `live`, None: the recorded one. None, unless `named`, for a
    model without a meter. Raises TokenMeterError, ConfigError, ProviderError `model.unconfigured`."""
    config = model.next_config()
    name = f"{config.provider}/{config.model}"
    try:
        meter = model.meter_of(name)
    except TokenMeterError as error:
        if named or error.code != UNCONFIGURED:
            raise
        return None
    await meter.catch_up(session_log)
    recorded = session_log.folds.request_state.header or EpochHeader(config)
    wanted = replace(recorded, config=config) if live is None else live
    policy = model.models.compaction(name, session_log.folds.settings)
    pressure = meter.measure(session_log, canonical_header(wanted))
    return WindowUsage(meter.profile, policy, bounds_of(policy, meter.profile.window), pressure)


def _job(
    session_log: SessionLog, model: SessionModel, usage: WindowUsage, trigger: str, retain: int, wishes: str | None = None
) -> CompactionJob:
    """Give what a compaction is to do, and what its plan is made from."""
    density, request_state = usage.profile.density, session_log.folds.request_state
    config = _summary_config(session_log, model, usage)
    header = replace(request_state.header or EpochHeader(config), config=config)  # the call's: a live one may differ in size
    prices = model.meter_of(usage.profile.model).measure_surface(session_log).nodes
    given = PlanInput(
        request_state.surface.nodes,
        tuple(node.tokens for node in prices),
        estimate_header(canonical_header(header), density)
        + estimate_message(Message("user", text_content(instructions(wishes))), density),
        estimate_message(Message("user", text_content(replacement(""))), density),
        _window(model, usage, config),
        min(usage.policy.summary_max_tokens, config.max_tokens or usage.policy.summary_max_tokens),
        usage.scale,
    )
    config = replace(config, max_tokens=None, stop=None)  # a text that ends replies may stand in a summary
    return CompactionJob(trigger, instructions(wishes), config, usage, given, retain)


def _summary_config(session_log: SessionLog, model: SessionModel, usage: WindowUsage) -> CallConfig:
    """Give the call config of who sums up: a model that the settings name, else the one that was asked last, else, where its
    provider is not configured any more, the one that is asked next."""
    if usage.policy.summary_model:
        return model.models.call_config(SessionSettings(usage.policy.summary_model))
    header = session_log.folds.request_state.header
    if header is None:
        return model.next_config()
    try:
        model.models.provider(header.config.provider)
    except ProviderError:  # it is gone from the configuration; its cache is of no use any more
        return model.next_config()
    return header.config


def _window(model: SessionModel, usage: WindowUsage, config: CallConfig) -> int:
    """Give the window of who sums up; of a model without a meter it is taken to be the session's."""
    try:
        return model.meter_of(f"{config.provider}/{config.model}").profile.window
    except TokenMeterError:
        return usage.bounds.window


def _why_no_plan(given: PlanInput) -> str:
    """Say why nothing could be planned: there is nothing, or the request for a summary would not fit."""
    region = region_of(given.nodes, given.prices, 0)
    if region is None or region.tokens <= given.frame:
        return "There is nothing in this session's history that could be summed up."
    overhead = int(given.overhead * given.scale)
    return (
        f"The request for a summary would not fit: beside the history it takes about {overhead:,} of the "
        f"{given.window:,} tokens of the window, and the first messages do not fit into the rest."
    )


def _overflow(error: ProviderError, what: str | None) -> ProviderError:
    """Give the error with which a turn ends whose request does not fit."""
    message = error.message if what is None else f"{error.message} {what}"
    return ProviderError(
        error.error_kind, message, status=error.status, retry_after_ms=error.retry_after_ms, request_id=error.request_id
    )
