"""Owns the meters of a process: one for each model, and in it what was folded of each open log.

A meter reads the log that it is asked about up to its accepted tail and keeps nothing else: who asks first, who listens, and
whether the log was opened anew makes no difference to any answer. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import anyio.lowlevel

from refold_protocol.errors import SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.session.codec import decode_event
from refold_protocol.session.estimate import estimate_header, estimate_message
from refold_protocol.session.events import Event
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Message
from refold_protocol.session.meter import (
    MeterState,
    Pressure,
    SurfacePrices,
    measure,
    measure_surface,
    meter_step,
)
from refold_protocol.session.meter_profile import MeterProfile, MeterRow, profile_for
from refold_protocol.session.meter_skim import MeterSkim
from refold_protocol.session.turn_skim import TurnSkim
from refold_server.config import Config

SLICE_BYTES: Final = 256 * 1024
"""How much of a log is folded before others get their turn."""


class MeteredLog(Protocol):
    """What is read of a log: a storage handle has it."""

    @property
    def tail(self) -> int:
        """Seq of the last event that can be read; −1 for an empty log."""
        ...

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give the exact lines of the events from `first` on; see `refold_storage.interface.Handle.lines`."""
        ...


class Meters:
    """The meters of the models that a configuration describes."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._meters: dict[str, ModelTokenMeter] = {}

    def meter_for(self, model: str) -> ModelTokenMeter:
        """Give the meter of `provider/model`: the same object each time. Raises TokenMeterError for a model whose window
        nobody stated, and for figures that cannot be."""
        known = self._meters.get(model)
        if known is None:
            known = self._meters[model] = ModelTokenMeter(self.profile(model))
        return known

    def profile(self, model: str) -> MeterProfile:
        """Give what is known of `provider/model`. Raises TokenMeterError."""
        given = self._config.profile(model)
        return profile_for(model, MeterRow(given.context_window, given.chars_per_token, given.density))


class ModelTokenMeter:
    """The meter of one model. Results are immutable and carry `log_revision`: who takes a decision on two of them compares
    those first. A log is known by its handle, and forgotten with it."""

    def __init__(self, profile: MeterProfile) -> None:
        self.profile: Final = profile
        self._states: WeakKeyDictionary[MeteredLog, MeterState] = WeakKeyDictionary()

    @property
    def model(self) -> str:
        """The model, as `provider/model`."""
        return self.profile.model

    def measure(self, log: MeteredLog, header: EpochHeader | None = None) -> Pressure:
        """Give what the next request of a log would cost, with `header` where that is not the one in force. O(new events).

        Raises SessionCorruptionError and SessionFormatUnsupportedError with the seq of an event that cannot be metered; it
        stays unread, so that each retry says the same.
        """
        return measure(self._caught_up(log), header)

    def measure_surface(self, log: MeteredLog) -> SurfacePrices:
        """Give the price of each node of a log's surface, in its order. O(new events); raises what `measure` raises."""
        return measure_surface(self._caught_up(log))

    def estimate_message(self, message: Message) -> int:
        """Estimate the tokens of a message of no session."""
        return estimate_message(message, self.profile.density)

    def estimate_header(self, header: EpochHeader) -> int:
        """Estimate the tokens of what stands before a history."""
        return estimate_header(header, self.profile.density)

    async def catch_up(self, log: MeteredLog) -> None:
        """Read a log up to where its tail is now, letting others have their turn in between. Raises what `measure` raises."""
        tail = log.tail
        if tail >= 0 and log not in self._states:
            await self._begin(log, tail)
        while self._state(log).log_revision <= tail:
            self._fold(log, log.lines(self._state(log).log_revision, tail, max_bytes=SLICE_BYTES))
            await anyio.lowlevel.checkpoint()

    async def _begin(self, log: MeteredLog, tail: int) -> None:
        """Read a log for the first time. Where anything is refused nothing was read: reading on event by event says what."""
        skim, reading, first = MeterSkim(self.profile), TurnSkim(), 0
        try:
            while first <= tail:
                lines = log.lines(first, tail, max_bytes=SLICE_BYTES, chunks=False)
                for item in reading.items(lines):
                    skim.take(item)
                first += len(lines)
                await anyio.lowlevel.checkpoint()
            for item in reading.rest(partial(_lines, log)):
                skim.take(item)
        except (SessionCorruptionError, SessionFormatUnsupportedError):  # is raised once more, at its place
            return
        self._states.setdefault(log, skim.done(partial(_lines, log)))

    def _caught_up(self, log: MeteredLog) -> MeterState:
        while (first := self._state(log).log_revision) <= log.tail:
            self._fold(log, log.lines(first, max_bytes=SLICE_BYTES))
        return self._state(log)

    def _state(self, log: MeteredLog) -> MeterState:
        return self._states.get(log) or MeterState(self.profile)

    def _fold(self, log: MeteredLog, lines: Iterable[bytes]) -> None:
        """Fold lines; where one is refused, all before it stay folded."""
        state = self._state(log)
        try:
            for line in lines:
                state = meter_step(state, _decoded(line, state.log_revision))
        finally:
            self._states[log] = state


def _lines(log: MeteredLog, first: int, last: int) -> list[bytes]:
    lines: list[bytes] = []
    while first + len(lines) <= last:
        lines += log.lines(first + len(lines), last, max_bytes=SLICE_BYTES)
    return lines


def _decoded(line: bytes, seq: int) -> Event:
    try:
        return decode_event(line)
    except SessionCorruptionError as error:  # it does not know the place, which is said here
        raise SessionCorruptionError(f"event {seq}: {error.message}", seq=seq) from None
