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


class WindowUsage(Struct, frozen=True):
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


async def window_usage(instance: Instance, live: EpochHeader | None = None, *, named: bool = False) -> WindowUsage | None:
    """Measure what the next request would cost with the header `live`, None: the recorded one. None, unless `named`, for a
    model without a meter. Raises TokenMeterError, ConfigError, ProviderError `model.unconfigured`."""
    session_log = instance.session_log
    config = instance.next_config()
    model = f"{config.provider}/{config.model}"
    try:
        meter = instance.host.meter(model)
    except TokenMeterError as error:
        if named or error.code != UNCONFIGURED:
            raise
        return None
    await meter.catch_up(session_log)
    recorded = session_log.folds.request_state.header or EpochHeader(config)
    wanted = replace(recorded, config=config) if live is None else live
    policy = instance.host.compaction(model, session_log.folds.settings)
    bounds = bounds_of(policy, meter.profile.window)
    pressure = meter.measure(session_log, canonical_header(wanted))
    return WindowUsage(meter, policy, bounds, pressure, meter.measure_surface(session_log))


def plan_of(instance: Instance, usage: WindowUsage, aim: Aim, most: int | None = None) -> Plan | None:
    """Plan a compaction of a region that costs at most `most` by estimate; None where there is nothing to sum up."""
    return planned(_ground(instance, usage, aim), aim.retain, most)


def why_no_plan(instance: Instance, usage: WindowUsage, aim: Aim) -> str:
    """Say why nothing could be planned: there is nothing, or the request for a summary has no room for any of it."""
    ground = _ground(instance, usage, aim)
    region = region_of(ground.nodes, ground.prices, 0)
    if region is None or region.tokens <= ground.frame:
        return "There is nothing in this session's history that could be summed up."
    beside = int(ground.beside * ground.scale)
    return (
        f"The request for a summary would not fit: beside the history it takes about {beside:,} of the "
        f"{ground.window:,} tokens of the window, and the first messages do not fit into the rest."
    )


def _ground(instance: Instance, usage: WindowUsage, aim: Aim) -> Ground:
    asked = usage.meter.estimate_message(Message("user", text_content(instructions(aim.wishes))))
    config = summary_config(instance, usage)
    header = replace(instance.session_log.folds.request_state.header or EpochHeader(config), config=config)
    bound = usage.policy.summary_max_tokens
    return Ground(
        instance.session_log.folds.request_state.surface.nodes,
        usage.prices(),
        usage.meter.estimate_header(canonical_header(header)) + asked,  # that of the call: a live one may be larger, or smaller
        usage.meter.estimate_message(Message("user", text_content(replacement("")))),
        _window(instance, usage, config),
        bound if config.max_tokens is None else min(bound, config.max_tokens),
        _scale(usage, aim),
    )


def worthwhile(instance: Instance, usage: WindowUsage, aim: Aim) -> Plan | None:
    """Plan a compaction that is worth its call: much of what is summed up was in no summary before. At the brim a smaller one
    is taken as well, and less stays at the end, so that the next one is not due at once."""
    plan = plan_of(instance, usage, aim)
    if plan is not None and _news(instance, usage, aim, plan) >= usage.bounds.worth:
        return plan
    if not is_brimful(usage, aim):
        return None
    plan = plan_of(instance, usage, replace(aim, retain=aim.retain // _LESS)) or plan
    return plan if plan is not None and _news(instance, usage, aim, plan) >= usage.bounds.least else None


def cuts_behind(instance: Instance, usage: WindowUsage, aim: Aim, plan: Plan) -> tuple[Cut, ...]:
    """Give the large results behind a plan's region, where a summary alone would leave the request at the brim: they cannot be
    read whole then, whatever is summed up. Else none."""
    if _counted(usage, aim) - _news(instance, usage, aim, plan) < usage.bounds.hard_threshold:
        return ()
    count = plan.region.count
    return cuts_of(instance.session_log.folds.request_state.surface.nodes[count:], usage.prices()[count:], usage.meter)


def is_enough(cuts: tuple[Cut, ...], usage: WindowUsage, aim: Aim) -> bool:
    """Tell whether cuts alone make room for a while."""
    saved = sum(cut.saved for cut in cuts) * _scale(usage, aim)
    return saved >= relief(_counted(usage, aim), usage.bounds)


def _counted(usage: WindowUsage, aim: Aim) -> int:
    """Give the pressure; where a provider refused the request, at least the window."""
    return max(usage.pressure.tokens, usage.bounds.window if aim.refused else 0)


def _news(instance: Instance, usage: WindowUsage, aim: Aim, plan: Plan) -> float:
    """Give how many tokens of a plan's region no summary stands for yet, as its provider counts them."""
    first = instance.session_log.folds.request_state.surface.nodes[0]
    known = usage.surface.nodes[0].tokens if is_summary(first) else 0
    return (plan.region.tokens - known) * _scale(usage, aim)


def is_brimful(usage: WindowUsage, aim: Aim) -> bool:
    """Tell whether room must be made whatever it costs."""
    return aim.refused or usage.pressure.tokens >= usage.bounds.hard_threshold


def cuts_in(instance: Instance, usage: WindowUsage, aim: Aim, *, everywhere: bool = False) -> tuple[Cut, ...]:
    """Give the large results that should be shortened: those before the retained tail, if that is enough for a while; else
    none. `everywhere`: all there are, whether or not that is enough."""
    scale, prices, nodes = _scale(usage, aim), usage.prices(), instance.session_log.folds.request_state.surface.nodes
    count = len(nodes) if everywhere else before_tail(prices, int(aim.retain / scale))
    cuts = cuts_of(nodes[:count], prices[:count], usage.meter)
    return cuts if everywhere or is_enough(cuts, usage, aim) else ()


def _scale(usage: WindowUsage, aim: Aim) -> float:
    return scale_of(usage.pressure, usage.bounds, refused=aim.refused)


def summary_config(instance: Instance, usage: WindowUsage) -> CallConfig:
    """Give the call config of who sums up: a model that the settings name, else the one that was asked last, else, where its
    provider is not configured any more, the one that is asked next."""
    if usage.policy.summary_model:
        return instance.host.call_config(SessionSettings(usage.policy.summary_model))
    header = instance.session_log.folds.request_state.header
    if header is None:
        return instance.next_config()
    try:
        instance.host.provider(header.config.provider)
    except ProviderError:  # it is gone from the configuration; its cache is of no use any more
        return instance.next_config()
    return header.config


def _window(instance: Instance, usage: WindowUsage, config: CallConfig) -> int:
    """Give the window of who sums up; of a model without a meter it is taken to be the session's."""
    try:
        return instance.host.meter(f"{config.provider}/{config.model}").profile.window
    except TokenMeterError:
        return usage.bounds.window
