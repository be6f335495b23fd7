"""Owns the account of plugins: what each brought, and what it did at each seam so far."""

from __future__ import annotations

from collections.abc import Iterator

from refold_protocol.rpc.listing import PluginHealth, SeamTally
from refold_server.plugins.registry import Plugins
from refold_server.plugins.seam import SEAMS


def plugin_rows(plugins: Plugins) -> tuple[PluginHealth, ...]:
    """Give a row for each plugin, in the order in which they were loaded."""
    return tuple(
        PluginHealth(
            one.plugin,
            one.origin,
            tuple(row.tool.schema.name for row in plugins.tools if row.plugin == one.plugin),
            tuple(row.name for row in plugins.event_types if row.plugin == one.plugin),
            tuple(_seams(plugins, one.plugin)),
        )
        for one in plugins.brought
    )


def _seams(plugins: Plugins, plugin: str) -> Iterator[SeamTally]:
    for seam in SEAMS:
        tallies = [one.tally for one in plugins.at(seam) if one.plugin == plugin]
        if tallies:
            yield SeamTally(
                seam.name,
                sum(one.calls for one in tallies),
                sum(one.failures for one in tallies),
                round(sum(one.total_s for one in tallies) * 1000, 3),
                round(max(one.slowest_s for one in tallies) * 1000, 3),
            )
