"""The reading of a provider's error: whatever shape it has, one ProviderError with a kind and a short sentence.

Servers report errors as an object, a string, a list, with words in `code` or `type`, with numbers in `code` or `status`,
or only in prose; the same shapes come as the body of an HTTP answer and inside a stream that began with status 200.
Which word means which kind stands in the tables here and in those of `failure_prose`, and nowhere else. Knows no transport.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, cast

from msgspec import Struct

from refold_protocol.dialects.failure_prose import kind_of_prose, wrong_setting
from refold_protocol.errors import ProviderError

MESSAGE_CHARACTERS: Final = 300
"""How much of a provider's own words is quoted."""

WORD_CHARACTERS: Final = 60
"""How much of a code or type is quoted."""

_WORDS: Final[dict[str, str]] = {
    "provider.contextOverflow": "context_length_exceeded exceed_context_size_error context_window_exceeded "
    "model_context_window_exceeded model_max_prompt_tokens_exceeded string_above_max_length",
    "provider.rejected": "insufficient_quota insufficient_balance quota_exceeded billing_error billing_not_active "
    "billing_hard_limit_reached model_not_found unsupported_parameter unsupported_value unknown_model",
    "provider.auth": "invalid_api_key api_key_invalid authentication_error permission_error permission_denied unauthorized "
    "unauthenticated invalid_authentication",
    "provider.rateLimited": "rate_limit_exceeded rate_limit_error too_many_requests resource_exhausted throttling",
    "provider.overloaded": "server_error internal_server_error internal_error overloaded overloaded_error "
    "engine_overloaded engine_overloaded_error service_unavailable unavailable unavailable_error bad_gateway",
    "provider.filtered": "content_filter content_policy_violation data_inspection_failed",
    "provider.timeout": "timeout timeout_error request_timeout deadline_exceeded",
}
_KINDS_BY_WORD: Final = {word: kind for kind, words in _WORDS.items() for word in words.split()}

_KINDS_BY_VAGUE_WORD: Final[dict[str, str]] = {
    "api_error": "provider.overloaded",
    "invalid_request_error": "provider.rejected",
    "not_found_error": "provider.rejected",
    "not_supported_error": "provider.rejected",
    "badrequesterror": "provider.rejected",
}
"""Words that say less than a status does: OpenAI's missing key is an `invalid_request_error` with status 401."""

_ACCOUNT_WORDS: Final = ("billing_", "insufficient_", "quota_")
"""Beginnings of words that speak of an account, not of a request."""

_GOOD_WORDS: Final = frozenset({"success", "succeeded", "succeed", "ok", "completed", "0", "200", "20000", "none"})
"""What says in a place of errors that there is none."""

_MESSAGE_KEYS: Final = (
    "message",
    "detail",
    "msg",
    "error_message",
    "error_msg",
    "error_description",
    "errorMessage",
    "Message",
    "faultstring",
    "status_msg",
    "title",
    "reason",
)
_INNER_KEYS: Final = ("error", "errors", "fault", "base_resp", "Error")
_CODE_KEYS: Final = ("code", "type", "status", "reason", "error_code", "status_code")
_NUMBER_KEYS: Final = ("status", "code", "status_code", "error_code", "statusCode")

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
    """What could be read of a provider's error. `words` are its codes and type in lower case, `status` an HTTP status,
    `retry_after_ms` how long it asks to wait."""

    message: str
    words: tuple[str, ...] = ()
    status: int | None = None
    prompt_tokens: int | None = None
    window_tokens: int | None = None
    retry_after_ms: int | None = None


def read_failure(payload: object) -> Failure | None:
    """Read an error out of a JSON value: the error itself, or an object or a list that holds it. None if there is none."""
    if isinstance(payload, str):
        return Failure(payload) if payload.strip() else None
    if isinstance(payload, list):
        return next((found for item in cast("list[object]", payload) if (found := read_failure(item)) is not None), None)
    if not isinstance(payload, dict):
        return None
    members = cast("dict[str, object]", payload)
    for key in _INNER_KEYS:
        inner = members.get(key)
        if isinstance(inner, dict | str | list) and inner and (found := read_failure(cast("object", inner))) is not None:
            return _with_outer(found, members)
    return _failure_of(members)


