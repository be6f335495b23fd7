"""Opaque JSON: values that refold carries but does not interpret, kept as their text.

Text is checked once, where it enters, by the standard library's scanner: msgspec keeps the last of two duplicate keys
without a word, so it cannot be the judge. After that the text is never parsed and written again, which keeps it exact,
immutable and cheap at once. Knows nothing of events.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NewType, NoReturn, cast

from refold_protocol.errors import InvalidJsonError

JsonText = NewType("JsonText", str)
"""Text that passed `check_json`."""

MAX_DEPTH = 256
"""Deepest nesting of arrays and objects that is accepted. Fixed, far below the interpreter's recursion limit, so that a
text which one process accepted can be read by every other one, whatever its stack looks like at that moment."""


MAX_VALUES = 2_000_000
"""Most values of one text, keys not counted: each takes some hundred bytes while the text is checked."""

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or what was begun as one and does not end."""


def check_json(text: str) -> JsonText:
    """Accept `text` as lossless JSON and return it unchanged.

    Raises InvalidJsonError for anything that does not survive a round trip: broken syntax, NaN, infinities (also `1e999`),
    duplicate keys, lone surrogates, nesting deeper than MAX_DEPTH, more than MAX_VALUES values.
    """
    parse_strict(text)
    return JsonText(text)


def parse_strict(text: str) -> Any:
    """Parse `text` under the rules of `check_json`. Raises InvalidJsonError, whose message says what is wrong."""
    _check_count(text)
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise InvalidJsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise InvalidJsonError(f"{error.msg.removesuffix(' at')} at character {error.pos}") from None
    except ValueError as error:  # the limit on the number of digits of an integer
        raise InvalidJsonError(str(error)) from None
    _check_depth(value)
    if _has_surrogate(text) or ("\\u" in text and _holds_surrogate(value)):
        raise InvalidJsonError("holds half of a surrogate pair")
    return value


def is_json_object(text: str) -> bool:
    """Tell whether `text` is a strict JSON object: what a provider may be sent as a call's arguments."""
    try:
        return isinstance(parse_strict(text), dict)
    except InvalidJsonError:
        return False


def compact_json(value: Any) -> JsonText:
    """Write `value` as compact JSON: no white space, keys in the order they have. Raises InvalidJsonError."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJsonError(str(error)) from None
    return check_json(text)


def repair_surrogates(text: str) -> str:
    """Join halves of surrogate pairs that stand side by side; turn every other half into U+FFFD."""
    if not _has_surrogate(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _holds_surrogate(value: Any) -> bool:
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if _has_surrogate(item):
                return True
        elif isinstance(item, dict):
            mapping = cast("dict[str, Any]", item)
            waiting.extend(mapping.keys())
            waiting.extend(mapping.values())
        elif isinstance(item, list):
            waiting.extend(cast("list[Any]", item))
    return False


def _check_count(text: str) -> None:
    """Refuse more values than may be built, before any is."""
    if _values(text) > MAX_VALUES and _values(_STRING.sub("", text)) > MAX_VALUES:
        raise InvalidJsonError(f"more than {MAX_VALUES:,} values")


def _values(text: str) -> int:
    """Count at least the values of a text; those that seem to stand in its strings are counted as well."""
    return 0 if len(text) <= MAX_VALUES else sum(map(text.count, "[{,"))


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    depth = 0
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(cast("dict[str, Any]", item).values())
            elif isinstance(item, list):
                below.extend(cast("list[Any]", item))
            else:
                continue
        if any(isinstance(item, dict | list) for item in level):
            depth += 1
        if depth > MAX_DEPTH:
            raise InvalidJsonError(f"nested deeper than {MAX_DEPTH} levels")
        level = below


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidJsonError(f"key {key!r} stands twice in one object")
            seen.add(key)
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJsonError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidJsonError(f"the number {text} is beyond what can be kept")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_refuse_constant, parse_float=_finite)
