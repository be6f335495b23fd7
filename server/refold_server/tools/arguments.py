"""Owns reading a call's arguments: the model's text under strict JSON, then a tool's typed params.

What is approved, what is recorded and what runs come from one reading: two readers of `{"path":"a","path":"b"}` could
differ. Every refusal names the parameter and what is wrong with it, since the model can only repair what it is told.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from refold_protocol.errors import InvalidJsonError
from refold_protocol.json_text import parse_strict, repair_surrogates
from refold_server.tools.failure import ToolFailure, invalid_arguments
from refold_server.tools.faults import Interrupted, first_line

_Params = TypeVar("_Params", bound=Struct)


def read_arguments(tool: str, text: str, params: type[_Params]) -> _Params:
    """Read `text` into `params`. Raises ToolFailure: INVALID_ARGUMENTS with a sentence that names what is wrong, TOOL_FAILED
    for params whose own check fails otherwise than by ValueError and TypeError."""
    try:
        value = parse_strict(text)
    except InvalidJsonError as error:
        raise invalid_arguments(f"the arguments of {tool} are not strict JSON: {error.message}") from None
    if not isinstance(value, dict):
        raise invalid_arguments(f"the arguments of {tool} must be a JSON object")
    try:
        return msgspec.convert(value, params)
    except msgspec.ValidationError as error:
        reason = repair_surrogates(str(error)).removeprefix("Object ")
        raise invalid_arguments(f"wrong arguments of {tool}: {reason}. It takes {_described(params)}.") from None
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - a struct that checks itself runs its own code, and nothing waits here
        said = first_line(error)
        reason = repair_surrogates(f"{type(error).__name__}: {said}" if said else type(error).__name__)
        raise ToolFailure("TOOL_FAILED", type(error).__name__, f"{tool} failed to read its arguments: {reason}") from None


def _described(params: type[Struct]) -> str:
    """List the parameters in their order, and which of them a call must give."""
    fields = msgspec.structs.fields(params)
    if not fields:
        return "no parameters"
    return ", ".join(f"{field.encode_name}{' (required)' if field.required else ''}" for field in fields)
