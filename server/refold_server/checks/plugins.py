"""Owns the examination of plugins: each that the configuration names is loaded by itself, so that one that fails hides none.

What one prints while it is loaded goes to standard error. Runs no handler.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from refold_protocol.errors import ConfigError
from refold_server.checks.examination import Finding, PluginState
from refold_server.config_types import Config
from refold_server.host import offered
from refold_server.plugins.plugin_loading import ImportThreads, load_plugin_in_thread, plugin_sources
from refold_server.plugins.plugin_registry import NO_PLUGINS, plugin_stats


async def examine_plugins(config: Config) -> tuple[tuple[PluginState, ...], tuple[Finding, ...]]:
    """Give the plugins in the order in which they are loaded, and what is wrong with them."""
    loaded, aside = NO_PLUGINS, ImportThreads()
    states: list[PluginState] = []
    found: list[Finding] = []
    with redirect_stdout(sys.stderr):
        for source in plugin_sources(config.plugins):
            try:
                one = await load_plugin_in_thread(source, loaded, config.plugins.load_timeout_s, aside)
            except ConfigError as error:  # the others can be looked at all the same
                states.append(PluginState(source.origin))
                found.append(Finding(error.error_kind, error.message, "correct it, or take it out of the configuration"))
                continue
            loaded = loaded.then(one)
            (row,) = plugin_stats(one)
            seams = tuple(seam.seam for seam in row.seams)
            states.append(PluginState(row.origin, row.plugin, row.tools, row.event_types, seams))
    try:
        offered(config, loaded)
    except ConfigError as error:  # told as what it is; where a plugin is missing, its tools are as well
        found.append(Finding(error.error_kind, error.message, "correct the setting that the sentence names"))
    return tuple(states), tuple(found)
