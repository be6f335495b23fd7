"""Owns the plan of a compaction: which nodes are summed up, and how long the summary may be, so that the call fits.

Pure. Estimates may be far from what a provider counts; where one counted, or refused, all figures are scaled by how far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from refold_protocol.session.events import Event
from refold_protocol.session.meter import Pressure
from refold_protocol.session.region import Region, region_of
from refold_server.compaction.policy import Bounds

_SHARES: Final = (8, 32)
"""One in so many tokens of the window is left for the summary: the second where nothing can be summed up with the first."""


class Plan(Struct, frozen=True, gc=False):
    """Sum up `region` in at most `cap` tokens."""

    region: Region
    cap: int


class Ground(Struct, frozen=True):
    """What a plan is made from. `nodes` and `prices` are the surface's. Estimates: `beside` of what a summary call costs beside
    the region (header and instructions), `frame` of a summary without a word. `window` is that of the model that sums up,
    `most` its settings' bound of a summary; `scale` is by how much a provider counts more than was estimated."""

    nodes: Sequence[Event]
    prices: Sequence[int]
    beside: int
    frame: int
    window: int
    most: int
    scale: float = 1.0


def planned(ground: Ground, retain: int, region_most: int | None = None) -> Plan | None:
    """Plan the compaction of all but `retain` tokens, of a region that costs at most `region_most` by estimate. None where
    nothing can be summed up."""
    plans = (_planned(ground, retain, region_most, share) for share in _SHARES)
    return next((plan for plan in plans if plan is not None), None)


def _planned(ground: Ground, retain: int, region_most: int | None, share: int) -> Plan | None:
    reserve = max(1, min(ground.most, ground.window // share))
    room = int((ground.window - reserve) / ground.scale) - ground.beside
    most = room if region_most is None else min(room, region_most)
    region = region_of(ground.nodes, ground.prices, int(retain / ground.scale), most)
    if region is None or region.tokens <= ground.frame:
        return None
    left = ground.window - int((ground.beside + region.tokens) * ground.scale)
    return Plan(region, max(1, min(ground.most, left)))


def scale_of(pressure: Pressure, bounds: Bounds, *, refused: bool = False) -> float:
    """Give by how much a provider counts more than estimates say, at least 1. `refused`: it said that all of it does not
    fit, so it counts at least the window."""
    estimated = max(1, pressure.header + pressure.surface)
    counted = max(pressure.tokens, bounds.window if refused else 0)
    return max(1.0, counted / estimated)
