"""The shapes of a chat-completions stream: its events as typed structs, and what their usage objects mean.

An event of the usual form is read by `decode_event`. Any other goes through `odd_events`, which takes what is there and lets
nothing that nobody needs fail a reply: null and missing members, numbers as text, whole messages in place of deltas,
several objects in one event. Keeps no state between events.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from refold_protocol.dialects.provider_failures import Failure, failure_error, is_failure, read_failure, short
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import MOST_TOKENS, Usage

SAMPLE_CHARACTERS: Final = 200
"""How much of data that could not be read is quoted."""

Members = dict[str, object]


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
    """One part of the reply, or one alternative. Moonshot puts the usage here."""

    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    error: Raw = Raw()
    usage: Raw = Raw()


class StreamEvent(Struct, gc=False):
    """One event. An absent `usage` or `error` is an empty Raw."""

    choices: list[Choice] | None = None
    usage: Raw = Raw()
    error: Raw = Raw()


decode_event: Final = msgspec.json.Decoder(StreamEvent).decode
"""Reads one event of the usual form, whose texts are valid Unicode for sure. Raises DecodeError for others."""


class OddEvent(Struct, gc=False):
    """An event of an unusual form. `whole`: it holds the whole message, not a piece. `said`: words that may be an error."""

    event: StreamEvent
    whole: bool = False
    said: str = ""


def odd_events(data: str) -> list[OddEvent] | None:
    """Read what stands in an event of any form; None when it is not JSON. Its texts may hold lone surrogates.

    Raises ProviderError of the provider's own kind where it is an error without an `error` member.
    """
    values = json_values(data)
    return None if values is None else [_odd_event(value) for value in values]


def json_values(data: str) -> list[object] | None:
    """Give the JSON values that stand in `data` one after the other, items of a list each on its own; None for no JSON.
    The constants that are no JSON (NaN) and control characters in strings are let through."""
    found: list[object] = []
    while (data := data.strip()).startswith("data:"):
        data = data[5:]
    at = 0
    try:
        while at < len(data):
            value, at = cast("tuple[object, int]", _LENIENT.raw_decode(data, at))
            found += cast("list[object]", value) if isinstance(value, list) else [value]
            while at < len(data) and data[at].isspace():
                at += 1
    except (ValueError, RecursionError):  # includes numbers of thousands of digits
        return None
    return found


def parse_usage(raw: Raw) -> Usage | None:
    """Give the usage of a `usage` object in disjoint buckets, or None where prompt or output is not told.

    `prompt_tokens` holds the cached part, except where the cached count is the larger one: then it cannot be inside, unless
    the total says so. `completion_tokens` holds the reasoning, except where the total shows that it stands outside. A number
    that cannot count tokens tells nothing.
    """
    told = _usage_of(raw)
    prompt, output = _count(told.prompt_tokens), _count(told.completion_tokens)
    if prompt is None or output is None:
        return None
    details = told.prompt_tokens_details or _PromptDetails()
    read = next((n for n in (details.cached_tokens, told.prompt_cache_hit_tokens, told.cached_tokens) if n is not None), None)
    read, written, total = _count(read), _count(details.cache_write_tokens), _count(told.total_tokens)
    reasoning = _count(None if told.completion_tokens_details is None else told.completion_tokens_details.reasoning_tokens)
    if reasoning and total == prompt + output + reasoning:
        output += reasoning
    cached = (read or 0) + (written or 0)
    if cached > prompt and written in (None, 0) and total == prompt + output:
        read = cached = prompt
    return Usage(prompt - cached if cached <= prompt else prompt, output, read, written, reasoning)


def _count(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= MOST_TOKENS else None


def text_parts(value: Any, *, thinking: bool = False) -> list[tuple[bool, str]]:
    """Give the texts of a member that is no plain string, in order, each with whether it is thinking: of a list of parts,
    an object with a text, a number. A part without a text (a reference) gives none."""
    if isinstance(value, str):
        return [(thinking, value)] if value else []
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [(thinking, json.dumps(value))]
    if isinstance(value, list):
        return [part for item in cast("list[object]", value) for part in text_parts(item, thinking=thinking)]
    if not isinstance(value, dict):
        return []
    members = cast("Members", value)
    kind = members.get("type")
    inner = next((members[key] for key in _TEXTS if key in members), None)
    if inner is None and isinstance(kind, str) and not kind.startswith(_TEXTLESS):
        raise bad_stream(f"a part of an unknown form: {short(json.dumps(members), SAMPLE_CHARACTERS)}")
    return text_parts(inner, thinking=thinking or kind in ("thinking", "reasoning"))


def arguments_text(raw: Raw) -> str:
    """Give the text of a call's arguments: the string's content, or the JSON text of another value; null is nothing."""
    data = bytes(raw)
    if data.startswith(b'"'):
        try:
            return _STRING_DECODER.decode(data)
        except msgspec.DecodeError:  # holds half of a surrogate pair; the event's JSON was checked before
            return cast("str", json.loads(data, strict=False))
    return "" if data == b"null" else data.decode()


def raise_error(raw: Raw) -> None:
    """Raise the ProviderError that the raw JSON of an `error` member tells of; null and empty values tell of none."""
    if raw and bytes(raw) != b"null":
        values = json_values(bytes(raw).decode()) or ()
        if payload := next((value for value in values if value), None):
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
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


def _usage_of(raw: Raw) -> _Usage:
    try:
        return _USAGE_DECODER.decode(raw)
    except msgspec.DecodeError:  # a member of another type: the others still tell
        values = json_values(bytes(raw).decode()) or ()
        return _lenient_usage(_members(next(iter(values), None)))


def _lenient_usage(members: Members) -> _Usage:
    prompt, completion = (_members(members.get(f"{name}_tokens_details")) for name in ("prompt", "completion"))
    return _Usage(
        _whole_number(members.get("prompt_tokens")),
        _whole_number(members.get("completion_tokens")),
        _whole_number(members.get("total_tokens")),
        _PromptDetails(_whole_number(prompt.get("cached_tokens")), _whole_number(prompt.get("cache_write_tokens"))),
        _CompletionDetails(_whole_number(completion.get("reasoning_tokens"))),
        _whole_number(members.get("prompt_cache_hit_tokens")),
        _whole_number(members.get("cached_tokens")),
    )


def _odd_event(value: object) -> OddEvent:
    members = _members(value)
    error = _raw(members.get("error") or members.get("errors"))
    given = members.get("choices")
    items = cast("list[object]", given) if isinstance(given, list) else [given]
    choices = [members for item in items if (members := _members(item))]
    if not choices and not isinstance(given, list) and not error:
        failure = read_failure(value)
        if failure is not None and is_failure(value):
            raise failure_error(failure)
        said = "" if failure is None else failure.message
        return OddEvent(StreamEvent(None, _raw(members.get("usage"))), said=said)
    usage = members.get("usage") or next((usage for choice in choices if (usage := choice.get("usage"))), None)
    read = [_choice(choice) for choice in choices]
    whole = any("message" in choice for choice in choices)
    return OddEvent(StreamEvent(read, _raw(usage), error), whole)


def _choice(members: Members) -> Choice:
    delta = members.get("delta") or members.get("message") or {"content": members.get("text")}
    reason = members.get("finish_reason") or members.get("finishReason")
    if isinstance(reason, dict):
        named = cast("Members", reason)
        reason = next((word for key in ("type", "reason", "value") if isinstance(word := named.get(key), str)), None)
    return Choice(
        _whole_number(members.get("index")) or 0,
        _delta(_members(cast("object", delta))) if isinstance(delta, dict) else Delta(content=delta),
        str(reason) if reason else None,
        _raw(members.get("error")),
    )


def _delta(members: Members) -> Delta:
    refusal = members.get("refusal")
    entries = members.get("tool_calls") or members.get("function_call")
    if isinstance(entries, dict):
        entries = [cast("object", entries)]
    calls = [_call(item) for item in cast("list[object]", entries) if item] if isinstance(entries, list) else None
    return Delta(
        members.get("content"),
        members.get("reasoning_content"),
        members.get("reasoning"),
        refusal if isinstance(refusal, str) else None,
        calls,
    )


def _call(item: object) -> CallDelta:
    if not isinstance(item, dict):
        raise bad_stream(f"a tool call of an unknown form: {short(repr(item), SAMPLE_CHARACTERS)!r}")
    members = cast("Members", item)
    function = _members(members.get("function") or members)
    name, call_id = function.get("name"), members.get("id")
    known = isinstance(call_id, str | int) and not isinstance(call_id, bool)
    return CallDelta(
        _whole_number(members.get("index")),
        str(call_id) if known else None,
        FunctionDelta(name if isinstance(name, str) else None, _raw(function.get("arguments"))),
    )


def _members(value: object) -> Members:
    return cast("Members", value) if isinstance(value, dict) else {}


def _raw(value: object) -> Raw:
    return Raw() if value is None else Raw(json.dumps(value).encode())


def _whole_number(value: object) -> int | None:
    """Read an integer that may be written as a text or with a fraction of zero; None for anything else."""
    if isinstance(value, str) and len(value) < 16 and value.strip().lstrip("-").isdecimal():
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MOST_TOKENS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_TEXTS: Final = ("text", "thinking", "reasoning", "refusal", "content")
"""Members of a part that hold its text, or parts of its own."""

_TEXTLESS: Final = ("text", "thinking", "reasoning", "reference", "citation", "annotation", "refusal")
"""Beginnings of types of parts that may come without a text: what they hold is no part of the answer's words."""

_USAGE_DECODER: Final = msgspec.json.Decoder(_Usage)
_STRING_DECODER: Final = msgspec.json.Decoder(str)
_LENIENT: Final = json.JSONDecoder(strict=False)
