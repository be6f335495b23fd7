"""Metering of a log that grows event by event, as that of an open session."""

from __future__ import annotations

from collections.abc import Iterable

from refold_protocol.session.events import Event
from refold_protocol.session.messages import EpochHeader
from refold_protocol.session.meter import Meter, Pressure, SurfacePrices
from refold_protocol.session.session_state import NO_EVENTS, SessionState, fold_stored
from refold_protocol.session.token_estimate import MeterProfile


class Metering:
    """The meter of one log for one model. `state` is that after the events so far."""

    def __init__(self, profile: MeterProfile, events: Iterable[Event] = ()) -> None:
        self.state: SessionState = NO_EVENTS
        self._events: list[Event] = []
        self._meter = Meter(profile, lambda cited: self._events[cited[0] : cited[1] + 1])
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Take the next event. Raises what `fold_stored` raises."""
        self.state = fold_stored(self.state, event)
        self._events.append(event)

    def measure(self, header: EpochHeader | None = None) -> Pressure:
        """Measure the log as it is now."""
        return self._meter.measure(self.state, header)

    def measure_surface(self) -> SurfacePrices:
        """Price the nodes as they are now."""
        return self._meter.measure_surface(self.state)
