"""Owns the reading of a provider's error: whatever shape it has, one ProviderError with a kind and a short sentence.

Servers report errors as an object, a string, a list, with words in `code` or `type`, with numbers in `code` or `status`,
or only in prose; the same shapes come as the body of an HTTP answer and inside a stream that began with status 200.
Which word means which kind stands in the tables here and nowhere else. Knows no transport.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from msgspec import Struct

from refold_protocol.errors import ProviderError

MESSAGE_CHARACTERS: Final = 300
"""How much of a provider's own words is quoted."""

_WORDS: Final[dict[str, str]] = {
    "provider.contextOverflow": "context_length_exceeded exceed_context_size_error context_window_exceeded "
    "model_context_window_exceeded model_max_prompt_tokens_exceeded",
    "provider.rejected": "insufficient_quota insufficient_balance quota_exceeded billing_error billing_not_active "
    "billing_hard_limit_reached model_not_found",
    "provider.auth": "invalid_api_key authentication_error permission_error permission_denied unauthorized unauthenticated",
    "provider.rateLimited": "rate_limit_exceeded rate_limit_error too_many_requests resource_exhausted",
    "provider.overloaded": "server_error internal_server_error internal_error api_error overloaded overloaded_error "
    "engine_overloaded service_unavailable unavailable unavailable_error bad_gateway",
    "provider.filtered": "content_filter content_policy_violation",
    "provider.timeout": "timeout timeout_error request_timeout",
}
_KINDS_BY_WORD: Final = {word: kind for kind, words in _WORDS.items() for word in words.split()}

_KINDS_BY_VAGUE_WORD: Final[dict[str, str]] = {
    "invalid_request_error": "provider.rejected",
    "not_found_error": "provider.rejected",
    "not_supported_error": "provider.rejected",
}
"""Words that say less than a status does: OpenAI's missing key is an `invalid_request_error` with status 401."""

_OVERFLOW_PROSE: Final = re.compile(
    r"maximum context length|context (?:length|window|size|limit)|exceeds? the available context"
    r"|(?:prompt|input) (?:is )?too long|too many tokens in the prompt|reduce the length of the (?:messages|prompt|input)"
    r"|(?:input|prompt) token count[^.]{0,40} exceeds the (?:maximum|limit)|input length[^.]{0,20} exceeds the maximum"
    r"|maximum prompt length|prompt exceeds max(?:imum)? length|range of input length should be|exceeded model token limit"
    r"|longer than the maximum model length|inputs` tokens \+ `max_new_tokens",
    re.IGNORECASE,
)
"""How servers say that a request does not fit, each in its own words."""

_ACCOUNT_WORDS: Final = ("billing_", "insufficient_", "quota_")
"""Beginnings of words that speak of an account, not of a request."""

_HINTS: Final[dict[str, str]] = {
    "provider.rejected": "check the model's name, and what the configuration sets for it",
    "provider.filtered": "rephrase the prompt, or use another model",
    "provider.auth": "check the key and what it may do",
    "provider.contextOverflow": "compact the session or choose a model with a larger window",
    "provider.rateLimited": "wait before the next try",
    "provider.overloaded": "try again later",
    "provider.timeout": "try again, or raise the time limits",
}


class Failure(Struct, frozen=True, gc=False):
    """What could be read of a provider's error. `words` are its code and type in lower case, `status` an HTTP status."""

    message: str
    words: tuple[str, ...] = ()
    status: int | None = None
    prompt_tokens: int | None = None
    window_tokens: int | None = None


def read_failure(payload: object) -> Failure | None:
    """Read an error out of a JSON value: the error itself, or an object or a list that holds it. None if there is none."""
    if isinstance(payload, str):
        return Failure(payload) if payload.strip() else None
    if isinstance(payload, list):
        items = cast("list[object]", payload)
        return read_failure(items[0]) if items else None
    if not isinstance(payload, dict):
        return None
    members = cast("dict[str, object]", payload)
    inner = members.get("error")
    if isinstance(inner, dict | str) and inner:
        return read_failure(cast("object", inner))
    message = next((text for key in ("message", "detail", "msg") if (text := _text(members.get(key)))), "")
    words = tuple(text.lower() for key in ("code", "type", "status") if (text := _text(members.get(key))))
    numbers = (members.get("status"), members.get("code"), members.get("status_code"))
    status = next((n for n in numbers if isinstance(n, int) and 400 <= n <= 599), None)
    if not message and not words and status is None:
        return None
    return Failure(message, words, status, _count(members.get("n_prompt_tokens")), _count(members.get("n_ctx")))


def kind_of(failure: Failure, status: int | None = None) -> str:
    """Give the kind of an error: its words decide before its status, prose only where it tells of a full window.

    `status` is that of the HTTP answer, None inside a stream. Without any sign the provider itself is at fault.
    """
    status = status if status is not None and status >= 400 else failure.status
    for word in failure.words:
        if (kind := _KINDS_BY_WORD.get(word)) is not None:
            return kind
    if status in (None, 400, 413, 422) and _OVERFLOW_PROSE.search(failure.message):
        return "provider.contextOverflow"
    if status is not None:
        return kind_of_status(status)
    for word in failure.words:
        if (kind := _KINDS_BY_VAGUE_WORD.get(word)) is not None:
            return kind
    return "provider.overloaded"


def kind_of_status(status: int) -> str:
    """Give the kind that belongs to an HTTP status by itself (any number that is not a success)."""
    match status:
        case 401 | 403:
            return "provider.auth"
        case 408:
            return "provider.timeout"
        case 413:
            return "provider.contextOverflow"
        case 429:
            return "provider.rateLimited"
        case _:
            return "provider.overloaded" if status >= 500 else "provider.rejected"


def failure_error(
    failure: Failure, *, status: int | None = None, retry_after_ms: int | None = None, request_id: str | None = None
) -> ProviderError:
    """Make the error of a failure: one short sentence with the provider's words and a hint."""
    kind = kind_of(failure, status)
    marks = [str(status)] if status is not None and status >= 400 else []
    marks += [word for word in failure.words if not word.isdigit()][:2]
    sentence = "the provider reported an error" + (f" ({', '.join(marks)})" if marks else "")
    if failure.message:
        sentence += f": {short(failure.message, MESSAGE_CHARACTERS)}"
    if failure.prompt_tokens is not None and failure.window_tokens is not None:
        sentence += f" ({failure.prompt_tokens:,} tokens asked, the window holds {failure.window_tokens:,})"
    account = any(word.startswith(_ACCOUNT_WORDS) for word in failure.words)
    hint = "check the plan and the balance of the account" if account else _HINTS[kind]
    sentence = f"{sentence.rstrip('.')}; {hint}"
    reported = status if status is not None and status >= 400 else failure.status
    return ProviderError(kind, sentence, status=reported, retry_after_ms=retry_after_ms, request_id=request_id)


def short(text: str, characters: int) -> str:
    """Give `text` on one line, without control characters, cut to `characters` code points."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: characters * 4]).split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
