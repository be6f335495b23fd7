"""Owns the JSON-RPC 2.0 envelope: a body to one of four kinds of message, and messages to bodies.

Params and results are passed on as the bytes that came (`msgspec.Raw`): nothing inside them is looked at, so a nested key
named `jsonrpc` is data. Batches are not taken; LSP has none. Must not know methods. Never raises for input.

Owns the diagnosis of bodies that are no message: what to answer, and to which id.

Also reads the beginning of a body that is too large to be taken. Uses the standard library's parser, which takes what
msgspec refuses: text that was cut, and half of a surrogate pair in an escape. Never raises for input.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from refold_protocol.rpc.wire_errors import ErrorObject, RpcId, invalid_request, parse_error


class RpcRequest(Struct, frozen=True, gc=False):
    """A call that wants exactly one reply. `params` is None where there are none, or null."""

    id: RpcId
    method: str
    params: Raw | None = None


class Notification(Struct, frozen=True, gc=False):
    """A call that gets no reply."""

    method: str
    params: Raw | None = None


class Response(Struct, frozen=True, gc=False):
    """A reply: an error, else a result (which may be null). `id` is None where the peer could not read ours."""

    id: RpcId | None
    result: Raw
    error: ErrorObject | None = None


class Invalid(Struct, frozen=True, gc=False):
    """A body that is no message: what to answer, and to which id."""

    id: RpcId | None
    error: ErrorObject


Message: TypeAlias = RpcRequest | Notification | Response | Invalid

NULL: Final = Raw(b"null")


def decode_message(body: bytes) -> Message:
    """Read one message. What is wrong with it is told by an Invalid, never by an exception."""
    try:
        if not body.isascii():
            body.decode()  # msgspec does not look into strings that it passes on
        wire = _WIRE.decode(body)
    except UnicodeDecodeError as error:
        return Invalid(None, parse_error(f"not UTF-8 at byte {error.start}"))
    except RecursionError:
        return Invalid(None, parse_error("nested too deeply"))
    except msgspec.DecodeError:  # find out what is wrong, and with which id
        return diagnose(body)
    if wire.jsonrpc is UNSET and wire.method is not UNSET:
        return Invalid(None if wire.id is UNSET else wire.id, invalid_request('"jsonrpc": "2.0" is missing'))
    if wire.method is not UNSET:
        params = None if wire.params is UNSET or _is_null(wire.params) else wire.params
        if wire.id is UNSET:
            return Notification(wire.method, params)
        return RpcRequest(wire.id, wire.method, params)
    return _response(wire, body)


def encode_request(request_id: RpcId, method: str, params: object = None) -> bytes:
    """Write a request. `params` is a struct, a Raw or None."""
    return _ENCODER.encode(_CallMessage("2.0", request_id, method, UNSET if params is None else params))


def encode_notification(method: str, params: object = None) -> bytes:
    """Write a notification. `params` is a struct, a Raw or None."""
    return _ENCODER.encode(_CallMessage("2.0", UNSET, method, UNSET if params is None else params))


def encode_result(request_id: RpcId, result: object) -> bytes:
    """Write a reply. `result` is a struct, a Raw or None. Raises TypeError or ValueError for what is not JSON."""
    return _ENCODER.encode(_ResultMessage("2.0", request_id, result))


def encode_error(request_id: RpcId | None, error: ErrorObject) -> bytes:
    """Write an error reply; `request_id` is None where the request's could not be read."""
    return _ENCODER.encode(_Error("2.0", request_id, error))


def read_error(error: Raw) -> ErrorObject:
    """Read the error of a reply; whatever its shape, it is an error all the same."""
    try:
        return _ERROR.decode(error)
    except (msgspec.DecodeError, RecursionError):
        return ErrorObject(0, "an error without code and message", error)


class _Wire(Struct, gc=False):
    jsonrpc: Literal["2.0"] | UnsetType = UNSET
    id: RpcId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _CallMessage(Struct, gc=False):
    jsonrpc: str
    id: RpcId | UnsetType
    method: str
    params: Any


class _ResultMessage(Struct, gc=False):
    jsonrpc: str
    id: RpcId
    result: Any


class _Error(Struct, gc=False):
    jsonrpc: str
    id: RpcId | None
    error: ErrorObject


def _response(wire: _Wire, body: bytes) -> Message:
    if wire.id is UNSET or (wire.result is UNSET and wire.error is UNSET):
        return diagnose(body)
    if wire.error is UNSET or _is_null(wire.error):
        return Response(wire.id, NULL if wire.result is UNSET else wire.result)
    return Response(wire.id, NULL, read_error(wire.error))


def _is_null(value: Raw) -> bool:
    seen = memoryview(value)  # a copy of large params would cost more than the whole message
    return len(seen) == 4 and bytes(seen) == b"null"


_ENCODER: Final = msgspec.json.Encoder()
_WIRE: Final = msgspec.json.Decoder(_Wire)
_ERROR: Final = msgspec.json.Decoder(ErrorObject)


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
    """Half of a surrogate pair is good JSON that cannot be kept: the request still gets a reply under its own id. In the text
    of a document it is taken: editors that count in UTF-16 send a pair in two changes."""
    try:
        value: Any = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return Invalid(None, parse_error(reason))
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    request_id = _valid_id(given.get("id"))
    if "method" not in given and ("result" in given or "error" in given):
        return Response(request_id, NULL, ErrorObject(0, "a reply that holds half of a surrogate pair"))
    method = given.get("method")
    if "id" not in given and isinstance(method, str) and method.startswith("textDocument/") and "params" in given:
        return Notification(method, Raw(json.dumps(given["params"]).encode()))
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
