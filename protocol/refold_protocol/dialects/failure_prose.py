"""The words of servers' errors: which of them tell surely of a full window, a refused setting or a refused key.

Grown from real messages. Servers speak of their context when they refuse an output limit, so numbers decide there: a prompt
that takes less than half of the window leaves room, and what does not fit is the limit that refold asked for. A history that
was summed up for nothing would be the price of a mistake.
"""

from __future__ import annotations

import re
from typing import Final

_OVERFLOW: Final = re.compile(
    r"maximum context length|context (?:length|window|size|limit)|exceeds? the available context"
    r"|(?:prompt|input) (?:is )?too long|too many tokens in the prompt|reduce the length of the (?:messages|prompt|input)"
    r"|(?:input|prompt) token count[^.]{0,40} exceeds the (?:maximum|limit)|input length[^.]{0,20} exceeds the maximum"
    r"|maximum prompt length|prompt exceeds max(?:imum)? length|range of input length should be|exceeded model token limit"
    r"|longer than the maximum model length|inputs` tokens \+ `max_new_tokens|input is too long for requested model"
    r"|too large for model with [0-9,]+ maximum context|token limit reached",
    re.IGNORECASE,
)
"""How servers say that a request does not fit, each in its own words."""

_LIMIT_NAMES: Final = r"(?:max[_ ]?(?:completion[_ ]|new[_ ]|output[_ ]|gen[_ ])?tokens|maxoutputtokens|maximum tokens)"
_OUTPUT_LIMIT: Final = re.compile(
    rf"{_LIMIT_NAMES}\W*(?:or\W+{_LIMIT_NAMES}\W*)?(?:parameter |value )?(?:\([0-9,]+\) )?(?:is too large|exceeds?\b"
    r"|must be (?:less|at most|<)|should be (?:less|at most|<)|cannot exceed|is greater than|you requested exceeds|value of)"
    rf"|(?:invalid|range of) {_LIMIT_NAMES}|supports at most [0-9,]+ (?:completion|output) tokens"
    r"|max tokens must be less|[0-9]+ in the (?:output|completion)|input tokens \([0-9]+ > ",
    re.IGNORECASE,
)
"""How servers refuse the number of tokens that the answer may have."""

_PROMPT: Final = re.compile(
    r"has (?P<a>[0-9]+) input tokens|\((?P<b>[0-9]+) (?:of text input|in (?:the|your) (?:messages|prompt))"
    r"|given: (?P<c>[0-9]+) `?inputs|limit: (?P<d>[0-9]+) \+ [0-9]+ >|resulted in (?P<e>[0-9]+) tokens",
    re.IGNORECASE,
)
_WINDOW: Final = re.compile(
    r"context (?:length|window|size|limit)(?: is| of) (?P<a>[0-9]+)|must be <= (?P<b>[0-9]+)|\+ [0-9]+ > (?P<c>[0-9]+)",
    re.IGNORECASE,
)

_KEY: Final = re.compile(
    r"api[_ -]?key (?:is )?(?:not valid|invalid|missing|expired|not found|required)"
    r"|(?:incorrect|invalid|missing|no|wrong|expired)(?: or missing)? (?:\w+ )?api[_ -]?key"
    r"|invalid authentication|invalid x-api-key|unauthorized|not authenticated"
    r"|api key provided|provide (?:a valid|an) api key|invalid (?:access |auth )?token\b",
    re.IGNORECASE,
)
"""How servers refuse a key with a status that says something else."""

_SETTINGS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(
            r"\bmax_tokens\b.{0,60}not supported.{0,60}max_completion_tokens|use '?max_completion_tokens", re.IGNORECASE
        ),
        'set max_tokens_field = "max_completion_tokens" in the options of the provider',
    ),
    (
        re.compile(
            r"max_completion_tokens.{0,60}(?:not (?:supported|permitted|allowed)|extra|unknown|unrecognized)", re.IGNORECASE
        ),
        'set max_tokens_field = "max_tokens" in the options of the provider',
    ),
    (_OUTPUT_LIMIT, "set a smaller max_output for the model in the configuration"),
    (re.compile(r"tool_choice|stream_options|\btools?\b.{0,40}not support", re.IGNORECASE), "check the provider's options"),
    (re.compile(r"effort|thinking", re.IGNORECASE), "check the effort, and what the configuration sets for the model"),
    (
        re.compile(r"alternat|roles? must|unexpected role|after role", re.IGNORECASE),
        "check roles in the options of the provider",
    ),
    (re.compile(r"temperature|top_p", re.IGNORECASE), "check temperature and top_p of the model in the configuration"),
)
"""Which setting a refusal speaks of, and what to do with it; the first that matches."""


def kind_of_prose(message: str) -> str | None:
    """Give the kind that the words of an error tell for sure, None where they do not."""
    if refuses_output_limit(message):
        return "provider.rejected"
    if _OVERFLOW.search(message):
        return "provider.contextOverflow"
    return "provider.auth" if _KEY.search(message) else None


def refuses_output_limit(message: str) -> bool:
    """Tell whether a message refuses the output limit, and not the prompt."""
    if _OUTPUT_LIMIT.search(message) is None:
        return False
    prompt, window = _number(_PROMPT, message), _number(_WINDOW, message)
    if prompt is not None and window is not None:
        return prompt * 2 <= window
    return prompt is None or _OVERFLOW.search(message) is None


def wrong_setting(message: str) -> str | None:
    """Give what to do about a refused setting, None where the message names none that is known."""
    return next((hint for pattern, hint in _SETTINGS if pattern.search(message)), None)


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message.replace(",", ""))
    digits = None if found is None else next((group for group in found.groups() if group), None)
    return None if digits is None or len(digits) > 15 else int(digits)