def is_failure(payload: object) -> bool:
    """Whether an object that holds no reply is an error in itself: it says so by a code, a type, a status or a flag.

    Words alone may be news of another kind, and a code of success is no error.
    """
    if not isinstance(payload, dict):
        return False
    members = cast("dict[str, object]", payload)
    if any(isinstance(members.get(key), dict | str | list) and members[key] for key in _INNER_KEYS):
        return True
    if members.get("success") is False or members.get("ok") is False or members.get("error") is True:
        return True
    marks = [str(members[key]).strip().lower() for key in (*_CODE_KEYS, "object", "statusCode") if members.get(key) is not None]
    if any("error" in mark or "fail" in mark or "exception" in mark for mark in marks):
        return True
    codes = [str(members[key]).strip().lower() for key in ("code", *_NUMBER_KEYS) if members.get(key) is not None]
    told = any(_text(members.get(key)) for key in _MESSAGE_KEYS)
    return told and bool(codes) and not any(code in _GOOD_WORDS for code in codes)


def kind_of(failure: Failure, status: int | None = None) -> str:
    """Give the kind of an error: its words decide before its status, prose only where it tells something surely.

    `status` is that of the HTTP answer, None inside a stream. Without any sign the provider itself is at fault.
    """
    status = status if status is not None and status >= 400 else failure.status
    prose = kind_of_prose(failure.message) if status in (None, 400, 413, 422) else None
    if prose == "provider.rejected":  # an output limit, say, whatever code it comes with
        return prose
    for word in failure.words:
        if (kind := _KINDS_BY_WORD.get(word)) is not None:
            return kind
    if prose is not None:
        return prose
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
    marks += [short(word, WORD_CHARACTERS) for word in failure.words if not word.isdigit()][:2]
    sentence = "the provider reported an error" + (f" ({', '.join(marks)})" if marks else "")
    if failure.message:
        sentence += f": {short(failure.message, MESSAGE_CHARACTERS)}"
    if failure.prompt_tokens is not None and failure.window_tokens is not None:
        sentence += f" ({failure.prompt_tokens:,} tokens asked, the window holds {failure.window_tokens:,})"
    sentence = f"{sentence.rstrip('.')}; {_hint(failure, kind, status)}"
    reported = status if status is not None and status >= 400 else failure.status
    wait = failure.retry_after_ms if retry_after_ms is None else retry_after_ms
    return ProviderError(kind, sentence, status=reported, retry_after_ms=wait, request_id=request_id)


def short(text: str, characters: int) -> str:
    """Give `text` on one line, without control characters, cut to `characters` code points."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: characters * 4]).split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def _hint(failure: Failure, kind: str, status: int | None) -> str:
    if status == 404 and "model" not in failure.message.lower():
        return "check base_url and path: the server has nothing at that address"
    if any(word.startswith(_ACCOUNT_WORDS) for word in failure.words):
        return "check the plan and the balance of the account"
    return (wrong_setting(failure.message) if kind == "provider.rejected" else None) or _HINTS[kind]


def _failure_of(members: dict[str, object]) -> Failure | None:
    message = next((text for key in _MESSAGE_KEYS if (text := _message(members.get(key)))), "")
    raw = _text(_object(members.get("metadata")).get("raw"))
    if raw and raw not in message:  # a router's: the words of the server that it asked
        message = f"{message}: {raw}" if message else raw
    details = [_object(item) for item in _list(members.get("details"))]
    words = [text.lower() for key in _CODE_KEYS if (text := _text(members.get(key)))]
    words += [text.lower() for detail in details if (text := _text(detail.get("reason")))]
    words = [word for word in words if word not in _GOOD_WORDS]
    status = next((n for key in _NUMBER_KEYS if (n := _status(members.get(key))) is not None), None)
    if not message and not words and status is None:
        return None
    wait = next((ms for detail in details if (ms := _milliseconds(detail.get("retryDelay"))) is not None), None)
    tokens, window = _count(members.get("n_prompt_tokens")), _count(members.get("n_ctx"))
    return Failure(message, tuple(dict.fromkeys(words)), status, tokens, window, wait)


def _with_outer(found: Failure, members: dict[str, object]) -> Failure:
    """Add what stands beside an inner error: xAI and others put the code there, and the words inside."""
    if found.words or found.status is not None:
        return found
    outer = _failure_of({key: value for key, value in members.items() if key not in _INNER_KEYS})
    if outer is None:
        return found
    return Failure(found.message or outer.message, outer.words, outer.status)


def _message(value: object) -> str:
    """Read the words of a member: a text, or FastAPI's list of objects with `msg`."""
    if isinstance(value, list):
        texts = (_message(item) for item in cast("list[object]", value)[:5])
        return "; ".join(text for text in texts if text)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return next((text for key in ("msg", "message", "detail") if (text := _text(members.get(key)))), json.dumps(members))
    return _text(value)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None


_SECONDS: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


def _milliseconds(value: object) -> int | None:
    found = _SECONDS.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else math.ceil(float(found[1]) * 1000)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
