"""Owns what a meter must know of a model: its window and how its texts are priced; the rows that refold brings, and the
error for a model of which too little is known.

There is no window for models in general: a guess that is too large is found out by the provider's refusal, one that is too
small by a history that was summed up for nothing. Must not know configurations: whoever reads one calls `profile_for`.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from refold_protocol.errors import RefoldError
from refold_protocol.session.density import CHARACTERS_PER_TOKEN, Counting, Density, is_density

UNCONFIGURED: Final = "TOKEN_METER_MODEL_UNCONFIGURED"
INVALID: Final = "TOKEN_METER_INVALID_CONFIG"

_KINDS: Final = {UNCONFIGURED: "model.unconfigured", INVALID: "config.invalid"}


class TokenMeterError(RefoldError):
    """No meter for a model. `code` is TOKEN_METER_MODEL_UNCONFIGURED (nobody said what its window is; kind
    `model.unconfigured`) or TOKEN_METER_INVALID_CONFIG (what was said cannot be; kind `config.invalid`). `model` is the
    exact name that was asked for."""

    def __init__(self, code: str, model: str, reason: str, **details: Any) -> None:
        super().__init__(reason, code=code, model=model, **details)
        self.code = code
        self.model = model

    @property
    def error_kind(self) -> str:
        """The kind that belongs to the code."""
        return _KINDS[self.code]


class MeterProfile(Struct, frozen=True, gc=False):
    """What is known of a model. `model` is `provider/model`, `window` its context window in tokens: prompt and reply."""

    model: str
    window: int
    density: Density = Density()


class MeterRow(Struct, frozen=True, gc=False):
    """What somebody said of a model; None: nothing."""

    context_window: int | None = None
    chars_per_token: float | None = None
    density: Counting | None = None


BUILT_IN: Final[dict[str, MeterRow]] = {
    "deepseek-v4-flash": MeterRow(128_000, CHARACTERS_PER_TOKEN),
    "deepseek-v4-pro": MeterRow(128_000, CHARACTERS_PER_TOKEN),
}
"""Models that refold knows by their bare names, whichever provider serves them."""

EMBEDDED: Final[dict[str, MeterRow]] = {"rehearsal/workspace": MeterRow(128_000, CHARACTERS_PER_TOKEN)}
"""The embedded provider's model, which counts four characters as a token itself and takes any length."""


def profile_for(model: str, given: MeterRow) -> MeterProfile:
    """Give the profile of `provider/model`: what was `given` for it, field by field over what refold knows of it.

    Raises TokenMeterError for a model without a window and for figures that cannot be.
    """
    known = EMBEDDED.get(model) or BUILT_IN.get(model.partition("/")[2]) or MeterRow()
    window = known.context_window if given.context_window is None else given.context_window
    if window is None:
        raise TokenMeterError(
            UNCONFIGURED,
            model,
            f'nobody said how large the window of the model {model!r} is; set context_window under [models."{model}"]',
        )
    characters = _first(given.chars_per_token, known.chars_per_token, CHARACTERS_PER_TOKEN)
    if window < 1:
        raise _invalid(model, "context_window", f"expects a whole number of tokens above 0; it is {window}")
    if not is_density(characters):
        raise _invalid(model, "chars_per_token", f"expects a number above 0; it is {characters}")
    counting: Counting = given.density or known.density or "flat"
    if counting not in ("flat", "script"):
        raise _invalid(model, "density", f'expects "flat" or "script"; it is {counting!r}')
    return MeterProfile(model, window, Density(float(characters), counting))


def _first(*numbers: float | None) -> float:
    return next(number for number in numbers if number is not None)


def _invalid(model: str, field: str, reason: str) -> TokenMeterError:
    key = f"models.{model}.{field}"
    return TokenMeterError(INVALID, model, f"{key}: {reason}", key=key)
