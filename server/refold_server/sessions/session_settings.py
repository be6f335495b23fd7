"""The settings of a session: what a patch makes of them, their check before they are recorded, and what a log lets run unasked.

Settings that stand in a log already are not checked again: what has become wrong there is reported when it matters. What
somebody allowed for a session, and the mode it was set to, hold for whoever goes on with it, also where the log came from
another machine. A change of permissions reaches the model as context and never edits the system text.
"""

from __future__ import annotations

from typing import Final

import anyio.lowlevel
from msgspec import Struct
from msgspec.structs import asdict, replace

from refold_protocol.errors import ConfigError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event, line_type
from refold_protocol.session.events import CompactionSettings, Event, LimitSettings, PermissionSettings, SessionSettings
from refold_protocol.session.messages import Source
from refold_protocol.session.session_state import NO_SETTINGS, NOTHING_GRANTED, Granted, granted_step
from refold_protocol.session.token_estimate import UNCONFIGURED, TokenMeterError
from refold_server.compaction.compaction_decision import bounds_of
from refold_server.requests.session_model import Models
from refold_storage.interface import Store

PERMISSIONS: Final = Source("loop", "permissions")
"""The source of the notice that tells the model of a permission mode."""

PERMISSIONS_NOW: Final = {
    "ask": "Permissions changed: from now on the user is asked before a tool changes something.",
    "allow": "Permissions changed: from now on tools that change something run without the user being asked.",
    "deny": "Permissions changed: from now on tools that change something do not run.",
}
"""The notice, by mode."""


class SettingsPatch(Struct, frozen=True, gc=False):
    """What to change in a session's settings; None leaves a setting as it is, also one within `compaction`. `tools_now`
    lets new tools join at once."""

    model: str | None = None
    effort: str | None = None
    permissions: PermissionSettings | None = None
    limits: LimitSettings | None = None
    compaction: CompactionSettings | None = None
    revoked: tuple[str, ...] | None = None
    tools_now: bool = False


def patched(before: SessionSettings, patch: SettingsPatch) -> SessionSettings:
    """Give the settings that a patch makes of those before."""
    given = ((name, getattr(patch, name)) for name in ("model", "effort", "permissions", "limits"))
    changed = replace(before, revoked=patch.revoked, **{name: value for name, value in given if value is not None})
    if patch.compaction is None:
        return changed
    fields = {name: value for name, value in asdict(patch.compaction).items() if value is not None}
    return replace(changed, compaction=replace(before.compaction or CompactionSettings(), **fields))


_WIRE_NAMES = {"threshold_ratio": "thresholdRatio", "retain_tokens": "retainTokens"}


def check_settings(models: Models, settings: SessionSettings, before: SessionSettings = NO_SETTINGS) -> None:
    """Raise ConfigError and ProviderError `model.unconfigured` for a model that cannot be used; where model or compaction are
    not those of `before`, ConfigError `compaction` and TokenMeterError for figures that do not go with the model's window."""
    config = models.call_config(settings)
    changed = (settings.model, settings.compaction) != (before.model, before.compaction)
    if settings.compaction is None or not changed:
        return
    model = f"{config.provider}/{config.model}"
    try:
        window = models.meter(model).profile.window
    except TokenMeterError as error:
        if error.code != UNCONFIGURED:
            raise
        return  # nobody said how large the window is: then nothing is compacted by itself
    try:
        bounds_of(models.compaction(model, settings), window)
    except ConfigError as error:
        reason = error.message.removeprefix(f"{error.key}: ")
        raise ConfigError("compaction", f"{_WIRE_NAMES[error.key]} {reason} (model {model})") from None


BATCH_BYTES: Final = 256 * 1024
"""Bytes of lines that are read before others get a turn."""


class StandingPermissions(Struct, frozen=True, gc=False):
    """What runs without a question: `tools`, in the order in which they were allowed, and every tool where `mode`, the
    permission mode of the session's own, is `allow`. `mode` is None where it has none."""

    mode: str | None
    tools: tuple[str, ...]


async def standing_permissions(store: Store, session: SessionId) -> StandingPermissions:
    """Read what a stored session lets run. Raises SessionError."""
    mode: str | None = None
    granted = NOTHING_GRANTED
    handle = await store.open(session, "read")
    try:
        first = 0
        while first <= handle.tail:
            lines = handle.lines(first, max_bytes=BATCH_BYTES, chunks=False)
            for event in (decode_event(line) for line in lines if line_type(line) in _TELLING):
                mode, granted = _step(mode, granted, event)
            first += len(lines)
            await anyio.lowlevel.checkpoint()
    finally:
        await handle.close()
    return StandingPermissions(mode, granted.tools)


def _step(mode: str | None, granted: Granted, event: Event) -> tuple[str | None, Granted]:
    match event.data:
        case SessionSettings(permissions=permissions):
            return None if permissions is None else permissions.mode, granted_step(granted, event)
        case _:
            return mode, granted_step(granted, event)


_TELLING: Final = frozenset(("session/settings", "approval/asked", "approval/decided", "instance/start"))
