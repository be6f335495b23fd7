"""Owns when the history of a session makes room: at a turn's pre-step by pressure, after a refusal of the provider, on request.

What it measures is what the next request would cost; without a meter for the session's model nothing happens by itself.
How a compaction goes is `compacting.py`'s matter.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import LogError, ProviderError, RefoldError
from refold_protocol.session.closers import partial_reply
from refold_protocol.session.events import Draft, SessionSettings, StepEnd
from refold_protocol.session.header import canonical_header
from refold_protocol.session.header_types import CallConfig, EpochHeader
from refold_protocol.session.messages import Message, text_content
from refold_protocol.session.meter import Pressure
from refold_protocol.session.meter_profile import UNCONFIGURED, TokenMeterError
from refold_server.compaction.failure import CompactionError
from refold_server.compaction.plan import Ground, Plan, planned, scale_of
from refold_server.compaction.policy import Bounds, bounds_of
from refold_server.compaction.words import instructions, replacement
from refold_server.config_types import CompactionConfig
from refold_server.loop.compacting import Job, Landed, compact
from refold_server.loop.instance import Instance
from refold_server.meters import ModelTokenMeter
from refold_server.plugins.payloads import Place

MOST_IN_A_ROW: Final = 4
"""So many compactions follow each other before a step goes on with what there is."""

_log = logging.getLogger(__name__)


class Gauge(Struct, frozen=True):
    """How full the window of a session's model is, and what is to be done about it."""

    meter: ModelTokenMeter
    policy: CompactionConfig
    bounds: Bounds
    pressure: Pressure


