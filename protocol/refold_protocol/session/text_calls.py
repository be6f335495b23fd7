"""Calls that a model wrote as text: the whole of a reply that is nothing but calls of offered tools.

Local models often print a call in place of making one: bare JSON, fenced, or between the tags of a chat template. A reply is
taken for calls only as a whole, and only where each names a tool that was offered; anything else stays text. What a call may be
written as:

    {"name": NAME, "arguments": {…}}     also `parameters`, also as the text of an object, also in a list, or one behind another
    {"function": {"name": …, …}}         as in the structured form
    <function=NAME>{…}</function>        also with <parameter=KEY>VALUE</parameter> inside

Pure. Never raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Final, cast

from refold_protocol.errors import InvalidJsonError
from refold_protocol.json_text import compact_json, parse_strict
from refold_protocol.session.messages import Block, TextBlock, ToolCallBlock, text_of

MAX_CALLS: Final = 64
"""Most calls of one reply that are taken from its text."""

MAX_LENGTH: Final = 1 << 20
"""Characters of the longest text that is looked at."""

_MAX_DEPTH: Final = 2
"""Fences and tags around a call."""

_FENCE: Final = re.compile(r"```[\w+-]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_TAGS: Final = re.compile(
    r"<(tool_call|tool_calls|function_call|function_calls|functioncall|tools|tool|call|invoke)>(.*?)(?:</\1>|\Z)", re.DOTALL
)
_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_MARKS: Final = re.compile(
    r"\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call\|>|<\|tool_call_begin\|>|<\|tool_call_end\|>|<\|eom_id\|>|<\|eot_id\|>"
    r"|<\|im_end\|>|<\|im_start\|>|functools(?=\s*\[)|[,;]"
)
"""What templates put before, between and behind calls."""

_ARGUMENTS: Final = ("arguments", "parameters")
_BESIDE: Final = frozenset({"id", "type", "index"})
"""Members that stand beside a call's name and arguments and say nothing."""

_SCANNER: Final = json.JSONDecoder()


class _NoCallError(Exception):
    """The text is not calls alone."""


def calls_in(content: tuple[Block, ...], offered: Collection[str]) -> tuple[Block, ...] | None:
    """Give `content` with calls in the place of its text, without ids; None where its text is not calls of `offered` alone."""
    text = text_of(content)
    if not offered or not text.strip() or len(text) > MAX_LENGTH or any(isinstance(one, ToolCallBlock) for one in content):
        return None
    try:
        found = _calls(text, offered, 0)
    except (_NoCallError, InvalidJsonError, RecursionError):
        return None
    rest = tuple(block for block in content if not isinstance(block, TextBlock))
    return (*rest, *found) if found else None


def _calls(text: str, offered: Collection[str], depth: int) -> list[ToolCallBlock]:
    """Read calls one behind the other. Raises _NoCallError where something else stands between them."""
    found: list[ToolCallBlock] = []
    place = 0
    while (place := _past_marks(text, place)) < len(text):
        if len(found) >= MAX_CALLS:
            raise _NoCallError
        if text[place] in "{[":
            value, place = _scanned(text, place)
            found += (_call(one, offered) for one in (cast("list[Any]", value) if isinstance(value, list) else [value]))
        elif (match := _FUNCTION.match(text, place)) is not None:
            found.append(_written(match[1], _parameters(match[2]), offered))
            place = match.end()
        elif depth < _MAX_DEPTH and (match := _FENCE.match(text, place) or _TAGS.match(text, place)) is not None:
            found += _calls(match[match.re.groups], offered, depth + 1)
            place = match.end()
        else:
            raise _NoCallError
    return found


def _past_marks(text: str, place: int) -> int:
    """Give the place of what is neither white space nor a mark of a template."""
    while place < len(text):
        if text[place].isspace():
            place += 1
        elif (mark := _MARKS.match(text, place)) is not None:
            place = mark.end()
        else:
            break
    return place


def _scanned(text: str, place: int) -> tuple[Any, int]:
    try:
        _, end = _SCANNER.raw_decode(text, place)
    except ValueError:
        raise _NoCallError from None
    return parse_strict(text[place:end]), end


def _parameters(text: str) -> object:
    """Read what stands in a function's tags: an object, or its members as texts."""
    inner = text.strip()
    if inner.startswith("{"):
        return parse_strict(inner)
    given: dict[str, object] = {}
    place = 0
    while (match := _PARAMETER.match(text, place)) is not None:
        given[match[1]] = match[2]
        place = match.end()
    if text[place:].strip():
        raise _NoCallError
    return given


def _call(value: object, offered: Collection[str]) -> ToolCallBlock:
    if not isinstance(value, dict):
        raise _NoCallError
    row = cast("dict[str, object]", value)
    inner = row.get("function")
    if isinstance(inner, dict) and not row.keys() - {"function", *_BESIDE}:
        row = cast("dict[str, object]", inner)
    elif isinstance(inner, str) and "name" not in row:
        row = {("name" if key == "function" else key): one for key, one in row.items()}
    keys = row.keys() - {"name", *_BESIDE}
    if len(keys) > 1 or not keys <= set(_ARGUMENTS):
        raise _NoCallError
    arguments: object = row[keys.pop()] if keys else {}
    if isinstance(arguments, str):
        arguments = parse_strict(arguments) if arguments.strip() else {}
    return _written(row.get("name"), arguments, offered)


def _written(name: object, arguments: object, offered: Collection[str]) -> ToolCallBlock:
    if not isinstance(name, str) or name not in offered or not isinstance(arguments, dict):
        raise _NoCallError
    return ToolCallBlock("", name, compact_json(arguments))
