"""The pressure of each request that a log says was sent: what the meter said just before, and what the provider did.

Whether a model can be metered is the caller's matter.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.events import AssistantMessage, Event, RequestHeader, RequestHeaderDelta, RequestSent
from refold_protocol.session.messages import Usage
from refold_protocol.session.meter import Cited, Meter
from refold_protocol.session.meter_profile import MeterProfile
from refold_protocol.session.session_state import NO_EVENTS, SessionState, fold_stored


class PressureRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What is known of one `request/sent`, whose seq is `seq`. `model` is the one that it went to, `metered` the one whose
    meter said the rest; where that has no meter, the rest is absent.

    `tokens` is the pressure: exact up to the anchor, the call at `anchor` (the seq of its reply), and estimated from there;
    without an anchor it is `estimate`, which prices the whole request by the characters of its texts. `usage` is what the
    provider reported; absent where it did not.
    """

    turn: int
    step: int
    attempt: int
    seq: int
    model: str
    metered: str
    window: int | None = None
    tokens: int | None = None
    estimate: int | None = None
    anchor: int | None = None
    usage: Usage | None = None

    @property
    def reported(self) -> int | None:
        """Tokens of the prompt, as the provider counted them; None where it did not."""
        return None if self.usage is None or self.usage.prompt_tokens <= 0 else self.usage.prompt_tokens

    @property
    def error(self) -> float | None:
        """By what share the pressure was above (or, negative, below) what the provider reported; None where either is not
        known, and where another model's meter said it: models count differently."""
        return self._off(self.tokens)

    @property
    def estimate_error(self) -> float | None:
        """The same of the estimate of the whole request."""
        return self._off(self.estimate)

    def _off(self, said: int | None) -> float | None:
        reported = self.reported
        if said is None or reported is None or self.model != self.metered:
            return None
        return (said - reported) / reported


class PressureRows:
    """Gathers the rows of a log, of which `cited` gives events once more. `profiles` are those of the models that can be
    metered; each request is measured by the meter of its own model, or by that of `as_model`."""

    def __init__(self, profiles: Iterable[MeterProfile], cited: Cited, as_model: str | None = None) -> None:
        self.rows: list[PressureRow] = []
        self._state: SessionState = NO_EVENTS
        self._meters = {profile.model: Meter(profile, cited) for profile in profiles}
        self._as_model = as_model
        self._route = ""

    def feed(self, event: Event) -> None:
        """Take the next event. Raises what `fold_stored` raises."""
        self._state = fold_stored(self._state, event)
        match event.data:
            case RequestHeader() | RequestHeaderDelta() as header:
                self._route = route_of(header) or self._route
            case RequestSent(purpose="step", turn=int(turn), step=int(step), attempt=attempt):
                self.rows.append(self._row(turn, step, attempt, event.seq))
            case AssistantMessage(usage=Usage() as usage) as reply if self.rows and event.surface_op == "append":
                row = self.rows[-1]
                if (row.turn, row.step) == (reply.turn, reply.step):
                    self.rows[-1] = replace(row, usage=usage)
            case _:
                pass

    def _row(self, turn: int, step: int, attempt: int, seq: int) -> PressureRow:
        metered = self._as_model or self._route
        meter = self._meters.get(metered)
        row = PressureRow(turn, step, attempt, seq, self._route, metered)
        if meter is None:
            return row
        found = meter.measure(self._state)
        anchor = None if found.anchor is None else found.anchor.seq
        estimate = found.header + found.surface
        return replace(row, window=found.window, tokens=found.tokens, estimate=estimate, anchor=anchor)


def route_of(header: RequestHeader | RequestHeaderDelta) -> str | None:
    """Give the model, as `provider/model`, that a header event sends requests to; None where it changes nothing about it."""
    config = header.header.config if isinstance(header, RequestHeader) else header.config
    return None if config is None else f"{config.provider}/{config.model}"
