"""Owns which contributors come with refold, and their order: they stand before those of all plugins.

Order: what holds longest comes first, so that a change breaks as little of what the provider has cached as it can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from refold_server.config_types import PrefixConfig
from refold_server.plugins.registry import PluginRegistry, Plugins, registered
from refold_server.plugins.seam import SESSION_PREFIX
from refold_server.prefix.baseline import baseline
from refold_server.prefix.contributor import Write, contributor
from refold_server.prefix.editor import OpenFiles, editor
from refold_server.prefix.instructions import instructions
from refold_server.prefix.skills import skills
from refold_server.tools.open_buffers import NO_BUFFERS
from refold_server.tools.skill_index import SkillFolders

PLUGIN: Final = "refold"
"""The plugin whose contributors these are."""


class Sights(Struct, frozen=True):
    """What contributors look at besides a session's folder. `shelf` is asked when the first session is composed."""

    shelf: Callable[[], SkillFolders] = SkillFolders
    buffers: OpenFiles = NO_BUFFERS


def built_in(config: PrefixConfig, sights: Sights) -> Plugins:
    """Give the built-in contributors that are switched on."""
    rows: tuple[tuple[bool, str, Write], ...] = (
        (config.instructions, "instructions", lambda cwd: instructions(cwd, sights.shelf().home)),
        (config.skills, "skills", lambda cwd: skills(cwd, sights.shelf())),
        (config.baseline, "baseline", lambda cwd: baseline(cwd, sights.shelf().home)),
        (config.editor, "editor", lambda cwd: editor(cwd, sights.buffers)),
    )

    def register(registry: PluginRegistry) -> None:
        for wanted, name, write in rows:
            if wanted:
                registry.on(SESSION_PREFIX, contributor(name, write))

    return registered(PLUGIN, register)
