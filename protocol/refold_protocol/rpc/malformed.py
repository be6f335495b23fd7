"""Owns the diagnosis of bodies that are no message: what to answer, and to which id.

Also reads the beginning of a body that is too large to be taken. Uses the standard library's parser, which takes what
msgspec refuses: text that was cut, and half of a surrogate pair in an escape. Never raises for input.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn, cast

import msgspec
from msgspec import Raw, Struct

from refold_protocol.rpc.envelope import NULL, Invalid, Message, Response, read_error
from refold_protocol.rpc.errors import ErrorObject, RpcId, invalid_request, parse_error


class Glimpse(Struct, frozen=True, gc=False):
    """What the beginning of a body tells: its id where that was seen, and whether it is a reply."""

    id: RpcId | None
    is_reply: bool


def diagnose(body: bytes) -> Message:
    """Tell what is wrong with a body (valid UTF-8) that did not decode. A reply is taken as one, however odd it is: it is
    never answered."""
    try:
        value: Any = msgspec.json.decode(body)
    except RecursionError:
        return Invalid(None, parse_error("nested too deeply"))
    except msgspec.DecodeError as error:
        return _salvage(body, str(error))
    if isinstance(value, list):
        return Invalid(None, invalid_request("batches are not taken; send one message a frame"))
    if not isinstance(value, dict):
        return Invalid(None, invalid_request("a message is a JSON object"))
    given = cast("dict[str, Any]", value)
    request_id = _valid_id(given.get("id"))
    if "error" in given and "method" not in given:
        return Response(request_id, NULL, read_error(Raw(msgspec.json.encode(given["error"]))))
    if "result" in given and "method" not in given:
        return Response(request_id, Raw(msgspec.json.encode(given["result"])))
    return Invalid(request_id, invalid_request(_fault(given, request_id)))


def glimpse(head: bytes) -> Glimpse:
    """Tell what the beginning of a body, cut anywhere, says about the message."""
    text = head.decode(errors="replace")
    found: dict[str, Any] = {}
    position = _space(text, 0)
    while text[position : position + 1] in ("{", ","):
        try:
            key, position = _SCANNER.raw_decode(text, _space(text, position + 1))
            position = _space(text, position)
            if text[position : position + 1] != ":":
                break
            found[key] = None
            value, position = _SCANNER.raw_decode(text, _space(text, position + 1))
            position = _space(text, position)
        except (ValueError, TypeError, RecursionError):  # cut here, or no object; what stands before it was read
            break
        if position < len(text):  # else a number may go on behind the cut
            found[key] = value
    is_reply = "method" not in found and ("result" in found or "error" in found)
    return Glimpse(_valid_id(found.get("id")), is_reply)


def _fault(given: dict[str, Any], request_id: RpcId | None) -> str:
    if "id" in given and request_id is None:
        return "an id is a string or an integer"
    if given.get("jsonrpc") != "2.0":
        return '"jsonrpc": "2.0" is missing'
    return "a request has a method, which is a string"


def _salvage(body: bytes, reason: str) -> Message:
    """Half of a surrogate pair is good JSON that cannot be kept: the request still gets a reply under its own id."""
    try:
        value: Any = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return Invalid(None, parse_error(reason))
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    request_id = _valid_id(given.get("id"))
    if "method" not in given and ("result" in given or "error" in given):
        return Response(request_id, NULL, ErrorObject(0, "a reply that holds half of a surrogate pair"))
    return Invalid(request_id, invalid_request("a string holds half of a surrogate pair"))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _valid_id(value: Any) -> RpcId | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.encode(errors="replace").decode() == value:  # no half of a surrogate pair
        return value
    return None


def _space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


_SCANNER: Final = json.JSONDecoder()
