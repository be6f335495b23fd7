"""Density of text: how many characters make a token. One figure for all text, or one for each kind of letters.

The unit of text is the Unicode code point, so that an estimate depends on no encoding. Pure; knows no model's vocabulary:
the figures of `script` were measured on one (`python -m tests.bench.density`), and rounded to the safe side.

Estimate of what a request costs in tokens where no provider counted it, by characters and density.

Blocks, messages and headers are priced here and nowhere else: the meter, compaction and `prefix/compose` all ask here.
Pure; knows no model's window. How many characters make a token is `density.py`'s matter.

What a meter must know of a model: its window and how its texts are priced; the rows that refold brings, and the
error for a model of which too little is known.

There is no window for models in general: a guess that is too large is found out by the provider's refusal, one that is too
small by a history that was summed up for nothing. Must not know configurations: whoever reads one calls `profile_for`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, isfinite
from typing import Any, Final, Literal, TypeAlias

from msgspec import Raw, Struct

from refold_protocol.errors import RefoldError
from refold_protocol.session.messages import (
    Block,
    EpochHeader,
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    encode_compact,
)

CHARACTERS_PER_TOKEN: Final = 4.0
"""The density of text where nothing else is known of a model."""

Counting: TypeAlias = Literal["flat", "script"]
"""How characters are counted: all alike, or by the kind of their letters."""


class Density(Struct, frozen=True, gc=False):
    """How texts of a model are priced. `characters` is code points a token, above 0 and finite.

    `flat` prices all text so; it is much too low for Chinese, Japanese and Korean. `script` prices Latin letters and white
    space so, and what vocabularies cut finer by figures of its own, which `characters` bounds from above.
    """

    characters: float = CHARACTERS_PER_TOKEN
    counting: Counting = "flat"

    def tokens(self, text: str) -> int:
        """Give the tokens of a text, rounded up; 0 for an empty one. O(length)."""
        if self.counting == "flat":
            return ceil(len(text) / self.characters)
        return ceil(round(self._by_script(text), 6))

    def _by_script(self, text: str) -> float:
        tokens, rest = 0.0, len(text)
        for pattern, characters in _NARROW if text.isascii() else _ALL:
            found = sum(map(len, pattern.findall(text)))
            tokens += found / min(characters, self.characters)
            rest -= found
        return tokens + rest / self.characters


def is_density(characters: float) -> bool:
    """Tell whether a number can be a density."""
    return isfinite(characters) and characters > 0


_IDEOGRAPHS: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SYLLABLES: Final = "\u1100-\u11ff\u3000-\u30ff\u3130-\u318f\uac00-\ud7a3\uff00-\uffef"
_SIGNS: Final = "\u200d\u2190-\u2bff\ufe0f"
_PICTURES: Final = "\U0001f000-\U0001faff"
_RARE: Final = "\U00020000-\U000323af"
_NARROW: Final = ((re.compile(r"[!-@\[-`{-~]+"), 2.25),)
_ALL: Final = (
    *_NARROW,
    (re.compile(f"[{_IDEOGRAPHS}]+"), 1.3),
    (re.compile(f"[{_SYLLABLES}]+"), 1.2),
    (re.compile(f"[{_SIGNS}]+"), 1.0),
    (re.compile(f"[{_PICTURES}]+"), 0.5),
    (re.compile(f"[{_RARE}]+"), 0.25),
    (re.compile(f"[^\\x00-\\x7f{_IDEOGRAPHS}{_SYLLABLES}{_SIGNS}{_PICTURES}{_RARE}]+"), 1.5),
)
"""Digits and signs of ASCII; ideographs; kana, hangul and wide signs; arrows, mathematics, boxes and dingbats; emoji, whose
bytes are tokens as often as not; ideographs that no vocabulary has; everything else. Characters a token."""


FLAT: Final = Density()
"""Four characters a token, whatever the script."""

_FRAME: Final = 4
"""Tokens that a block, a message, the system text or the list of tools costs beside its text."""


def estimate_message(message: Message, density: Density = FLAT) -> int:
    """Estimate the tokens of a message."""
    return _FRAME + sum(estimate_block(block, density) for block in message.content)


def estimate_messages(messages: Iterable[Message], density: Density = FLAT) -> int:
    """Estimate the tokens of several messages."""
    return sum(estimate_message(message, density) for message in messages)


def estimate_block(block: Block, density: Density = FLAT) -> int:
    """Estimate the tokens of a block. An image counts as a frame: nothing in the log says what it costs."""
    match block:
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return density.tokens(text) + _FRAME
        case ToolCallBlock(name=name, arguments=arguments):
            return density.tokens(name) + density.tokens(arguments) + _FRAME
        case ToolResultBlock(content=content):
            return sum(estimate_block(inner, density) for inner in content) + _FRAME
        case ImageBlock():
            return _FRAME


def estimate_header(header: EpochHeader, density: Density = FLAT) -> int:
    """Estimate the tokens of what stands before the history: system text, tools, message prefix. Call config costs none."""
    tokens = estimate_messages(header.message_prefix or (), density)
    if header.system:
        tokens += density.tokens(header.system) + _FRAME
    if header.tools:
        tokens += density.tokens(_written(header.tools)) + _FRAME
    return tokens


class _Tool(Struct, frozen=True):
    """A tool as models read it: its schema is JSON, not a text that holds JSON."""

    name: str
    description: str
    parameters: Raw


def _written(tools: tuple[ToolSchema, ...]) -> str:
    read = tuple(_Tool(tool.name, tool.description, Raw(tool.parameters.encode())) for tool in tools)
    return encode_compact(read).decode()


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