class Room:
    """What one turn does for room. Knows what was tried in it: a compaction that failed is not tried at each step."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._failed = False
        self._overflowed: str | None = None

    async def make(self, place: Place, system: str, prefix: tuple[Message, ...]) -> None:
        """Compact the history while the next request, with this system text and prefix, would reach the threshold. Raises
        LogError alone: a history that could not be compacted is sent whole."""
        for _ in range(MOST_IN_A_ROW):
            try:
                if self._failed or not await self._relieved(place, system, prefix):
                    return
            except LogError:
                raise
            except RefoldError as error:
                self._failed = True
                _log.warning("session %s: it was not compacted: %s", place.session, error.message)

    async def after_overflow(self, place: Place, error: ProviderError) -> None:
        """End a step whose request did not fit, and compact the history once. Raises the error that ends the turn where that
        does not help, with the numbers; LogError."""
        instance = self._instance
        if self._overflowed is not None or partial_reply(instance.ledger.folds.work) is not None:
            raise _overflow(error, self._overflowed)
        try:
            gauge = await gauge_of(instance)
            if gauge is None or not gauge.policy.auto:
                raise _overflow(error, None)
            plan = _plan(instance, gauge, gauge.bounds.retain, refused=True)
            if plan is None:
                raise _overflow(error, "There is nothing before this turn's end that could be summed up.")
            instance.ledger.append(Draft(StepEnd(place.turn, place.step, "overflow")))
            landed = await _run(instance, place, gauge, plan, "overflow", refused=True)
        except RefoldError as failure:
            if isinstance(failure, LogError) or failure.error_kind == error.error_kind:
                raise
            raise _overflow(error, f"The history could not be compacted: {failure.message}") from failure
        saved = f"{landed.shadowed:,} tokens of it became {landed.tokens:,} by estimate"
        self._overflowed = f"The history was compacted once in this turn ({saved}), and it still does not fit."

    async def _relieved(self, place: Place, system: str, prefix: tuple[Message, ...]) -> bool:
        """Compact once if the threshold is reached; tell whether anything was done."""
        gauge = await gauge_of(self._instance, system, prefix)
        if gauge is None or not gauge.policy.auto or gauge.pressure.tokens < gauge.bounds.threshold:
            return False
        plan = _plan(self._instance, gauge, gauge.bounds.retain)
        if plan is None:
            return False
        await _run(self._instance, place, gauge, plan, "pressure")
        return True


async def compact_now(instance: Instance, place: Place, wishes: str | None) -> Landed:
    """Compact all of the history, because somebody asked for it. Raises TokenMeterError, CompactionError, ProviderError with
    the history unchanged, LogError."""
    gauge = await gauge_of(instance, named=True)
    if gauge is None:
        raise CompactionError("Nothing was asked in this session yet, so there is nothing to sum up.")
    plan = _plan(instance, gauge, 0)
    if plan is None:
        raise CompactionError("There is nothing in this session's history that could be summed up.")
    return await _run(instance, place, gauge, plan, "user", wishes)


async def gauge_of(
    instance: Instance, system: str | None = None, prefix: tuple[Message, ...] | None = None, *, named: bool = False
) -> Gauge | None:
    """Measure what the next request would cost; `system` and `prefix` are those that it would have, None: the last ones.
    None before any request, and, unless `named`, for a model without a meter. Raises TokenMeterError and ConfigError."""
    ledger = instance.ledger
    header = ledger.folds.horizon.header
    if header is None:
        return None
    config = instance.next_config()
    model = f"{config.provider}/{config.model}"
    try:
        meter = instance.host.meter(model)
    except TokenMeterError as error:
        if named or error.code != UNCONFIGURED:
            raise
        return None
    await meter.catch_up(ledger.handle)
    wanted = replace(header, config=config)
    if system is not None:
        wanted = EpochHeader(config, system, header.tools, prefix)
    policy = instance.host.compaction(model)
    bounds = bounds_of(policy, meter.profile.window)
    return Gauge(meter, policy, bounds, meter.measure(ledger.handle, canonical_header(wanted)))


async def _run(
    instance: Instance,
    place: Place,
    gauge: Gauge,
    plan: Plan,
    trigger: str,
    wishes: str | None = None,
    *,
    refused: bool = False,
) -> Landed:
    def smaller(most: int) -> Plan | None:
        return _plan(instance, gauge, gauge.bounds.retain, wishes, most, refused=refused)

    config = _summary_config(instance, gauge)
    job = Job(
        trigger,
        instructions(wishes),
        lambda cap: replace(config, max_tokens=cap),
        gauge.meter.estimate_message,
        smaller,
        gauge.policy.attempts,
    )
    return await compact(instance, place, job, plan)


def _plan(
    instance: Instance,
    gauge: Gauge,
    retain: int,
    wishes: str | None = None,
    most: int | None = None,
    *,
    refused: bool = False,
) -> Plan | None:
    asked = gauge.meter.estimate_message(Message("user", text_content(instructions(wishes))))
    prices = gauge.meter.measure_surface(instance.ledger.handle).nodes
    config = _summary_config(instance, gauge)
    bound = gauge.policy.summary_max_tokens
    ground = Ground(
        instance.ledger.folds.horizon.surface.nodes,
        tuple(node.tokens for node in prices),
        gauge.pressure.header + asked,
        gauge.meter.estimate_message(Message("user", text_content(replacement("")))),
        _window(instance, gauge, config),
        bound if config.max_tokens is None else min(bound, config.max_tokens),
        scale_of(gauge.pressure, gauge.bounds, refused=refused),
    )
    return planned(ground, retain, most)


def _summary_config(instance: Instance, gauge: Gauge) -> CallConfig:
    """Give the call config of who sums up: a model that the settings name, else the one that was asked last."""
    if gauge.policy.summary_model:
        return instance.host.call_config(SessionSettings(gauge.policy.summary_model))
    header = instance.ledger.folds.horizon.header
    return instance.next_config() if header is None else header.config


def _window(instance: Instance, gauge: Gauge, config: CallConfig) -> int:
    """Give the window of who sums up; of a model without a meter it is taken to be the session's."""
    try:
        return instance.host.meter(f"{config.provider}/{config.model}").profile.window
    except TokenMeterError:
        return gauge.bounds.window


def _overflow(error: ProviderError, what: str | None) -> ProviderError:
    """Give the error with which a turn ends whose request does not fit."""
    message = error.message if what is None else f"{error.message} {what}"
    return ProviderError(
        error.error_kind, message, status=error.status, retry_after_ms=error.retry_after_ms, request_id=error.request_id
    )
