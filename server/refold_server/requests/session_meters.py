"""The meters of a process: one for each model, which keeps the prices of each open log.

A meter looks at the state of the log that it is asked about and keeps nothing else: who asks first, who listens, and whether
the log was opened anew makes no difference to any answer. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import anyio.lowlevel
from msgspec.structs import replace

from refold_protocol.session.events import Event
from refold_protocol.session.messages import EpochHeader, Message
from refold_protocol.session.meter import Meter, Pressure, SurfacePrices
from refold_protocol.session.model_windows import LearnedWindow
from refold_protocol.session.session_state import SessionState
from refold_protocol.session.token_estimate import (
    UNCONFIGURED,
    MeterProfile,
    MeterRow,
    TokenMeterError,
    estimate_header,
    estimate_message,
    profile_for,
)
from refold_server.config import Config

SLICE_NODES: Final = 512
"""How many nodes are priced before others get their turn."""


class MeteredLog(Protocol):
    """What is read of a log: the one object that writes it has this, and so has a log that was loaded."""

    @property
    def folds(self) -> SessionState:
        """The state as of the accepted tail."""
        ...

    @property
    def handle(self) -> MeteredLines:
        """Gives events once more."""
        ...


class MeteredLines(Protocol):
    """What is read of a handle."""

    def read(self, first: int, last: int | None = None) -> Iterator[Event]:
        """Iterate over the events from `first` to `last`; see `refold_storage.interface.Handle.read`."""
        ...


class Meters:
    """The meters of the models that a configuration describes."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._meters: dict[tuple[str, int | None, int | None], ModelTokenMeter] = {}

    def meter_for(self, model: str, learned: LearnedWindow | None = None) -> ModelTokenMeter:
        """Give the meter of `provider/model`, where a session learned that of its window: the same object each time. Raises
        TokenMeterError for a model whose window nobody stated, and for figures that cannot be."""
        key = (model, None, None) if learned is None else (model, learned.told, learned.shown)
        known = self._meters.get(key)
        if known is None:
            known = self._meters[key] = ModelTokenMeter(self.profile(model, learned))
        return known

    def profile(self, model: str, learned: LearnedWindow | None = None) -> MeterProfile:
        """Give what is known of `provider/model`: its window from the configuration, else from its server, else from what is
        built in, and never more than was shown. Raises TokenMeterError."""
        given = self._config.profile(model)
        learned = learned or LearnedWindow(model)
        window = learned.told if given.context_window is None else given.context_window
        try:
            profile = profile_for(model, MeterRow(window, given.chars_per_token, given.density))
        except TokenMeterError as error:
            if error.code != UNCONFIGURED or learned.shown is None:
                raise
            profile = profile_for(model, MeterRow(learned.shown, given.chars_per_token, given.density))
        if learned.shown is not None and learned.shown < profile.window:
            return replace(profile, window=learned.shown)
        return profile


class ModelTokenMeter:
    """The meter of one model. Results are immutable and carry `log_revision`: who takes a decision on two of them compares
    those first. Prices of a log's nodes are kept as long as the log is open."""

    def __init__(self, profile: MeterProfile) -> None:
        self.profile: Final = profile
        self._meters: WeakKeyDictionary[MeteredLog, Meter] = WeakKeyDictionary()

    @property
    def model(self) -> str:
        """The model, as `provider/model`."""
        return self.profile.model

    def measure(self, log: MeteredLog, header: EpochHeader | None = None) -> Pressure:
        """Give what the next request of a log would cost, with `header` where that is not the one in force. O(new nodes).
        Raises what reading the log raises."""
        return self._of(log).measure(log.folds, header)

    def measure_surface(self, log: MeteredLog) -> SurfacePrices:
        """Give the price of each node of a log's surface, in its order. O(new nodes)."""
        return self._of(log).measure_surface(log.folds)

    def estimate_message(self, message: Message) -> int:
        """Estimate the tokens of a message of no session."""
        return estimate_message(message, self.profile.density)

    def estimate_header(self, header: EpochHeader) -> int:
        """Estimate the tokens of what stands before a history."""
        return estimate_header(header, self.profile.density)

    async def catch_up(self, log: MeteredLog) -> None:
        """Price the nodes that a log has now, letting others have their turn in between."""
        meter = self._of(log)
        for number, node in enumerate(log.folds.request_state.surface.nodes, 1):
            meter.price(node)
            if number % SLICE_NODES == 0:
                await anyio.lowlevel.checkpoint()

    def _of(self, log: MeteredLog) -> Meter:
        meter = self._meters.get(log)
        if meter is None:
            handle = log.handle
            meter = self._meters[log] = Meter(self.profile, lambda cited: handle.read(*cited))
        return meter
