"""Owns the shapes of a chat-completions stream: its events as typed structs, and what their usage objects mean.

`parse_event` is the only reader of an event's JSON. The structs name just what refold uses and are lenient where
servers differ. Keeps no state between events.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn, cast

import msgspec
from msgspec import Raw, Struct

from refold_protocol.dialects.provider_failures import Failure, failure_error, read_failure, short
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import MOST_TOKENS, Usage

SAMPLE_CHARACTERS: Final = 80
"""How much of data that could not be read is quoted."""


class FunctionDelta(Struct, gc=False):
    """Name and arguments of a call, or more of them. `arguments` is the raw JSON of whatever stood there."""

    name: str | None = None
    arguments: Raw = Raw()


class CallDelta(Struct, gc=False):
    """One entry of `delta.tool_calls`; any field may be absent."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class Delta(Struct, gc=False):
    """What one event adds to the reply. Texts are strings, null, or (some servers) lists of parts."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None


class Choice(Struct, gc=False):
    """One alternative reply; refold follows the one with index 0."""

    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    error: Raw = Raw()


class StreamEvent(Struct, gc=False):
    """One event. An absent `usage` or `error` is an empty Raw."""

    choices: list[Choice] | None = None
    usage: Raw = Raw()
    error: Raw = Raw()


def parse_event(data: str) -> tuple[StreamEvent, bool]:
    """Read one event, and tell whether its texts are valid Unicode for sure (else they may hold lone surrogates).

    Raises ProviderError: `provider.badStream` with a sample for what is not such an event, and the kind of the
    provider's own error where the event is one of a shape that has no `error` member.
    """
    try:
        event = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError):  # read again by a scanner that tells lone halves from broken JSON
        return _parse_slowly(data), False
    if event.choices is None and not event.error:
        _raise_bare_error(_loads(data))
    return event, True


def parse_usage(raw: Raw) -> Usage | None:
    """Give the usage of a `usage` object in disjoint buckets, or None where prompt or output is not told.

    `prompt_tokens` holds the cached part, except where the cached count is the larger one: then it cannot be inside. A number
    that cannot count tokens tells nothing.
    """
    try:
        told = _USAGE_DECODER.decode(raw)
    except msgspec.DecodeError:  # a usage that cannot be read is an unknown usage, not a broken reply
        return None
    prompt, output = _count(told.prompt_tokens), _count(told.completion_tokens)
    if prompt is None or output is None:
        return None
    details = told.prompt_tokens_details or _PromptDetails()
    read = _count(told.prompt_cache_hit_tokens if details.cached_tokens is None else details.cached_tokens)
    written = _count(details.cache_write_tokens)
    cached = (read or 0) + (written or 0)
    reasoning = _count(None if told.completion_tokens_details is None else told.completion_tokens_details.reasoning_tokens)
    return Usage(prompt - cached if cached <= prompt else prompt, output, read, written, reasoning)


def _count(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= MOST_TOKENS else None


def text_of_part(value: Any) -> str:
    """Give the text of a delta's text member: a string, null, or a list of text parts. Raises ProviderError for others."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "".join(_text_of_item(item) for item in cast("list[object]", value))
    raise bad_stream(f"a text of an unknown form: {short(repr(value), SAMPLE_CHARACTERS)}")


def arguments_text(raw: Raw) -> str:
    """Give the text of a call's arguments: the string's content, or the JSON text of another value; null is nothing."""
    data = bytes(raw)
    if data.startswith(b'"'):
        try:
            return _STRING_DECODER.decode(data)
        except msgspec.DecodeError:  # holds half of a surrogate pair; the event's JSON was checked before
            return cast("str", json.loads(data))
    return "" if data == b"null" else data.decode()


def raise_error(raw: Raw) -> None:
    """Raise the ProviderError that the raw JSON of an `error` member tells of; null and empty values tell of none."""
    if raw and bytes(raw) != b"null":
        payload = _loads(bytes(raw).decode())
        if payload:
            raise failure_error(read_failure(payload) or Failure(short(bytes(raw).decode(), SAMPLE_CHARACTERS)))


def bad_stream(what: str) -> ProviderError:
    """Make the error for an answer that could not be read: `what` came, as a noun phrase."""
    return ProviderError("provider.badStream", f"the provider's answer could not be read: it holds {what}")


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None


def _parse_slowly(data: str) -> StreamEvent:
    try:
        value = _loads(data)
    except (ValueError, RecursionError):
        raise bad_stream(f"data that is not JSON: {short(data, SAMPLE_CHARACTERS)!r}") from None
    _raise_bare_error(value)
    try:
        return msgspec.convert(_with_raw(value), StreamEvent)
    except (msgspec.ValidationError, RecursionError):
        raise bad_stream(f"an event of an unknown form: {short(data, SAMPLE_CHARACTERS)!r}") from None


def _with_raw(value: Any) -> Any:
    """Put Raw where the structs expect it; a parsed value can only give the text that it is written as again."""
    if isinstance(value, list):
        return [_with_raw(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    return {
        key: Raw(json.dumps(item).encode()) if key in ("arguments", "usage", "error") else _with_raw(item)
        for key, item in members.items()
    }


def _raise_bare_error(value: object) -> None:
    """Raise for an object without choices that is an error in itself, as some servers send it."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        if "choices" not in members and (members.get("object") == "error" or members.keys() >= {"message", "code"}):
            failure = read_failure(members)
            if failure is not None:
                raise failure_error(failure)


def _text_of_item(item: object) -> str:
    text = cast("dict[str, object]", item).get("text") if isinstance(item, dict) else None
    if isinstance(text, str):
        return text
    raise bad_stream(f"a part of an unknown form: {short(json.dumps(item), SAMPLE_CHARACTERS)}")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


_DECODER: Final = msgspec.json.Decoder(StreamEvent)
_USAGE_DECODER: Final = msgspec.json.Decoder(_Usage)
_STRING_DECODER: Final = msgspec.json.Decoder(str)
