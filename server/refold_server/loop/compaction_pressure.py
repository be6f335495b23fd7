"""Owns the measuring before a compaction: how full the window of a session's next model is, and what could be summed up.

Changes nothing, and appends nothing. When something is done about it is `room.py`'s matter.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import SessionSettings
from refold_protocol.session.header import canonical_header
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, text_content
from refold_protocol.session.meter import Pressure, SurfacePrices
from refold_protocol.session.token_estimate import UNCONFIGURED, TokenMeterError
from refold_server.compaction.compaction_plan import (
    Bounds,
    Ground,
    Plan,
    bounds_of,
    instructions,
    is_summary,
    planned,
    region_of,
    replacement,
    scale_of,
)
from refold_server.compaction.result_cuts import Cut, before_tail, cuts_of, relief
from refold_server.config import CompactionConfig
from refold_server.loop.instance import Instance
from refold_server.requests.session_meters import ModelTokenMeter

_LESS: Final = 4
"""One in so many tokens of the tail stays where the tail is what fills the window."""


class Gauge(Struct, frozen=True):
    """How full the window of a session's next model is, under which settings, and what each node of its surface costs."""

    meter: ModelTokenMeter
    policy: CompactionConfig
    bounds: Bounds
    pressure: Pressure
    surface: SurfacePrices

    def prices(self) -> tuple[int, ...]:
        """What each node costs, in the surface's order. O(nodes): only where something is to be done."""
        return tuple(node.tokens for node in self.surface.nodes)


class Aim(Struct, frozen=True, gc=False):
    """Why and how room is made. `trigger` is `pressure`, `overflow` or `user`; `retain` tokens at the end stay as they are;
    `wishes` is what a person says about the summary; `refused`: a provider said that the history does not fit."""

    trigger: str
    retain: int
    wishes: str | None = None
    refused: bool = False


async def gauge_of(instance: Instance, live: EpochHeader | None = None, *, named: bool = False) -> Gauge | None:
    """Measure what the next request would cost with the header `live`, None: the recorded one. None, unless `named`, for a
    model without a meter. Raises TokenMeterError, ConfigError, ProviderError `model.unconfigured`."""
    ledger = instance.ledger
    config = instance.next_config()
    model = f"{config.provider}/{config.model}"
    try:
        meter = instance.host.meter(model)
    except TokenMeterError as error:
        if named or error.code != UNCONFIGURED:
            raise
        return None
    await meter.catch_up(ledger)
    recorded = ledger.folds.horizon.header or EpochHeader(config)
    wanted = replace(recorded, config=config) if live is None else live
    policy = instance.host.compaction(model, ledger.folds.settings)
    bounds = bounds_of(policy, meter.profile.window)
    pressure = meter.measure(ledger, canonical_header(wanted))
    return Gauge(meter, policy, bounds, pressure, meter.measure_surface(ledger))


def plan_of(instance: Instance, gauge: Gauge, aim: Aim, most: int | None = None) -> Plan | None:
    """Plan a compaction of a region that costs at most `most` by estimate; None where there is nothing to sum up."""
    return planned(_ground(instance, gauge, aim), aim.retain, most)


def why_no_plan(instance: Instance, gauge: Gauge, aim: Aim) -> str:
    """Say why nothing could be planned: there is nothing, or the request for a summary has no room for any of it."""
    ground = _ground(instance, gauge, aim)
    region = region_of(ground.nodes, ground.prices, 0)
    if region is None or region.tokens <= ground.frame:
        return "There is nothing in this session's history that could be summed up."
    beside = int(ground.beside * ground.scale)
    return (
        f"The request for a summary would not fit: beside the history it takes about {beside:,} of the "
        f"{ground.window:,} tokens of the window, and the first messages do not fit into the rest."
    )


def _ground(instance: Instance, gauge: Gauge, aim: Aim) -> Ground:
    asked = gauge.meter.estimate_message(Message("user", text_content(instructions(aim.wishes))))
    config = summary_config(instance, gauge)
    header = replace(instance.ledger.folds.horizon.header or EpochHeader(config), config=config)
    bound = gauge.policy.summary_max_tokens
    return Ground(
        instance.ledger.folds.horizon.surface.nodes,
        gauge.prices(),
        gauge.meter.estimate_header(canonical_header(header)) + asked,  # that of the call: a live one may be larger, or smaller
        gauge.meter.estimate_message(Message("user", text_content(replacement("")))),
        _window(instance, gauge, config),
        bound if config.max_tokens is None else min(bound, config.max_tokens),
        _scale(gauge, aim),
    )


