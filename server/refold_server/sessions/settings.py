"""Owns what changes of a session's settings are, and the words in which a model is told of another permission mode.

Pure. The session records both; a change of permissions is told as context and never edits the system text.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold_protocol.session.events import CompactionSettings, LimitSettings, PermissionSettings, SessionSettings
from refold_protocol.session.messages import Source

PERMISSIONS: Final = Source("loop", "permissions")
"""Who tells the model of a permission mode."""

PERMISSIONS_NOW: Final = {
    "ask": "Permissions changed: from now on the user is asked before a tool changes something.",
    "allow": "Permissions changed: from now on tools that change something run without the user being asked.",
    "deny": "Permissions changed: from now on tools that change something do not run.",
}
"""What the model is told, by mode."""


class SettingsPatch(Struct, frozen=True, gc=False):
    """What to change in a session's settings; None leaves a setting as it is, also one within `compaction`. `tools_now`
    lets new tools join at once."""

    model: str | None = None
    effort: str | None = None
    permissions: PermissionSettings | None = None
    limits: LimitSettings | None = None
    compaction: CompactionSettings | None = None
    tools_now: bool = False


def patched(before: SessionSettings, patch: SettingsPatch) -> SessionSettings:
    """Give the settings that a patch makes of those before."""
    given = ((name, getattr(patch, name)) for name in ("model", "effort", "permissions", "limits"))
    changed = replace(before, **{name: value for name, value in given if value is not None})
    if patch.compaction is None:
        return changed
    fields = {name: value for name, value in asdict(patch.compaction).items() if value is not None}
    return replace(changed, compaction=replace(before.compaction or CompactionSettings(), **fields))
