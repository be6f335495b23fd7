"""Owns the bundle of folds that a live session keeps up to date with its log. A bundle, not a fold of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from refold_protocol.session.codec import refuse_foreign
from refold_protocol.session.events import AssistantChunk, Event, RequestSent, SessionSettings, ToolCall, TurnEnd, TurnStart
from refold_protocol.session.granted import NOTHING_GRANTED, Granted, fold_granted, granted_step
from refold_protocol.session.pending import Pending, fold_pending, pending_step
from refold_protocol.session.rebuild import NOTHING_SEEN, Horizon, horizon_step
from refold_protocol.session.settings import NO_SETTINGS, fold_settings, settings_step
from refold_protocol.session.skimmed_turns import SkimmedTurns, horizon_over, work_over
from refold_protocol.session.work import NO_WORK, Work, work_step


class Folds(Struct, frozen=True, gc=False):
    """What a session knows after its events so far. Immutable: a batch is tried on it before it is accepted."""

    work: Work = NO_WORK
    horizon: Horizon = NOTHING_SEEN
    pending: Pending = ()
    settings: SessionSettings = NO_SETTINGS
    granted: Granted = NOTHING_GRANTED


NOTHING_KNOWN = Folds()


def folds_step(state: Folds, event: Event) -> Folds:
    """Fold one event into all of them. Raises what they raise, and SessionFormatUnsupportedError for a foreign event that
    may not be skipped."""
    if type(event.data) in _WORK_ALONE:
        return Folds(work_step(state.work, event), state.horizon, state.pending, state.settings, state.granted)
    refuse_foreign(event)
    return Folds(
        work_step(state.work, event),
        horizon_step(state.horizon, event),
        pending_step(state.pending, event),
        settings_step(state.settings, event),
        granted_step(state.granted, event),
    )


_WORK_ALONE: Final = frozenset((AssistantChunk, RequestSent, ToolCall, TurnStart, TurnEnd))
"""Data that changes nothing but the open work: over nine of ten events."""


def folds_over(state: Folds, passed: SkimmedTurns) -> Folds:
    """Fold whole turns into all of them. Raises what they raise."""
    return Folds(
        work_over(state.work, passed),
        horizon_over(state.horizon, passed),
        fold_pending(passed.inputs, state.pending),
        fold_settings(passed.rules, state.settings),
        fold_granted(passed.rules, state.granted),
    )


def fold_all(events: Iterable[Event], state: Folds = NOTHING_KNOWN) -> Folds:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = folds_step(state, event)
    return state