def worthwhile(instance: Instance, gauge: Gauge, aim: Aim) -> Plan | None:
    """Plan a compaction that is worth its call: much of what is summed up was in no summary before. At the brim a smaller one
    is taken as well, and less stays at the end, so that the next one is not due at once."""
    plan = plan_of(instance, gauge, aim)
    if plan is not None and _news(instance, gauge, aim, plan) >= gauge.bounds.worth:
        return plan
    if not is_brimful(gauge, aim):
        return None
    plan = plan_of(instance, gauge, replace(aim, retain=aim.retain // _LESS)) or plan
    return plan if plan is not None and _news(instance, gauge, aim, plan) >= gauge.bounds.least else None


def cuts_behind(instance: Instance, gauge: Gauge, aim: Aim, plan: Plan) -> tuple[Cut, ...]:
    """Give the large results behind a plan's region, where a summary alone would leave the request at the brim: they cannot be
    read whole then, whatever is summed up. Else none."""
    if _counted(gauge, aim) - _news(instance, gauge, aim, plan) < gauge.bounds.brim:
        return ()
    count = plan.region.count
    return cuts_of(instance.ledger.folds.horizon.surface.nodes[count:], gauge.prices()[count:], gauge.meter)


def is_enough(cuts: tuple[Cut, ...], gauge: Gauge, aim: Aim) -> bool:
    """Tell whether cuts alone make room for a while."""
    saved = sum(cut.saved for cut in cuts) * _scale(gauge, aim)
    return saved >= relief(_counted(gauge, aim), gauge.bounds)


def _counted(gauge: Gauge, aim: Aim) -> int:
    """Give the pressure; where a provider refused the request, at least the window."""
    return max(gauge.pressure.tokens, gauge.bounds.window if aim.refused else 0)


def _news(instance: Instance, gauge: Gauge, aim: Aim, plan: Plan) -> float:
    """Give how many tokens of a plan's region no summary stands for yet, as its provider counts them."""
    first = instance.ledger.folds.horizon.surface.nodes[0]
    known = gauge.surface.nodes[0].tokens if is_summary(first) else 0
    return (plan.region.tokens - known) * _scale(gauge, aim)


def is_brimful(gauge: Gauge, aim: Aim) -> bool:
    """Tell whether room must be made whatever it costs."""
    return aim.refused or gauge.pressure.tokens >= gauge.bounds.brim


def cuts_in(instance: Instance, gauge: Gauge, aim: Aim, *, everywhere: bool = False) -> tuple[Cut, ...]:
    """Give the large results that should be shortened: those before the retained tail, if that is enough for a while; else
    none. `everywhere`: all there are, whether or not that is enough."""
    scale, prices, nodes = _scale(gauge, aim), gauge.prices(), instance.ledger.folds.horizon.surface.nodes
    count = len(nodes) if everywhere else before_tail(prices, int(aim.retain / scale))
    cuts = cuts_of(nodes[:count], prices[:count], gauge.meter)
    return cuts if everywhere or is_enough(cuts, gauge, aim) else ()


def _scale(gauge: Gauge, aim: Aim) -> float:
    return scale_of(gauge.pressure, gauge.bounds, refused=aim.refused)


def summary_config(instance: Instance, gauge: Gauge) -> CallConfig:
    """Give the call config of who sums up: a model that the settings name, else the one that was asked last, else, where its
    provider is not configured any more, the one that is asked next."""
    if gauge.policy.summary_model:
        return instance.host.call_config(SessionSettings(gauge.policy.summary_model))
    header = instance.ledger.folds.horizon.header
    if header is None:
        return instance.next_config()
    try:
        instance.host.provider(header.config.provider)
    except ProviderError:  # it is gone from the configuration; its cache is of no use any more
        return instance.next_config()
    return header.config


def _window(instance: Instance, gauge: Gauge, config: CallConfig) -> int:
    """Give the window of who sums up; of a model without a meter it is taken to be the session's."""
    try:
        return instance.host.meter(f"{config.provider}/{config.model}").profile.window
    except TokenMeterError:
        return gauge.bounds.window
