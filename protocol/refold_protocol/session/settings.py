"""Owns the settings fold: the last `session/settings` is in force, whole."""

from __future__ import annotations

from collections.abc import Iterable

from refold_protocol.session.events import Event, SessionSettings

NO_SETTINGS = SessionSettings()
"""State before any settings were recorded: all is the configuration's."""


def settings_step(state: SessionSettings, event: Event) -> SessionSettings:
    """Fold one event."""
    return event.data if isinstance(event.data, SessionSettings) else state


def fold_settings(events: Iterable[Event], state: SessionSettings = NO_SETTINGS) -> SessionSettings:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = settings_step(state, event)
    return state
